"""For pages about kernels: the package's text with one edit, and who asked for which byte."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

from minipaged.view import Drawing, heat
from minipaged.view.figure import Lines

from ._kernels import simulator, told

Requests = list[list[tuple[int, int]]]  # of (thread's index in its warp, byte), a list a request


def edited(kernel: FunctionType, old: str, new: str) -> FunctionType:
    """A copy of a kernel in whose text ``old`` is replaced; its file and line numbers stay.

    Raises:
        LookupError: ``old`` does not occur exactly once.
    """
    lines, first = inspect.getsourcelines(kernel)
    text = "".join(lines)
    if text.count(old) != 1:
        raise LookupError(f"{old!r} occurs {text.count(old)} times in {kernel.__name__}")
    text = "\n" * (first - 1) + text.replace(old, new)
    file = f"<edited>/{Path(kernel.__code__.co_filename).name}"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = dict(kernel.__globals__)
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace[kernel.__name__]


class Instead:
    """A launcher that runs ``kernel`` in place of the package's, on the launcher it is given.

    What the simulator says goes on with a new line for each of its parts.
    """

    def __init__(self, launcher: Any, kernel: FunctionType) -> None:
        self.launcher, self.kernel, self.card = launcher, kernel, launcher.card

    def __call__(self, specialisation: Any, *arguments: Any, **more: Any) -> None:
        try:
            self.launcher(replace(specialisation, kernel=self.kernel), *arguments, **more)
        except simulator.SimulationError as error:
            raise type(error)("\n  ".join(told(error))) from None


def requests(
    kernel: Callable[..., None],
    num_threads: int,
    arguments: Sequence[Any],
    name: str,
) -> Requests:
    """What the warps of one CTA asked of the argument ``name``, request by request."""
    seen: Requests = []

    class Watching(simulator.Simulator):
        def _run(self, kernel: Any, launch: Any, storages: Any) -> None:
            count, watched = launch.trace.collect, launch.trace.buffers[name]

            def collect(warp: Any) -> None:
                for (_, _, buffer, _), of_warp in warp.items():
                    if buffer is watched:
                        seen.extend([(lane, byte) for lane, byte, _ in one] for one in of_warp)
                count(warp)

            launch.trace.collect = collect
            super()._run(kernel, launch, storages)

    Watching().launch(kernel, 1, num_threads, arguments)
    return seen


def who_reads(
    kernel: Callable[..., None], num_threads: int, arguments: Sequence[Any], name: str
) -> Drawing:
    """A row for each thread of one CTA, a column for each number of a float32 argument.

    Where a thread read a number stands the request of the warp that asked for it, from 1.
    """
    asked = requests(kernel, num_threads, arguments, name)
    num_columns = 1 + max(byte for request in asked for _, byte in request) // 4
    matrix: list[list[float | None]] = [[None] * num_columns for _ in range(num_threads)]
    for n, request in enumerate(asked, start=1):
        for thread, byte in request:
            matrix[thread][byte // 4] = n
    drawn = heat(matrix, f"number of {name}", "thread", caption=kernel.__name__, every=8)
    lines = [f"{kernel.__name__}: thread down, number of {name} across, a bar begins a sector"]
    for thread, row in enumerate(matrix):
        cells = "".join("." if n is None else f"{n:g}" for n in row)
        lines.append(f"{thread} |" + "|".join(cells[i : i + 8] for i in range(0, num_columns, 8)))
    return replace(drawn, text=Lines(lambda options: lines))
