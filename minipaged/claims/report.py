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

from .claim import Claim, Row, Verdict
from .roster import CLAIMS

MARKS: dict[Verdict, str] = {"agrees": "✓ agrees", "differs": "✗ differs", "measured": "· measured"}
WALL = "~"
LEGEND = f"{WALL} a wall time: another one on every machine, and in every run"


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
        """Every number that is not what is said of it."""
        return [
            f"{claim.key}: {row.what}: said {row.said}, measured {shown(row.measured, row.unit)}"
            for claim in self.claims
            for row in claim.rows
            if row.verdict == "differs"
        ]

    def summary(self) -> str:
        """How many numbers agree, differ, and have nothing to be compared with."""
        verdicts = [row.verdict for claim in self.claims for row in claim.rows]
        counts = ", ".join(f"{verdicts.count(name)} {word}" for name, word in _WORDS.items())
        return f"{len(verdicts)} numbers of {len(self.claims)} claims: {counts}."


_WORDS = {
    "agrees": "agree with what is said",
    "differs": "differ from it",
    "measured": "have nothing to be compared with",
}


def shown(value: float, unit: str = "") -> str:
    """A number as it is read: three digits, or all of a count.

    Examples:
        >>> shown(96.52, "%"), shown(0.0123, "ms"), shown(12031), shown(0), shown(1234.5)
        ('96.5 %', '0.0123 ms', '12,031', '0', '1,234')
    """
    if not math.isfinite(value):
        text = "-"
    elif value == int(value) or abs(value) >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def counts_of(claim: Claim) -> list[str]:
    """How many of its numbers have which verdict, in the order of ``MARKS``; none is empty."""
    verdicts = [row.verdict for row in claim.rows]
    return [str(verdicts.count(name) or "") for name in MARKS]


def overview(found: Reproduction) -> list[str]:
    """All claims at a glance, as lines of Markdown."""
    head = " | ".join(["claim", *MARKS.values()])
    lines = [f"| {head} |", "|---|---:|---:|---:|"]
    return lines + [f"| {c.title} | " + " | ".join(counts_of(c)) + " |" for c in found.claims]


def to_markdown(found: Reproduction, figures: Sequence[str] = ()) -> str:
    """Everything as a page; ``figures`` are the names of files beside it, ``CLAIM.svg``."""
    lines = ["# Claims, and what was measured", "", found.summary(), "", f"{_made_with(found)}", ""]
    if found.has_wall_times:
        lines += [f"`{WALL}` marks {LEGEND[2:]}.", ""]
    lines += [*overview(found), ""]
    for claim in found.claims:
        lines += [claim_to_markdown(claim), ""]
        if (name := f"{claim.key}.svg") in figures:
            lines += [_picture(name, claim.title), ""]
    return "\n".join(lines)


def claim_to_markdown(claim: Claim) -> str:
    """One claim: what is said, a table, notes."""
    lines = [f"## {claim.title}", "", f"{claim.said} *({claim.source})*", ""]
    lines += ["| | said | agrees if | measured | |", "|---|---|---|---:|---|"]
    for row in claim.rows:
        cells = [*cells_of(row), MARKS[row.verdict]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    notes = [*notes_of(claim.rows), *claim.notes]
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
    return plain | {"notes": list(claim.notes), "series": claim.series}


def _plain_row(row: Row) -> dict[str, Any]:
    names = ("what", "said", "unit", "verdict", "wall", "note")
    plain = {name: getattr(row, name) for name in names}
    plain["measured"] = row.measured if math.isfinite(row.measured) else None
    plain["agrees_if"] = str(row.tolerance) if row.tolerance else None
    return plain


def cells_of(row: Row) -> list[str]:
    """What, what is said, when that agrees, and what was measured."""
    measured = shown(row.measured, row.unit) + (f" {WALL}" if row.wall else "")
    return [row.what, row.said, str(row.tolerance or ""), measured]


def notes_of(rows: Sequence[Row]) -> list[str]:
    """What is noted at rows; each note once, with the rows it is about."""
    about: dict[str, list[str]] = {}
    for row in rows:
        if row.note:
            about.setdefault(row.note, []).append(row.what)
    return [f"{_named(names)}: {note}" for note, names in about.items()]


def _named(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - 1
    return names[0] + (f" and {more} more" if more else "")


def _made_with(found: Reproduction) -> str:
    keys = [claim.key for claim in found.claims]
    words = ["minipaged reproduce", *(keys if keys != list(CLAIMS) else ()), f"--seed {found.seed}"]
    sizes = " (fewer requests: a look, not a measurement)" if found.quick else ""
    own = f" Own trace: {found.trace}." if found.trace else ""
    return f"Made by `{' '.join(words)}{' --quick' if found.quick else ''}`{sizes}.{own}"


def _picture(name: str, title: str) -> str:
    """The figure that fits the reader's page, light or dark."""
    dark = name.replace(".svg", "-dark.svg")
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{title}" src="{name}"></picture>'
    )
