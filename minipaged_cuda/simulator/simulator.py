"""Launches kernels: puts text, arguments, schedule and rules together; knows no instruction."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Literal

import numpy as np

from . import schedule
from .arguments import Storages, bind, extent_of, tensors_of
from .lanes import Cta
from .launch import Dim3, Launch, ordering, unravelled
from .rebind import rebind
from .rules import Marks
from .trace import Trace

MAX_THREADS = 1024  # of a CTA


class Simulator:
    """Runs CUDA kernels, which are Python functions, thread by thread, and finds what is wrong.

    A run is reproducible. Every thread runs until it waits for others, in an order that `schedule`
    gives; CTAs run one after the other. So a kernel that no error stops has the same result under
    every schedule, up to the order of its atomic updates.

    Args:
        schedule: Who comes first: `forward`, `reverse`, or `random`, which `seed` decides.
        check_races: Find races. Without it a launch is faster, and all else is found.
        shared_limit: Bytes of shared memory that a CTA may have; 48 KiB of them in arrays whose
            shape the kernel says.
        bindings: Names of the kernel's text, and of the device functions that it calls, that mean
            something else here, which is taken as it is; None means the simulated `cuda`.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> cuda = SimpleNamespace()  # or `from numba import cuda`
        >>> def double(x, n):
        ...     i = cuda.grid(1)
        ...     if i < n:
        ...         x[i] = 2 * x[i]
        >>> x = np.arange(5)
        >>> trace = Simulator().launch(double, grid=2, num_threads=4, arguments=(x, 5))
        >>> x
        array([0, 2, 4, 6, 8])
        >>> print(trace.table())
        buffer  reads  writes  atomics  sectors  useful  extra cycles
        x           5       5        0        4     62%
        2 CTAs of 4 threads, 0 barriers
    """

    def __init__(
        self,
        *,
        schedule: Literal["forward", "reverse", "random"] = "forward",
        seed: int = 0,
        check_races: bool = True,
        shared_limit: int = 227 * 1024,
        bindings: Mapping[str, Any] | None = None,
    ) -> None:
        self.order = ordering(schedule, seed)
        self.check_races, self.shared_limit = check_races, shared_limit
        self.bindings = bindings or {}
        self.marks: list[Marks] = []

    def readable(self, tensor: Any, mask: Any) -> None:
        """From now on only elements whose mask is True may be read.

        Args:
            tensor: A NumPy array or a torch CPU tensor.
            mask: Booleans, broadcast to the tensor's shape.
        """
        self._mark(Marks("hidden", tensor, ~np.asarray(mask, bool)))

    def unwritten(self, tensor: Any) -> None:
        """Nobody has written the tensor yet: a kernel may read only what a kernel has written."""
        self._mark(Marks("unwritten", tensor, True))

    def launch(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        num_threads: int | Sequence[int],
        arguments: Iterable[Any],
        *,
        names: Sequence[str] | None = None,
        dynamic_shared: int = 0,
    ) -> Trace:
        """Run a kernel on a grid of CTAs of `num_threads`, and return what it moved.

        Args:
            kernel: A Python function, or a Numba dispatcher.
            grid: CTAs, a number or up to three.
            num_threads: Threads of a CTA, a number or up to three.
            arguments: NumPy arrays, torch CPU tensors, `Pointer`s, numbers.
            names: What messages and the trace call the arguments; by default as the kernel does.
            dynamic_shared: Bytes of shared memory for arrays of shape 0.

        Raises:
            SimulationError: The kernel does something that it should not; see its subclasses.
            TypeError, ValueError: The launch itself cannot be.
        """
        arguments, function = list(arguments), rebind(kernel, self.bindings)
        names = names or _parameters(function)
        if len(names) != len(arguments):
            what = f"{function.__name__} takes {len(names)} arguments ({', '.join(names)})"
            raise TypeError(f"{what}, not {len(arguments)}")
        extents = [extent_of(tensor) for tensor in tensors_of(arguments)]
        storages = Storages(extents, self.check_races)
        threads = _extent("num_threads", num_threads)
        trace = Trace(0, threads.x * threads.y * threads.z)
        values = [bind(x, name, storages, trace) for x, name in zip(arguments, names)]
        launch = Launch(
            grid=_extent("grid", grid),
            num_threads=threads,
            order=self.order,
            trace=trace,
            dynamic_shared=dynamic_shared,
            shared_limit=self.shared_limit,
            check_races=self.check_races,
        )
        self._run(partial(function, *values), launch, storages)
        return trace.finish()

    def _run(self, kernel: partial[Any], launch: Launch, storages: Storages) -> None:
        for marks in self.marks:
            marks.put(storages)
        try:
            with np.errstate(all="ignore"):  # a GPU wraps, and has inf and NaN
                for index in launch.order(unravelled(launch.grid)):
                    schedule.run(Cta(launch, index, kernel))
                    launch.trace.num_ctas += 1
        finally:
            for marks in self.marks:
                marks.take(storages)

    def _mark(self, marks: Marks) -> None:
        self.marks = [*(old for old in self.marks if not marks.replaces(old)), marks]


def _extent(what: str, sizes: int | Sequence[int]) -> Dim3:
    rule = f"{what} is one to three whole numbers from 1 on, not {sizes}"
    try:
        numbers = [operator.index(n) for n in (sizes if isinstance(sizes, Sequence) else (sizes,))]
    except TypeError:
        raise ValueError(rule) from None
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise ValueError(rule)
    extent = Dim3(*numbers, *(1,) * (3 - len(numbers)))
    if what == "num_threads" and extent.x * extent.y * extent.z > MAX_THREADS:
        raise ValueError(f"a CTA has at most {MAX_THREADS} threads, not {sizes}")
    return extent


def _parameters(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount]
