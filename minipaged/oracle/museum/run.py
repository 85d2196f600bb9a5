"""Every kernel of the museum before the court: who dies, by which check, how soon."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..check import check_kernel
from ..report import Report
from .exhibit import Exhibit
from .kernels import KERNELS


@dataclass(frozen=True)
class Row:
    """What became of one exhibit.

    Attributes:
        name: Of the exhibit, as the next four.
        kind: Kernel, writer, ...
        fault_class: Its family.
        like: The public bug.
        what: What it does wrong.
        killed: Whether some check saw it.
        check: The first check that did, or "".
        level: The level of that check, or None.
        calls: Calls until then, or all of them.
        seconds: Time until then, or all of it.
        message: What that check said.
    """

    name: str
    kind: str
    fault_class: str
    like: str
    what: str
    killed: bool
    check: str
    level: int | None
    calls: int
    seconds: float
    message: str


def row(exhibit: Exhibit, report: Report) -> Row:
    """The verdict on an exhibit as a row."""
    label = exhibit.name, exhibit.kind, exhibit.fault_class, exhibit.like, exhibit.what
    if not report.failures:
        return Row(*label, False, "", None, report.calls, report.seconds, "")
    first = report.failures[0]
    calls, seconds = first.calls or report.calls, first.seconds or report.seconds
    return Row(*label, True, first.check, first.level, calls, seconds, first.message)


def run_museum(
    level: int = 3,
    kinds: Sequence[str] = ("kernel",),
    exhibits: Iterable[Exhibit] = KERNELS,
    **options: Any,
) -> list[Row]:
    """A row for every exhibit of these kinds, in the order of the museum.

    Args:
        level: As for `check_kernel`.
        kinds: Kinds of exhibits.
        exhibits: The exhibits to choose from.
        options: Further arguments of `check_kernel`.
    """
    return [judged(e, level, **options) for e in exhibits if e.kind in kinds]


def judged(exhibit: Exhibit, level: int = 3, **options: Any) -> Row:
    """One kernel of the museum, judged until the first check sees it."""
    how = {"max_failures": 1, "explain": False, "name": exhibit.name, **options}
    return row(exhibit, check_kernel(exhibit.make(), level=level, **how))


def museum_rows_json(rows: Iterable[Row]) -> str:
    """The rows as JSON, a list of objects."""
    return json.dumps([asdict(r) for r in rows], indent=1, ensure_ascii=False)
