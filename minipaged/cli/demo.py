"""``minipaged demo``: the story of a block manager, told by itself; no model, no torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .console import to_stdout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from minipaged.view import Frame


def demo(
    step: Annotated[
        bool, typer.Option("--step", help="Wait for Enter after each picture.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="No colours.")] = False,
) -> None:
    """Watch blocks being shared, copied, cached, evicted."""
    from minipaged.view import frames

    console, story = to_stdout(plain), list(frames())
    for number, frame in enumerate(story, start=1):
        if step:
            console.clear()  # does nothing where there is no terminal
        console.print(*_show(frame, f"{number}/{len(story)}"), sep="\n")
        if step and number < len(story) and not _wait():
            break


def _show(frame: Frame, number: str) -> Iterator[RenderableType]:
    from rich.rule import Rule
    from rich.text import Text

    from minipaged.view import LedgerBar, PoolMap

    yield Rule(f"{number}  {frame.title}", align="left")
    for line in frame.session:
        yield Text(line, style="bold" if line.startswith(">>>") else "")
    yield Text(frame.why, style="italic")
    yield PoolMap(frame.snapshot, texts=frame.texts, legend=False)
    for change in frame.changes:
        yield Text.assemble("  ", (f"{change.kind:<10}", "bold"), change.text)
    yield LedgerBar(frame.ledger)
    yield ""


def _wait() -> bool:
    """True after Enter, False at the end of input."""
    print("-- Enter: next --", end="", file=sys.stderr, flush=True)
    return bool(sys.stdin.readline())
