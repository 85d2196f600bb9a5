"""Names and texts of an engine's sequences, for people; knows no pool and no scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, product
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from minipaged.view.moment import Piece

if TYPE_CHECKING:
    from minipaged.engine.sequence import Request, Sequence

MOST_NAMED = 8


class Names:
    """A letter for every sequence, kept for as long as it lives; a dropped beam's is free again.

    Letters go round, so that nobody is called like one who left a moment ago.
    """

    def __init__(self):
        self._names: dict[Sequence, str] = {}
        self._fresh = _letters()

    def of(self, sequence: Sequence) -> str:
        """Its name, given now if it has none."""
        if sequence not in self._names:
            taken = set(self._names.values())
            self._names[sequence] = next(name for name in self._fresh if name not in taken)
        return self._names[sequence]

    def knows(self, sequence: Sequence) -> bool:
        """True if it has a name already."""
        return sequence in self._names

    def hand_on(self, parent: Sequence, child: Sequence) -> str:
        """The first beam that continues another is called as it was."""
        name = self._names[child] = self._names.pop(parent)
        return name

    def call(self, sequence: Sequence, name: str) -> None:
        """Give it a name of the caller's choice."""
        self._names[sequence] = name

    def beams_of(self, request: Request) -> list[Sequence]:
        """Those of its sequences that have a name and are no longer among its sequences."""
        gone = [s for s in self._names if s.request is request and s not in request.sequences]
        return sorted(gone, key=lambda beam: beam.index)

    def forget(self, sequence: Sequence) -> str:
        """It is gone: its name may be given again, later."""
        return self._names.pop(sequence)


def _letters() -> Iterator[str]:
    """A to Z for ever; between two rounds AA, AB ... so that more than 26 find a name too."""
    for length in count(2):
        yield from ascii_uppercase
        yield from map("".join, product(ascii_uppercase, repeat=length) if length > 2 else ())


def pieces(
    sequence: Sequence, tokenizer: Any, *, on_device: bool, last: int | None = None
) -> tuple[Piece, ...]:
    """Its text cut at the borders of its blocks; what has no slot stands at the end.

    Args:
        sequence: whose.
        tokenizer: what made its token ids.
        on_device: its table is of the pool that is drawn.
        last: only so many of its newest tokens, in one piece.
    """
    num_all, size = len(sequence.token_ids), sequence.table.block_size
    written = sequence.table.num_tokens if on_device and last is None else 0
    spans = [
        (block_id, start, min(start + size, written))
        for block_id, start in zip(sequence.table.block_ids, range(0, written, size))
    ]
    if written < num_all:
        spans.append((-1, num_all - last if last else written, num_all))
    border, told = sequence.num_prompt, []
    for block_id, start, stop in spans:
        middle = min(max(border, start), stop)
        given = _text(sequence.token_ids, start, middle, tokenizer)
        generated = _text(sequence.token_ids, middle, stop, tokenizer)
        told.append(Piece(block_id if block_id >= 0 else None, given, generated))
    return tuple(told)


def _text(token_ids: list[int], start: int, stop: int, tokenizer: Any) -> str:
    """What tokens ``start`` to ``stop`` add to the text; half a character comes with its end."""
    if start == stop:
        return ""
    before, after = (
        tokenizer.decode(token_ids[:end], skip_special_tokens=False) for end in (start, stop)
    )
    return after.removesuffix("\ufffd")[len(before.removesuffix("\ufffd")) :]


def words(names: Iterable[str]) -> str:
    """``A, B and C``; of many the first ones, and how many more.

    Examples:
        >>> words(["A"]), words("ABC"), words("ABCDEFGHIJ")
        ('A', 'A, B and C', 'A, B, C, D, E, F, G and 3 more')
    """
    *most, last = list(names) or ["nobody"]
    if len(most) >= MOST_NAMED:
        most, last = most[: MOST_NAMED - 1], f"{len(most) + 2 - MOST_NAMED} more"
    return f"{', '.join(most)} and {last}" if most else last
