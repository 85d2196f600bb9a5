"""Launches a kernel's text in the simulator, on a CPU; knows our kernels' parameters, no plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from minipaged_cuda import primitives
from minipaged_cuda.kernel import Parameter, Specialisation
from minipaged_cuda.launch.slots import readable_caches
from minipaged_cuda.plan import H200, Card, Grid
from minipaged_cuda.simulator import Pointer, Simulator, Trace

Schedule: TypeAlias = Literal["forward", "reverse", "random"]


class SimulatedLauncher:
    """Runs every launch lane by lane: slow, and it finds what a card would do silently.

    Args:
        schedule: Order in which threads and CTAs take their turns.
        seed: Of the random schedule.
        strict: Reading a slot of the cache that no query may see is an error.
        check_races: As `Simulator`; without it a launch takes less time and memory.
        card: What launch plans take it for.

    Attributes:
        history: What every launch did, oldest first.
    """

    def __init__(
        self,
        *,
        schedule: Schedule = "forward",
        seed: int = 0,
        strict: bool = True,
        check_races: bool = True,
        card: Card = H200,
    ):
        self.schedule: Schedule = schedule
        self.seed, self.strict, self.check_races, self.card = seed, strict, check_races, card
        self.history: list[Trace] = []
        self._readable: list[tuple[Any, Any]] = []

    @property
    def last(self) -> Trace:
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
        """Run one kernel to its end; arguments by parameter name, None for a null pointer."""
        simulator = Simulator(
            schedule=self.schedule,
            seed=self.seed,
            check_races=self.check_races,
            bindings=_bindings(specialisation),
        )
        masks = readable_caches(specialisation, arguments) if self.strict else []
        for tensor, mask in (*self._readable, *masks):
            simulator.readable(tensor, mask)
        parameters = specialisation.parameters
        values = [_value(p, arguments[p.name]) for p in parameters]
        names = [p.name for p in parameters]
        trace = simulator.launch(
            specialisation.kernel,
            grid,
            num_threads,
            values,
            names=names,
            dynamic_shared=dynamic_shared,
        )
        self.history.append(trace)


def _bindings(specialisation: Specialisation) -> dict[str, Any]:
    """What stands for each constant of the text: a number, a primitive, or an element type."""
    words = {
        name: getattr(primitives, word, None) or np.dtype(word).type
        for name, word in specialisation.names.items()
    }
    return {**specialisation.numbers, **words}


def _value(parameter: Parameter, value: Any) -> Any:
    kind = np.dtype(parameter.type_name)
    if not parameter.is_pointer:
        return kind.type(value)
    return Pointer(_NOTHING if value is None else value, kind)


_NOTHING = np.empty(0, np.uint8)  # behind a null pointer: every index is out of bounds
