"""A small pool block by block: id, slots, holders; knows block views, no tables.

┌────────┬────────┐
│ 0 #3f9a│ 1      │     the short name of the prefix under which it is published
│ ■ ■ ■ ■│ ■ ■ □ ·│     written, promised to the open step, empty
│ AB ×2  │ B      │     who holds it, and how many they are
└────────┴────────┘
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from .blocks import BlockView
from .marks import Marks, colour

MOST_GLYPHS = 16  # of one block; more slots than that share a glyph


class Grid:
    """Lays cells out in rows of equal length that fit ``width``.

    ``blocks`` may leave out blank ones, if it is said how many.
    """

    def __init__(
        self,
        blocks: list[BlockView],
        block_size: int,
        letters: Mapping[str, str],
        marks: Marks,
        width: int,
        num_omitted: int = 0,
    ):
        self.blocks, self.letters, self.marks = blocks, letters, marks
        self.num_omitted = num_omitted
        self.slots_per_glyph = -(-block_size // MOST_GLYPHS)
        self.num_glyphs = -(-block_size // self.slots_per_glyph)
        self.gap = " " if self.num_glyphs <= 4 else ""
        glyphs = self.num_glyphs + len(self.gap) * (self.num_glyphs - 1)
        id_len = max((len(str(block.block_id)) for block in blocks), default=1)
        self.inner = max(glyphs + 1, id_len + 7)
        fitting = max(1, (width - 1) // (self.inner + 1))
        self.num_rows = max(1, -(-len(blocks) // fitting))
        self.per_row = -(-len(blocks) // self.num_rows)

    @property
    def num_lines(self) -> int:
        """Height of the picture."""
        return 4 * self.num_rows + 1 + bool(self.num_omitted)

    def lines(self) -> list[Text]:
        """The picture."""
        lines = []
        for start in range(0, len(self.blocks), self.per_row):
            row = self.blocks[start : start + self.per_row]
            lines.append(self._rule("top" if start == 0 else "middle", len(row)))
            for draw in (self._id, self._slots, self._holders):
                lines.append(self._cells([draw(block) for block in row]))
        last = len(self.blocks) - (self.num_rows - 1) * self.per_row
        lines.append(self._rule("bottom", last))
        if self.num_omitted:
            lines.append(Text(f"{self.marks.more} {self.num_omitted:,} blank blocks", style="dim"))
        return lines

    # --- one cell ------------------------------------------------------------------------------

    def _id(self, block: BlockView) -> Text:
        text = Text(f" {block.block_id} ")
        room = self.inner - len(text.plain) - 1
        if block.prefix:
            text.append("#" + block.prefix[:room], style="dim")
        return text

    def _slots(self, block: BlockView) -> Text:
        text = Text(" ")
        for i in range(self.num_glyphs):
            glyph, style = self._glyph(block, i * self.slots_per_glyph)
            text.append(glyph, style=style)
            text.append(self.gap if i < self.num_glyphs - 1 else "")
        return text

    def _glyph(self, block: BlockView, slot: int) -> tuple[str, str]:
        """The sign of one slot, or of the group of slots that begins with it."""
        if block.state == "cached":
            return self.marks.cached, "dim"
        own = block.owners[slot % len(block.owners)] if block.owners else None
        style = colour(self.letters[own]) if own else ""
        if slot < block.num_written:
            return self.marks.written, style
        if slot < block.num_written + block.num_promised:
            return self.marks.promised, style
        return self.marks.empty, "dim"

    def _holders(self, block: BlockView) -> Text:
        if block.state != "held":
            word = {"pinned": "copied"}.get(block.state, block.state)
            return Text(" " + word, style="dim")
        own = [self.letters[name] for name in block.owners] or ["?"]
        count = f"{self.marks.times}{block.ref_count}" if block.is_shared else ""
        room = self.inner - 1 - len(count)
        text = Text(" ")
        for letter in own if len(own) <= room else [*own[: room - 1], self.marks.more]:
            text.append(letter, style=f"bold {colour(letter)}")
        space = " " if count and len(own) < room else ""
        return text.append(space + count, style="bold")

    # --- the frame -----------------------------------------------------------------------------

    def _cells(self, cells: list[Text]) -> Text:
        bar, line = self.marks.box[10], Text()
        for cell in cells:
            line.append(bar, style="dim")
            line.append_text(cell)
            line.append(" " * (self.inner - cell.cell_len))
        return line.append(bar, style="dim")

    def _rule(self, where: str, num_cells: int) -> Text:
        box = self.marks.box
        left, cross, right = {"top": box[0:3], "middle": box[3:6], "bottom": box[6:9]}[where]
        dash = box[9] * self.inner
        if where == "middle" and num_cells < self.per_row:
            rest = cross + box[7].join([dash] * (self.per_row - num_cells)) + box[8]
            return Text(left + cross.join([dash] * num_cells) + rest, style="dim")
        return Text(left + cross.join([dash] * num_cells) + right, style="dim")
