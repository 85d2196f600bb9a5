"""Claims as they are written: a page of Markdown, a JSON document, and the cells of tables.

Measures nothing. A wall time is marked in every form, because it is the only kind of number here
that is another one on another machine.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from .captions import CAPTIONS
from .claim import Claim, Row, digits
from .roster import CLAIMS
from .verdicts import MARKS, counts_of, mark_of, reached, summary

WALL = "~"
LEGEND = f"{WALL} a wall time: another one on every machine, and in every run"
QUICK = (
    "A look, not a measurement. Of few requests the first, when all are young, and the last, when "
    "the queue is empty, weigh too much: what depends on how many there are is biased, not just "
    f'scattered, and gets no verdict but "{MARKS["unjudged"]}".'
)


@dataclass(frozen=True)
class Reproduction:
    """All that one run measured, and with what."""

    claims: tuple[Claim, ...]
    seed: int
    quick: bool
    trace: str = ""  # source of the user's own

    @property
    def has_wall_times(self) -> bool:
        """Whether some number is of this machine only."""
        return any(row.wall for claim in self.claims for row in claim.rows)

    def differing(self) -> list[str]:
        """Every number that is not what is said or foretold of it."""
        return [
            f"{claim.key}: {row.what}: said {row.said}, measured {shown(row.measured, row.unit)}"
            for claim in self.claims
            for row in claim.rows
            if row.verdict in ("differs", "fails")
        ]

    def summary(self) -> str:
        """How many numbers there are, and what became of each kind of comparison."""
        return summary(self.claims)


def shown(value: float, unit: str = "") -> str:
    """A number and its unit.

    Examples:
        >>> shown(96.52, "%"), shown(1856)
        ('96.5 %', '1,856')
    """
    return f"{digits(value)} {unit}".rstrip()


def overview(found: Reproduction) -> list[str]:
    """All claims at a glance, as lines of Markdown."""
    verdicts = reached(found.claims)
    rows = [["claim", *(MARKS[v] for v in verdicts)], ["---", *["---:"] * len(verdicts)]]
    rows += [[claim.title, *counts_of(claim, verdicts)] for claim in found.claims]
    return [f"| {' | '.join(row)} |" for row in rows]


def to_markdown(found: Reproduction, figures: Sequence[str] = ()) -> str:
    """Everything as a page; ``figures`` are the names of files beside it, ``CLAIM.svg``."""
    lines = ["# Claims, and what was measured", "", found.summary(), "", f"{_made_with(found)}", ""]
    if found.quick:
        lines += [f"**{QUICK}**", ""]
    if found.has_wall_times:
        lines += [f"`{WALL}` marks {LEGEND[2:]}.", ""]
    lines += [*overview(found), ""]
    for claim in found.claims:
        lines += [claim_to_markdown(claim), ""]
        if (name := f"{claim.key}.svg") in figures:
            lines += [_picture(name, CAPTIONS[claim.key].alt), ""]
    return "\n".join(lines)


def claim_to_markdown(claim: Claim) -> str:
    """One claim: what is said, a table, notes."""
    lines = [f"## {claim.title}", "", f"{claim.said} *({claim.source})*", ""]
    lines += ["| | said | agrees if | measured | |", "|---|---|---|---:|---|"]
    for cells in rows_of(claim):
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    notes = notes_of(claim)
    return "\n".join([*lines, *([""] if notes else []), *(f"- {note}" for note in notes)])


def to_json(found: Reproduction) -> str:
    """Everything, for a program; equal for equal seeds but for rows with ``"wall": true``."""
    document = {
        "minipaged": version("minipaged"),
        "seed": found.seed,
        "quick": found.quick,
        "trace": found.trace,
        "claims": [_plain(claim) for claim in found.claims],
        "wall times of": {"python": platform.python_version(), "machine": platform.machine()},
    }
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _plain(claim: Claim) -> dict[str, Any]:
    names = ("key", "title", "said", "source", "verdict")
    plain = {name: getattr(claim, name) for name in names}
    plain["rows"] = [_plain_row(row) for row in claim.rows]
    notes = {"notes": list(claim.notes), "left_out": claim.left_out}
    return plain | notes | {"series": claim.series}


def _plain_row(row: Row) -> dict[str, Any]:
    names = ("what", "said", "unit", "verdict", "basis", "wall", "note")
    plain = {name: getattr(row, name) for name in names}
    plain["measured"] = row.measured if math.isfinite(row.measured) else None
    plain["agrees_if"] = str(row.tolerance) if row.tolerance else None
    return plain


def rows_of(claim: Claim) -> list[list[str]]:
    """Per row: what, what is said, when that agrees, what was measured, and the verdict.

    The number behind a verdict is that of a note.
    """
    numbers = {note: f" [{i}]" for i, note in enumerate(_row_notes(claim), 1)}
    return [
        [
            row.what,
            row.said,
            str(row.tolerance or ""),
            shown(row.measured, row.unit) + (f" {WALL}" if row.wall else ""),
            mark_of(row) + numbers.get(row.note, ""),
        ]
        for row in claim.rows
    ]


def notes_of(claim: Claim) -> list[str]:
    """The notes that rows refer to, by number, and those on the whole claim."""
    notes = [f"[{i}] {note}" for i, note in enumerate(_row_notes(claim), 1)]
    left_out = [f"Left out by `--quick`: {claim.left_out}."] if claim.left_out else []
    return [*notes, *left_out, *claim.notes]


def _row_notes(claim: Claim) -> list[str]:
    """Each note once, in the order of the rows."""
    return list(dict.fromkeys(row.note for row in claim.rows if row.note))


def _made_with(found: Reproduction) -> str:
    keys = [claim.key for claim in found.claims]
    words = ["minipaged reproduce", *(keys if keys != list(CLAIMS) else ()), f"--seed {found.seed}"]
    own = f" Own trace: {found.trace}." if found.trace else ""
    return f"Made by `{' '.join(words)}{' --quick' if found.quick else ''}`.{own}"


def _picture(name: str, alt: str) -> str:
    """The figure that fits the reader's page, light or dark."""
    dark = name.replace(".svg", "-dark.svg")
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{alt}" src="{name}"></picture>'
    )
