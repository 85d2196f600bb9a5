"""One sequence's block table: arrows from logical to physical blocks; knows numbers only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .figure import Drawing, Lines, headed, new_sheet
from .svg import PALETTE, WIDTH, Box, Sheet
from .svg_text import text_width

MOST_BLOCKS = 24  # of a larger pool, only the blocks of the table are drawn
_LEFT, _GAP = 120.0, 60.0  # width of a logical block, and of the room for the arrows
_HIGH, _STEP = 34, 42
_WRITTEN, _EMPTY = Box(PALETTE[0]), Box(dashed=True)


def table_arrows(
    block_ids: Sequence[int],
    block_size: int,
    num_tokens: int,
    num_blocks: int,
    caption: str = "",
) -> Drawing:
    """Logical blocks on the left, the pool with its slot numbers on the right, arrows between them.

    Slot = block_id * block_size + offset. Filled slots hold a token, dashed ones are empty.

    Args:
        block_ids: the block table, in logical order; -1 where a window has passed.
        block_size: slots of a block.
        num_tokens: tokens of the sequence.
        num_blocks: blocks of the pool.
        caption: a line above.

    Raises:
        ValueError: a block is not in the pool or is there twice, or the tokens need more blocks.

    Examples:
        >>> print(table_arrows([2, 0], block_size=4, num_tokens=6, num_blocks=3))
        logical block 0, positions 0-3 -> block 2, slots 8-11: 4 written
        logical block 1, positions 4-7 -> block 0, slots 0-3: 2 written
        not in this table: block 1
    """
    table = _Table(block_ids, block_size, num_tokens, num_blocks)
    sheet = new_sheet(caption)
    right = _LEFT + _GAP
    y = sheet.y + 16
    sheet.text(0, y, "logical blocks", size=11, dim=True)
    sheet.text(right, y, "physical blocks, slots", size=11, dim=True)
    top, num_rows = y + 8, max(len(table.block_ids), len(table.drawn))
    for i in range(len(table.block_ids)):
        _logical(sheet, table, i, top + _place(i, len(table.block_ids), num_rows))
    rows = {b: top + _place(i, len(table.drawn), num_rows) for i, b in enumerate(table.drawn)}
    for block_id, y in rows.items():
        _physical(sheet, table, block_id, right, y)
    for i, block_id in enumerate(table.block_ids):
        if block_id >= 0:
            y = top + _place(i, len(table.block_ids), num_rows) + _HIGH / 2
            sheet.arrow(_LEFT + 1, y, right - 2, rows[block_id] + _HIGH / 2)
    if num_omitted := num_blocks - len(table.drawn):
        sheet.paragraph(f"… {num_omitted:,} blocks that are not in this table", dim=True)
    sheet.legend([(_WRITTEN, "holds a token"), (_EMPTY, "empty slot of this sequence")])
    svg = sheet.render(caption or f"A block table of {len(block_ids)} blocks", table.told())
    terminal = Lines(lambda _: table.lines())
    return Drawing(svg, headed(caption, terminal))


class _Table:
    """A block table that makes sense."""

    def __init__(self, block_ids: Sequence[int], block_size: int, num_tokens: int, num_blocks: int):
        self.block_ids, self.block_size = list(block_ids), block_size
        self.num_tokens, self.num_blocks = num_tokens, num_blocks
        mapped = [b for b in block_ids if b != -1]
        if wrong := [b for b in mapped if not 0 <= b < num_blocks]:
            raise ValueError(f"blocks {wrong} are not in a pool of {num_blocks} blocks")
        if len(set(mapped)) < len(mapped):
            raise ValueError(f"a block occurs twice in {self.block_ids}")
        if not 0 <= num_tokens <= len(self.block_ids) * block_size:
            room = len(self.block_ids) * block_size
            raise ValueError(f"{num_tokens} tokens do not fit {len(self.block_ids)} blocks: {room}")
        self.drawn = sorted(mapped) if num_blocks > MOST_BLOCKS else list(range(num_blocks))
        self.index = {b: i for i, b in enumerate(self.block_ids) if b != -1}

    def num_written(self, index: int) -> int:
        """Slots of a logical block that hold a token."""
        return max(0, min(self.num_tokens - index * self.block_size, self.block_size))

    def positions(self, index: int) -> str:
        """Of a logical block."""
        return _span(index * self.block_size, self.block_size)

    def lines(self) -> Iterator[str]:
        """The terminal's form."""
        for i, block_id in enumerate(self.block_ids):
            head = f"logical block {i}, positions {self.positions(i)} -> "
            if block_id < 0:
                yield head + "-1, no block: a window has passed"
                continue
            slots = _span(block_id * self.block_size, self.block_size)
            yield f"{head}block {block_id}, slots {slots}: {self.num_written(i)} written"
        others = [str(b) for b in self.drawn if b not in self.index]
        if others:
            yield f"not in this table: block{'s' * (len(others) > 1)} {', '.join(others)}"
        if len(self.drawn) < self.num_blocks:
            yield f"{self.num_blocks - len(self.drawn):,} blocks are not in this table"

    def told(self) -> str:
        """The same in sentences."""
        return " ".join(f"{line}." for line in self.lines())


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _place(index: int, count: int, num_rows: int) -> float:
    """Both columns are as high as the longer one, and the shorter stands in its middle."""
    return (index + (num_rows - count) / 2) * _STEP


def _logical(sheet: Sheet, table: _Table, index: int, y: float) -> None:
    is_gone = table.block_ids[index] < 0
    sheet.rect(0, y, _LEFT, _HIGH, _EMPTY if is_gone else Box())
    sheet.text(6, y + 14, f"{index}", bold=True)
    target = "-1" if is_gone else f"→ {table.block_ids[index]}"
    sheet.text(_LEFT - 6, y + 14, target, bold=True, anchor="end")
    sheet.text(6, y + 28, f"positions {table.positions(index)}", size=10)


def _physical(sheet: Sheet, table: _Table, block_id: int, x: float, y: float) -> None:
    width, size = WIDTH - x, table.block_size
    index = table.index.get(block_id)
    sheet.rect(x, y, width, _HIGH, Box())
    sheet.text(x + 6, y + 21, str(block_id), bold=True, dim=index is None)
    left = x + 8 + max(text_width(str(table.num_blocks - 1)), 16)
    cell, first = (x + width - 5 - left) / size, block_id * size
    written = 0 if index is None else table.num_written(index)
    if cell >= text_width(str(table.num_blocks * size - 1), 10) + 2:
        for offset in range(size):
            box = Box(opacity=0) if index is None else _WRITTEN if offset < written else _EMPTY
            place = (left + offset * cell, y + 5, cell - 2, _HIGH - 10)
            sheet.rect(*place, box)
            middle = left + offset * cell + (cell - 2) / 2
            text = str(first + offset)
            sheet.text(middle, y + 21, text, size=10, dim=index is None, anchor="middle")
        return
    share = written / size * (x + width - 5 - left)
    if index is not None:
        sheet.rect(left, y + 20, x + width - 5 - left, 9, _EMPTY)
    if share:
        sheet.rect(left, y + 20, share, 9, _WRITTEN)
    told = f"{_span(first, size)}" + (f": {written} written" if index is not None else "")
    sheet.text(left, y + 15, told, size=10, dim=index is None)
