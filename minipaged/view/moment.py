"""One step of a run as it is told: the picture, what happened, and the texts; runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
            happened = changes(before, frame) if before else ()
            yield Moment(f"step {number}", frame, tuple(happened), _tables(frame, {}))
        elif hasattr(frame, "snapshot") and hasattr(frame, "session"):
            said = [Change("ran", line) for line in frame.session]
            told = (*said, *frame.changes, Change("why", frame.why))
            yield Moment(frame.title, frame.snapshot, told, _tables(frame.snapshot, frame.texts))
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
