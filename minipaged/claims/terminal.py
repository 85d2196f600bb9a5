"""Claims in a terminal: a table each, and at the end all of them at a glance."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .claim import Claim, Verdict
from .report import LEGEND, QUICK, Reproduction, notes_of, rows_of
from .verdicts import MARKS, counts_of, reached

STYLES: dict[Verdict, str] = {
    "agrees": "green",
    "near": "yellow",
    "differs": "bold red",
    "holds": "green",
    "fails": "bold red",
    "fitted": "dim",
    "measured": "dim",
    "unjudged": "dim",
}


def banner() -> RenderableType:
    """What to know of ``--quick`` before any number of it is read."""
    return Group(Text(f"--quick: {QUICK}", "yellow"), Text())


def table_of(claim: Claim) -> RenderableType:
    """One claim."""
    table = Table(title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("", "said", "agrees if"):
        table.add_column(name)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row, (*cells, verdict) in zip(claim.rows, rows_of(claim)):
        table.add_row(*map(Text, cells), Text(verdict, STYLES[row.verdict]))
    head = Text.assemble((claim.title, "bold"), f"\n{claim.said}  ", (claim.source, "dim"))
    notes = [Padding(Text(note.replace("`", ""), "dim"), (0, 0, 0, 2)) for note in notes_of(claim)]
    return Group(head, table, *notes, Text())


def closing(found: Reproduction) -> RenderableType:
    """How many numbers of which claim agree, and which do not."""
    verdicts = reached(found.claims)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for verdict in verdicts:
        table.add_column(Text(MARKS[verdict], STYLES[verdict]), justify="right")
    for claim in found.claims:
        table.add_row(Text(claim.title), *counts_of(claim, verdicts))
    different = [Text(f"{MARKS['differs'][0]} {text}", "red") for text in found.differing()]
    legend = [Text(LEGEND, "dim")] if found.has_wall_times else []
    return Group(table, Text(), *different, Text(found.summary()), *legend)
