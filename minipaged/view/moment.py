"""One step of a run as it is told: the picture, what happened, and the texts; runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from minipaged.core import Snapshot

from .changes import Change, changes

_MENTIONS = re.compile(r"\bblocks? (?P<list>\d+(?:, \d+)*)|\bto (?P<copy>\d+),|\b(?P<own>\d+) as #")


class Piece(NamedTuple):
    """What stands in one block: the end of the given text, and the generated text behind it."""

    block_id: int | None  # None: it has no slot yet
    given: str
    generated: str


@dataclass(frozen=True, slots=True)
class Line:
    """One sequence's text, block by block, and what the sequence is doing."""

    name: str
    state: str
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The pieces, with a bar between blocks."""
        return "|".join(piece.given + piece.generated for piece in self.pieces)


@dataclass(frozen=True)
class Told(Change):
    """A change, and all the sequences that it concerns, though the text may say "and 2 more"."""

    names: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Moment:
    """The pool after a step, what the step changed and why, and how far the texts are."""

    title: str
    snapshot: Snapshot
    changes: tuple[Change, ...] = ()
    lines: tuple[Line, ...] = ()


def moments(frames: Iterable[Any]) -> Iterator[Moment]:
    """Snapshots, frames of the story, or moments already: all as moments.

    Raises:
        TypeError: something else is among them.

    Examples:
        >>> from minipaged.core import BlockPool, BlockTable
        >>> pool = BlockPool(num_blocks=3)
        >>> table = BlockTable(pool, block_size=4)
        >>> shots = [Snapshot.take(pool, {"A": table}, block_size=4)]
        >>> table.reserve(6)
        []
        >>> shots.append(Snapshot.take(pool, {"A": table}, block_size=4))
        >>> [(moment.title, [c.kind for c in moment.changes]) for moment in moments(shots)]
        [('step 0', []), ('step 1', ['allocated', 'promised'])]
    """
    before: Snapshot | None = None
    for number, frame in enumerate(frames):
        if isinstance(frame, Moment):
            yield frame
        elif isinstance(frame, Snapshot):
            named = [told(c, before, frame) for c in changes(before, frame)] if before else []
            yield Moment(f"step {number}", frame, tuple(named), _tables(frame, {}))
        elif hasattr(frame, "snapshot") and hasattr(frame, "session"):
            said = [Change("ran", line) for line in frame.session]
            shots = [before, frame.snapshot] if before else [frame.snapshot]
            named = [told(change, *shots) for change in frame.changes]
            everything = (*said, *named, Change("why", frame.why))
            lines = _tables(frame.snapshot, frame.texts)
            yield Moment(frame.title, frame.snapshot, everything, lines)
        else:
            raise TypeError(f"{type(frame).__name__} is no picture of a pool: give a Snapshot")
        before = frame if isinstance(frame, Snapshot) else frame.snapshot


def _tables(snapshot: Snapshot, texts: Mapping[str, str]) -> tuple[Line, ...]:
    """The block tables as lines; with the words of each block, where they are known."""
    return tuple(
        Line(
            table.name,
            f"{table.num_tokens} tokens",
            tuple(
                Piece(block_id if block_id >= 0 else None, words, "")
                for block_id, words in zip_longest(
                    table.block_ids, texts.get(table.name, "").split(" | "), fillvalue=""
                )
                if isinstance(block_id, int)
            ),
        )
        for table in snapshot.tables
    )


def told(change: Change, *shots: Snapshot) -> Told:
    """A change of some blocks concerns whoever holds them before or after it.

    Args:
        change: what ``changes`` saw, or a ``Told``, which is kept.
        shots: the pictures it lies between.

    Examples:
        >>> from minipaged.core import BlockPool, BlockTable
        >>> pool = BlockPool(num_blocks=3)
        >>> table = BlockTable(pool, block_size=4)
        >>> table.reserve(6); table.commit([1] * 6)
        []
        >>> shot = Snapshot.take(pool, {"A": table, "B": table.fork()}, block_size=4)
        >>> told(Change("shared", "block 0 by A and B", (0,)), shot).names
        ('A', 'B')
    """
    if isinstance(change, Told):
        return change
    if change.kind == "truncated":
        names = (change.text.partition(" from ")[0],)
    else:
        blocks = set(change.block_ids)
        tables = (table for shot in shots for table in shot.tables)
        names = tuple(dict.fromkeys(t.name for t in tables if blocks & set(t.block_ids)))
    return Told(change.kind, change.text, change.block_ids, names)


def num_used(run: Sequence[Moment]) -> int:
    """Blocks up to the last one that a run touches; those behind it are never used.

    A pool hands out its lowest blank blocks first, so what was ever used is at its beginning.
    """
    touched = {b for moment in run for change in moment.changes for b in change.block_ids}
    for shot in (moment.snapshot for moment in run):
        known = zip(shot.ref_counts, shot.prefixes)
        touched.update(b for b, (held, prefix) in enumerate(known) if held or prefix)
    return max(touched, default=0) + 1


def mentioned(text: str) -> list[int]:
    """The blocks that a change names.

    Examples:
        >>> mentioned("blocks 4, 7 for A"), mentioned("block 2 to 3, for A")
        ([4, 7], [2, 3])
        >>> mentioned("positions 4-9 of A get slots in blocks 1, 2"), mentioned("blocks 1 as #ab12")
        ([1, 2], [1])
    """
    found: dict[int, None] = {}
    for match in _MENTIONS.finditer(text):
        listed = match["list"] or match["copy"] or match["own"]
        found.update(dict.fromkeys(map(int, listed.split(", "))))
    return list(found)
