"""One block of a pool as SVG; knows block views, and no tables.

┌──────────────┐
│ 0       #3f9a│     the short name of the prefix under which it is published
│ [A][A][ ][ ] │     slots: written (filled), promised (dashed), empty, or cached (dotted)
│ AB ×2        │     who holds it, and its ref_count if that is more than one
│ copied       │     what happened to it in this step; its frame is thick
└──────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import ascii_uppercase

from .blocks import BlockView
from .marks import CROWD
from .svg import PALETTE, WIDTH, Box, Place, Sheet
from .svg_text import fit, text_width

GAP = 8
MOST_LARGE = 24  # blocks drawn large, four to a row; more are drawn small, eight to a row
MOST_CELLS = 32  # slots of a large block drawn one by one; of more, or a small block, a bar tells
FRAME, CHANGED = Box(), Box(thick=True)
EMPTY, PROMISED = Box(), Box(dashed=True)
CACHED = Box("currentColor", ".", dashed=True, opacity=0.1)


def fill_of(letter: str) -> str:
    """The colour in which a sequence is always drawn; one without a letter of its own is grey."""
    place = ascii_uppercase.find(letter)
    return "currentColor" if place < 0 else PALETTE[place % len(PALETTE)]


class Cells:
    """Draws blocks, all of one size.

    Args:
        block_size: slots of a block.
        num_blocks: how many are to be drawn.
        letters: of the sequences.
        marks: what happened to a block, in a word.
    """

    def __init__(
        self,
        block_size: int,
        num_blocks: int,
        letters: Mapping[str, str],
        marks: Mapping[int, str],
    ):
        self.block_size, self.letters, self.marks = block_size, letters, marks
        self.is_large = num_blocks <= MOST_LARGE
        self.per_row = 4 if self.is_large else 8
        self.gap = GAP if self.is_large else GAP / 2
        self.width = (WIDTH - (self.per_row - 1) * self.gap) / self.per_row
        self.pad = 4 if self.is_large else 3
        self.slots_height = 22 if self._num_lines() <= 1 else 11 * self._num_lines()
        if not self.is_large:
            self.slots_height = 10
        self.height = 40 + self.slots_height + (13 if marks else 0)

    def draw(self, sheet: Sheet, index: int, block: BlockView, top: float) -> None:
        """The ``index``-th block of a picture whose first row is at ``top``."""
        row, column = divmod(index, self.per_row)
        x, y = column * (self.width + self.gap), top + row * (self.height + self.gap)
        frame = CHANGED if block.block_id in self.marks else FRAME
        data = f'data-block="{block.block_id}"'
        sheet.rect(x, y, self.width, self.height, frame, data=data)
        self._head(sheet, x + self.pad, y + 14, block)
        self._slots(sheet, x + self.pad, y + 20, block)
        y += self.slots_height + 34
        self._holders(sheet, x + self.pad, y, block)
        if mark := self.marks.get(block.block_id):
            sheet.text(x + self.pad, y + 13, fit(mark, self.inner, self.size), size=self.size)

    @property
    def inner(self) -> float:
        """Room between the frame's sides."""
        return self.width - 2 * self.pad

    @property
    def size(self) -> float:
        """Of the smaller text."""
        return 11 if self.is_large else 9

    # --- the lines of one block ----------------------------------------------------------------

    def _head(self, sheet: Sheet, x: float, y: float, block: BlockView) -> None:
        size = 12 if self.is_large else 11
        sheet.text(x, y, str(block.block_id), size=size, bold=True)
        room = self.inner - text_width(f"{block.block_id} ", size)
        name = f"#{block.prefix}"
        num_chars = min(int(room / text_width("#", self.size)), 7 if self.is_large else 5)
        if block.prefix and num_chars > 1:
            right = x + self.inner
            sheet.text(right, y, name[:num_chars], size=self.size, dim=True, anchor="end")

    def _slots(self, sheet: Sheet, x: float, y: float, block: BlockView) -> None:
        places = self._bar(block) if not self._num_lines() else self._cells()
        written = block.num_written if block.state == "held" else 0
        parts: dict[str, list[Place]] = {"written": [], "promised": [], "empty": []}
        for slot, (left, top, width, height) in places:
            is_promised = slot < written + block.num_promised
            kind = "written" if slot < written else "promised" if is_promised else "empty"
            parts[kind].append((x + left, y + top, width, height))
        if block.state == "cached":
            for place in parts["empty"]:
                sheet.rect(*place, CACHED)
            return
        self._written(sheet, parts["written"], block.owners)
        sheet.rects(parts["promised"], PROMISED)
        for left, top, width, height in parts["promised"]:
            sheet.circle(left + width / 2, top + height / 2, 1.5)
        sheet.rects(parts["empty"], EMPTY)

    def _written(self, sheet: Sheet, places: list[Place], owners: tuple[str, ...]) -> None:
        """Slots that hold a token, in a band for each of those who share it."""
        letters = "".join(self.letters[name] for name in owners)
        shown = letters[:6] or "?"
        for i, letter in enumerate(shown):
            bands = [(x, y + i * h / len(shown), w, h / len(shown)) for x, y, w, h in places]
            sheet.rects(bands, Box(fill_of(letter), bare=True))
        sheet.rects(places, FRAME)
        for x, y, width, height in places:
            if width > 16 and height > 16 and len(letters) < 3:
                sheet.text(x + width / 2, y + height / 2 + 3.5, letters, size=10, anchor="middle")

    def _cells(self) -> list[tuple[int, Place]]:
        """Every slot of a block, and where it lies."""
        num_lines = self._num_lines()
        per_line = -(-self.block_size // num_lines)
        width, height = self.inner / per_line, self.slots_height / num_lines
        found = []
        for slot in range(self.block_size):
            line, column = divmod(slot, per_line)
            found.append((slot, (column * width, line * height, width - 1, height - 1)))
        return found

    def _bar(self, block: BlockView) -> list[tuple[int, Place]]:
        """Slots that are too many to be drawn one by one: runs of them, in true proportion."""
        start, found = 0, []
        written = 0 if block.state == "cached" else block.num_written
        for end in (written, written + block.num_promised, self.block_size):
            if end > start:
                left, right = (slot * self.inner / self.block_size for slot in (start, end))
                found.append((start, (left, 0, right - left, self.slots_height)))
            start = max(start, end)
        return found

    def _holders(self, sheet: Sheet, x: float, y: float, block: BlockView) -> None:
        if block.state != "held":
            word = {"pinned": "copied"}.get(block.state, block.state)
            sheet.text(x, y, fit(word, self.inner, self.size), size=self.size, dim=True)
            return
        size = 12 if self.is_large else 10
        sheet.text(x, y, holders(block, self.letters, self.inner, size), size=size, bold=True)

    def _num_lines(self) -> int:
        """Rows of slots in a block; 0: a bar instead."""
        if not self.is_large or self.block_size > MOST_CELLS:
            return 0
        return -(-self.block_size // 8)


def holders(block: BlockView, letters: Mapping[str, str], room: float, size: float) -> str:
    """``AB ×2``: the letters of those who hold a block, as many as fit, and how many they are."""
    own = "".join(letters[name] for name in block.owners) or "?"
    count = f" ×{block.ref_count}" if block.is_shared else ""
    return fit(own, room - text_width(count, size), size) + count


def legend(
    blocks: list[BlockView], has_marks: bool, letters: Mapping[str, str] | None = None
) -> Iterator[tuple[Box | str, str]]:
    """What the signs mean that occur among these blocks."""
    held = [b for b in blocks if b.state == "held"]
    full = any(b.num_written for b in held)
    entries = [
        (full, (Box(PALETTE[0]), "written")),
        (any(b.num_promised for b in held), (PROMISED, "promised to this step")),
        (True, (EMPTY, "empty")),
        (_has(blocks, "cached"), (CACHED, "free, but still found by its prefix")),
        (any(b.prefix for b in blocks), ("#…", "name of the published prefix")),
        (any(b.is_shared for b in blocks), ("×2", "held by two")),
        (_has(blocks, "pinned"), ("copied", "source of a copy to come")),
        (has_marks, (CHANGED, "changed in this step")),
        (CROWD in (letters or {}).values(), (CROWD, "one for whom no letter is left")),
    ]
    return (entry for occurs, entry in entries if occurs)


def _has(blocks: list[BlockView], state: str) -> bool:
    return any(block.state == state for block in blocks)
