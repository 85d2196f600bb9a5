"""A large pool with one letter per block, folded and sampled until it fits; knows no tables.

       0  AAAAb··· BBBBBc··
    … 4,032 blank blocks

Upper case is a full block, lower case a partly written one, a digit is the number of holders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from rich.text import Text

from .blocks import BlockView
from .marks import CROWD, Marks, colour

_GROUP = 8  # marks between two spaces
_WORDS = {"blank": "blank", "cached": "cached"}


class Strip:
    """Rows of marks that fit ``width`` and ``max_rows``; a mark stands for one or more blocks."""

    def __init__(
        self,
        blocks: list[BlockView],
        block_size: int,
        letters: Mapping[str, str],
        marks: Marks,
        width: int,
        max_rows: int,
    ):
        self.blocks, self.block_size, self.letters, self.marks = blocks, block_size, letters, marks
        self.id_len = len(str(len(blocks) - 1))
        room = width - self.id_len - 2
        self.per_row = max((n for n in (64, 32, 16, 8) if n + n // _GROUP - 1 <= room), default=4)
        self.blocks_per_mark = 1
        while len(self._rows()) > max_rows and self.blocks_per_mark < len(blocks):
            self.blocks_per_mark *= 2

    def lines(self) -> list[Text]:
        """The picture."""
        return [self._fold(row) if isinstance(row, str) else self._row(row) for row in self._rows()]

    def _rows(self) -> list[list[BlockView] | str]:
        """Rows of blocks; two or more uniform ones in a row become one text."""
        step = self.per_row * self.blocks_per_mark
        rows = [self.blocks[i : i + step] for i in range(0, len(self.blocks), step)]
        found: list[list[BlockView] | str] = []
        for state, group in groupby(rows, key=_uniform):
            same = list(group)
            if state and len(same) > 1:
                found.append(f"{sum(map(len, same)):,} {_WORDS[state]} blocks")
            else:
                found += same
        return found

    def _fold(self, text: str) -> Text:
        return Text(f"{self.marks.more:>{self.id_len}}  {text}", style="dim")

    def _row(self, row: list[BlockView]) -> Text:
        line = Text()
        line.append(f"{row[0].block_id:>{self.id_len}}  ", style="dim")
        for i, block in enumerate(self._busiest(row)):
            if i and i % _GROUP == 0:
                line.append(" ")
            line.append(*self._mark(block))
        return line

    def _busiest(self, row: list[BlockView]) -> Iterator[BlockView]:
        for i in range(0, len(row), self.blocks_per_mark):
            yield max(row[i : i + self.blocks_per_mark], key=_business)

    def _mark(self, block: BlockView) -> tuple[str, str]:
        if block.state == "blank":
            return self.marks.empty, "dim"
        if block.state == "cached":
            return self.marks.cached, "dim"
        if block.state == "pinned":
            return "!", ""
        if block.is_shared:
            return (str(block.ref_count) if block.ref_count < 10 else "+"), "bold"
        letter = self.letters[block.owners[0]] if block.owners else CROWD
        is_full = block.num_written == self.block_size
        return (letter if is_full else letter.lower()), colour(letter)


def _uniform(row: list[BlockView]) -> str | None:
    """The state of a row of free blocks that are all alike."""
    states = {block.state for block in row}
    return states.pop() if len(states) == 1 and states <= {"blank", "cached"} else None


def _business(block: BlockView) -> tuple[bool, int]:
    return block.state == "pinned", 2 * block.ref_count + (block.state == "cached")
