"""Claims in a terminal: a table each, and at the end all of them at a glance."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .claim import Claim
from .report import LEGEND, MARKS, Reproduction, cells_of, counts_of, notes_of

STYLES = {"agrees": "green", "differs": "bold red", "measured": "dim"}


def table_of(claim: Claim) -> RenderableType:
    """One claim."""
    table = Table(title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, justify in (("", "left"), ("said", "left"), ("agrees if", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in claim.rows:
        verdict = Text(MARKS[row.verdict], STYLES[row.verdict])
        table.add_row(*(Text(cell) for cell in cells_of(row)), verdict)
    head = Text.assemble((claim.title, "bold"), f"\n{claim.said}  ", (claim.source, "dim"))
    notes = [Text(f"  {text}", "dim") for text in (*notes_of(claim.rows), *claim.notes)]
    return Group(head, table, *notes, Text())


def closing(found: Reproduction) -> RenderableType:
    """How many numbers of which claim agree, and which do not."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name, mark in MARKS.items():
        table.add_column(Text(mark, STYLES[name]), justify="right")
    for claim in found.claims:
        table.add_row(Text(claim.title), *counts_of(claim))
    different = [Text(f"{MARKS['differs'][0]} {text}", "red") for text in found.differing()]
    legend = [Text(LEGEND, "dim")] if found.has_wall_times else []
    return Group(table, Text(), *different, Text(found.summary()), *legend)
