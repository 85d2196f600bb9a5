"""All that the museum shows, whatever it is: kernels, parts of a cache, block managers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..managers import museum as managers
from . import parts, run
from .kernels import KERNELS, LEVEL
from .run import Row

KINDS = ("kernel", "writer", "copy", "merge", "quantizer", "replay", "manager")


@dataclass(frozen=True)
class Piece:
    """One wrong subject with its label.

    Attributes:
        name: Unique.
        kind: One of `KINDS`.
        fault_class: Its family.
        like: The public bug that was like it, or "".
        what: What it does wrong; "" if the name says it.
        judge: Puts it before the judge, until the first check sees it.
    """

    name: str
    kind: str
    fault_class: str
    like: str
    what: str
    judge: Callable[[], Row]


def collection(kinds: Sequence[str] = KINDS) -> Iterator[Piece]:
    """Every piece of these kinds, in the order of the museum."""
    for exhibit in (*KERNELS, *parts.PARTS):
        if exhibit.kind in kinds:
            yield Piece(
                exhibit.name,
                exhibit.kind,
                exhibit.fault_class,
                exhibit.like,
                exhibit.what,
                lambda exhibit=exhibit: _judged(exhibit),
            )
    if "manager" in kinds:
        for fault in managers.FAULTS:
            like = "" if fault.like == "ours" else fault.like
            judge = lambda fault=fault: _manager(fault)  # noqa: E731
            yield Piece(fault.name, "manager", fault.kind, like, "", judge)


def _judged(exhibit: parts.Exhibit) -> Row:
    if exhibit.kind == "kernel":
        return run.judged(exhibit, max(3, LEVEL.get(exhibit.name, 3)))
    return run.row(exhibit, parts.judge(exhibit))


def _manager(fault: managers.Fault) -> Row:
    row = managers.judge(fault)
    like = "" if row.like == "ours" else row.like
    check = row.by if row.killed else ""
    level = 3 if row.killed else None
    label = row.name, "manager", row.kind, like, ""
    return Row(*label, row.killed, check, level, row.calls, row.seconds, "")
