"""A snapshot as SVG: its blocks, tables and free order; knows no calls that made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Group, RenderableType
from rich.text import Text

from minipaged.core import Snapshot, TableView

from .blocks import BlockView, block_views
from .changes import Change, changes
from .figure import Drawing, headed, new_sheet
from .figure_block import Cells, fill_of, legend
from .marks import Letters, extent
from .svg import WIDTH, Box, Sheet
from .svg_text import fit
from .terminal import PoolMap

MOST_BLOCKS = 128  # of a larger pool, blank blocks are only counted
MOST_TABLES = 26
MOST_FREE = 64
_TELLING = (  # of several things that happened to one block, the first of these is written on it
    *("copied", "found", "allocated", "evicted", "shared", "released", "unpublished"),
    *("published", "written", "promised"),
)


def drawing(
    snapshot: Snapshot,
    *,
    before: Snapshot | None = None,
    caption: str = "",
    letters: Mapping[str, str] | None = None,
) -> Drawing:
    """The pool: every block with its id, slots, holders and prefix, then the tables and free order.

    Args:
        snapshot: what to draw. Of a pool of more than 128 blocks, blank ones are only counted.
        before: an earlier snapshot of the same pool; what changed since is marked and listed.
        caption: a line above.
        letters: of sequences, to keep them from picture to picture; others get free ones.

    Examples:
        >>> from minipaged.core import BlockPool, BlockTable
        >>> pool = BlockPool(num_blocks=2)
        >>> table = BlockTable(pool, block_size=4)
        >>> table.reserve(3)
        []
        >>> print(drawing(Snapshot.take(pool, {"A": table}, block_size=4), caption="Three slots"))
        Three slots
        ┌────────┬────────┐
        │ 0      │ 1      │
        │ □ □ □ ·│ · · · ·│
        │ A      │ blank  │
        └────────┴────────┘
        □ promised to this step   · empty
        A  [0]  0 tokens and 3 promised
        free, next first: 1
    """
    picture = _Picture(snapshot, before, caption, Letters(letters).of(_names(snapshot)))
    sheet = picture.sheet()
    sheet.legend(picture.legend())
    return Drawing(sheet.render(picture.title, picture.description()), picture.text())


def series(snapshots: Sequence[Snapshot], captions: Sequence[str]) -> Drawing:
    """Pictures one under another, each marked with what changed since the one above.

    A sequence keeps its letter through all of them.

    Raises:
        ValueError: there is no snapshot, or not one caption for each.
    """
    if len(snapshots) != len(captions) or not snapshots:
        raise ValueError(f"{len(snapshots)} snapshots and {len(captions)} captions: one for each")
    known, pictures = Letters(), list[_Picture]()
    for i, (shot, caption) in enumerate(zip(snapshots, captions)):
        before = snapshots[i - 1] if i else None
        title = f"Time {i + 1}: {caption}" if caption else f"Time {i + 1}"
        pictures.append(_Picture(shot, before, title, known.of(_names(shot)), bool(i)))
    whole = Sheet()
    for picture in pictures:
        whole.paste(picture.sheet(), whole.y + 14 if whole.y else 0)
    whole.legend(dict.fromkeys(entry for picture in pictures for entry in picture.legend()))
    told = " ".join(picture.description() for picture in pictures)
    svg = whole.render(f"A pool of blocks at {len(pictures)} moments", told)
    return Drawing(svg, Group(*(picture.text() for picture in pictures)))


@dataclass(frozen=True)
class _Picture:
    """One snapshot with all that is said about it."""

    snapshot: Snapshot
    before: Snapshot | None
    caption: str
    letters: Mapping[str, str]
    is_later: bool = False  # one of a series, the first of which has explained the signs

    @property
    def title(self) -> str:
        """What the picture is of."""
        shot = self.snapshot
        return self.caption or f"A pool of {shot.num_blocks} blocks of {shot.block_size} slots"

    @cached_property
    def changes(self) -> list[Change]:
        """What happened since ``before``."""
        return changes(self.before, self.snapshot) if self.before else []

    @cached_property
    def marks(self) -> dict[int, str]:
        """The most telling thing that happened to each block."""
        found: dict[int, str] = {}
        for kind in _TELLING:
            for change in self.changes:
                if change.kind == kind:
                    found |= {b: kind for b in change.block_ids if b not in found}
        return found

    @cached_property
    def blocks(self) -> list[BlockView]:
        """The blocks to draw."""
        blocks = block_views(self.snapshot)
        is_small = len(blocks) <= MOST_BLOCKS
        return [block for block in blocks if is_small or block.state != "blank"]

    def legend(self) -> Iterator[tuple[Box | str, str]]:
        """What the signs mean."""
        return legend(self.blocks, bool(self.marks), self.letters)

    def sheet(self) -> Sheet:
        """Everything but the legend."""
        sheet, shot = new_sheet(self.caption), self.snapshot
        cells = Cells(shot.block_size, len(self.blocks), self.letters, self.marks)
        top = sheet.y + 6
        for i, block in enumerate(self.blocks):
            cells.draw(sheet, i, block, top)
        if num_omitted := shot.num_blocks - len(self.blocks):
            sheet.paragraph(f"… {num_omitted:,} blank blocks", dim=True)
        sheet.y += 3
        for table in shot.tables[:MOST_TABLES]:
            self._table(sheet, table)
        if len(shot.tables) > MOST_TABLES:
            sheet.paragraph(f"… {len(shot.tables) - MOST_TABLES} more sequences", dim=True)
        sheet.paragraph(f"free, next first: {_free(shot)}", indent=18, dim=True)
        for change in self.changes:
            sheet.paragraph(f"{change.kind}: {change.text}", indent=18)
        return sheet

    def _table(self, sheet: Sheet, table: TableView) -> None:
        letter, top = self.letters[table.name], sheet.y
        line = Sheet(WIDTH - 18)
        line.paragraph(_told(table, letter), size=12, indent=18)
        sheet.paste(line, top, x=18)
        sheet.rect(0, top + 7, 12, 12, Box(fill_of(letter)))
        sheet.y = top + line.y

    def description(self) -> str:
        """The same in sentences, for those who do not see the picture."""
        tables = (_told(t, self.letters[t.name]) for t in self.snapshot.tables)
        held = (
            f"block {b.block_id}: {', '.join(b.owners) or b.state},"
            f" {b.num_written} of {self.snapshot.block_size} slots written"
            for b in self.blocks
            if b.state != "blank"
        )
        happened = (f"{change.kind}: {change.text}" for change in self.changes)
        told = [self.title, *held, *tables, f"free, next first: {_free(self.snapshot)}", *happened]
        return ". ".join(told) + "."

    def text(self) -> RenderableType:
        """The terminal's form."""
        shot = self.snapshot
        pool = PoolMap(shot, self.letters, None, 49, MOST_TABLES, legend=not self.is_later)
        happened = (Text(f"{change.kind}: {change.text}") for change in self.changes)
        return headed(self.caption, pool, *happened)


def _told(table: TableView, letter: str) -> str:
    """``A [5 2 7] 9 tokens``."""
    name = letter if letter == table.name else f"{letter} = {fit(table.name, 200)}"
    ids = " ".join("-" if b < 0 else str(b) for b in table.block_ids)
    return f"{name} [{ids}] {extent(table)}"


def _free(snapshot: Snapshot) -> str:
    ids = [str(block_id) for block_id in snapshot.free_order]
    if len(ids) > MOST_FREE:
        ids = [*ids[:MOST_FREE], f"… {len(ids):,} in all"]
    return " ".join(ids) or "none"


def _names(snapshot: Snapshot) -> Iterable[str]:
    return (table.name for table in snapshot.tables)
