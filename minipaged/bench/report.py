"""How a run is shown: a heading, tables of figures with their ratios, and everything as JSON.

Knows no benchmark. What may be said of a figure is decided in ``stats``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .machine import describe_machine, heading
from .stats import Figure, Ratio, ratios

DISTURBED, INTERRUPTED = 1, 130  # exit codes: not to be quoted; not all that was asked for
COLUMNS = ("median", "min - max", "of limit", "CPU", "ours / theirs")


@dataclass
class Report:
    """What one run found, in the order in which it is printed."""

    command: str
    settings: dict[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=describe_machine)
    interrupted: bool = False  # the figures are those of the rounds before

    @property
    def ratios(self) -> list[Ratio]:
        """Of ours to every peer's, refused ones included."""
        return ratios(self.figures)

    @property
    def disturbed(self) -> list[Figure]:
        """Figures of rounds that got too little of the processor time they asked for."""
        return [figure for figure in self.figures if figure.disturbed]

    @property
    def exit_code(self) -> int:
        """Not 0 if any figure must not be quoted, or some are missing."""
        if self.interrupted:
            return INTERRUPTED
        return DISTURBED if self.disturbed else 0

    def print(self, out: Console, extra: Iterable[Table] = ()) -> None:
        """Heading, tables, notes, and a last line if it was all in vain."""
        for line in heading(self.machine):
            out.print(line)
        if self.settings:
            out.print(", ".join(f"{name} {value}" for name, value in self.settings.items()))
        if self.figures:
            out.print(_table(self.figures, self.ratios))
        for table in extra:
            out.print(table)
        for note in self.notes:
            out.print(f"- {note}")
        if self.disturbed:
            worst = min(figure.share or 0 for figure in self.disturbed)
            out.print(
                f"{len(self.disturbed)} of {len(self.figures)} figures are DISTURBED: a round got "
                f"less than 0.9 of the CPU time it asked for, once {worst:.2f}. Do not quote them.",
                style="bold",
            )
        if self.interrupted:
            out.print("INTERRUPTED: these are the rounds that were finished.", style="bold")

    def write(self, path: Path | None) -> None:
        """Everything that was printed, and every sample, as JSON."""
        if path is None:
            return
        content = {
            "command": self.command,
            "machine": self.machine,
            "settings": self.settings,
            "figures": [figure.row() for figure in self.figures],
            "ratios": [ratio.row() for ratio in self.ratios],
            "notes": self.notes,
            "disturbed": bool(self.disturbed),
            "interrupted": self.interrupted,
        }
        text = json.dumps(content, indent=1, ensure_ascii=False, default=str)
        path.write_text(text + "\n", encoding="utf-8")


def _table(figures: list[Figure], found: list[Ratio]) -> Table:
    """One row per figure; those of a test stand together, and its name stands once."""
    table = Table("test", "engine", *COLUMNS, show_edge=False)
    said = {(r.test, r.peer, r.unit): r.text for r in found}
    for _, group in groupby(figures, key=lambda f: (f.test, f.unit)):
        for i, figure in enumerate(group):
            ratio = said.get((figure.test, figure.engine, figure.unit), "")
            words = ["" if i else figure.test, figure.note]
            table.add_row("\n".join(filter(None, words)), figure.engine, *_cells(figure), ratio)
    return table


def _cells(figure: Figure) -> tuple[str, ...]:
    low, high = min(figure.values), max(figure.values)
    spread = f"{number(low)} - {number(high)}" if len(figure.values) > 1 else "once"
    limit = "" if figure.of_limit is None else f"{figure.of_limit:.0%}"
    share = "" if figure.share is None else f"{figure.share:.2f}"
    share += "!" if figure.disturbed else ""
    return f"{number(figure.median)} {figure.unit}", spread, limit, share


def number(value: float) -> str:
    """Three digits that matter, and thousands apart."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
