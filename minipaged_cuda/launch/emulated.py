"""Launches a kernel as the PTX that a card would get, on a CPU; compiles, parses and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from minipaged_cuda.compile import Capability, compile_ptx
from minipaged_cuda.emulator import Counts, Emulator, Function, parse
from minipaged_cuda.kernel import Parameter, Specialisation
from minipaged_cuda.launch.slots import readable_caches
from minipaged_cuda.plan import Card, Grid


class EmulatedLauncher:
    """Runs what NVVM made of a kernel's text; only the card itself is left out.

    Args:
        capability: That the kernels are compiled for.
        strict: Reading a slot of the cache that no query may see is an error.
        check_races: As `Emulator`; without it a launch takes less time and memory.
        num_sms: What launch plans take it for.

    Attributes:
        history: What every launch did, oldest first.
    """

    def __init__(
        self,
        capability: Capability = (9, 0),
        *,
        strict: bool = True,
        check_races: bool = True,
        num_sms: int = 132,
    ):
        self.card = Card(capability, num_sms)
        self.strict, self.check_races = strict, check_races
        self.history: list[Counts] = []
        self._readable: list[tuple[Any, Any]] = []

    @property
    def last(self) -> Counts:
        """What the last launch did."""
        return self.history[-1]

    def readable(self, tensor: Any, mask: Any) -> None:
        """From now on, reading an element of the tensor whose mask is False is an error."""
        self._readable.append((tensor, mask))

    def __call__(
        self,
        specialisation: Specialisation,
        grid: Grid,
        num_threads: int,
        arguments: Mapping[str, Any],
        *,
        dynamic_shared: int = 0,
    ) -> None:
        """Run one kernel to its end; arguments by parameter name, None for a null pointer.

        Raises:
            DeviceError: The compiler is not installed.
        """
        entry = _entry(specialisation, self.card.capability)
        emulator = Emulator(check_races=self.check_races)
        masks = readable_caches(specialisation, arguments) if self.strict else []
        for tensor, mask in (*self._readable, *masks):
            emulator.readable(tensor, mask)
        parameters = specialisation.parameters
        counts = emulator.launch(
            entry,
            grid,
            num_threads,
            [_value(p, arguments[p.name]) for p in parameters],
            names=[p.name for p in parameters],
            dynamic_shared=dynamic_shared,
        )
        self.history.append(counts)


@cache
def _entry(specialisation: Specialisation, capability: Capability) -> Function:
    return parse(compile_ptx(specialisation, capability)).entry()


def _value(parameter: Parameter, value: Any) -> Any:
    if parameter.is_pointer:
        return np.uint64(0) if value is None else value
    return np.dtype(parameter.type_name).type(value)
