"""A snapshot as a terminal shows it: the pool, the tables, what is free; reads nothing else.

Width, colour and character set come from the console that prints it, so the same picture goes to
a wide terminal, into a pipe, and under ``NO_COLOR``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from minipaged.core import Snapshot, TableView

from .blocks import BlockView, block_views
from .grid import Grid
from .marks import CROWD, Letters, Marks, colour, extent, marks_for
from .strip import Strip


@dataclass(frozen=True)
class PoolMap:
    """A Rich renderable of a snapshot. Few blocks are drawn as a grid, many as a strip.

    Args:
        snapshot: what to draw.
        letters: of sequences, to keep them from picture to picture; others get free ones.
        texts: the tokens of a sequence as words, written behind its table.
        max_rows: lines of the pool's picture at most.
        max_tables: sequences listed at most.
        legend: explain the signs that occur.
    """

    snapshot: Snapshot
    letters: Mapping[str, str] | None = None
    texts: Mapping[str, str] | None = None
    max_rows: int = 17
    max_tables: int = 8
    legend: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        """The lines of the picture; none is wider than the console."""
        for line in self._lines(marks_for(options), options.max_width):
            line.no_wrap, line.overflow = True, "crop"
            yield line

    def _lines(self, marks: Marks, width: int) -> Iterator[Text]:
        shot = self.snapshot
        letters = Letters(self.letters).of(table.name for table in shot.tables)
        pool = self._pool(block_views(shot), letters, marks, width)
        yield from pool.lines()
        if self.legend:
            entries = strip_legend(pool) if isinstance(pool, Strip) else grid_legend(pool)
            yield from flow(entries, width)
        for table in shot.tables[: self.max_tables]:
            yield self._table(table, letters[table.name], marks, width)
        if len(shot.tables) > self.max_tables:
            num_more = len(shot.tables) - self.max_tables
            yield Text(f"{marks.more} {num_more} more sequences", style="dim")
        yield _free(shot, marks, width)

    def _pool(
        self, blocks: list[BlockView], letters: Mapping[str, str], marks: Marks, width: int
    ) -> Grid | Strip:
        """All blocks as a grid, or only those that hold something, or else the strip."""
        size = self.snapshot.block_size
        in_use = [block for block in blocks if block.state != "blank"]
        for shown in (blocks, in_use):
            grid = Grid(shown, size, letters, marks, width, num_omitted=len(blocks) - len(shown))
            if shown and grid.num_lines <= self.max_rows and grid.inner + 2 <= width:
                return grid
        return Strip(blocks, size, letters, marks, width, self.max_rows)

    def _table(self, table: TableView, letter: str, marks: Marks, width: int) -> Text:
        """``A  [5 2 7]  9 tokens``."""
        line = Text(letter, style=f"bold {colour(letter)}")
        if table.name != letter:
            line.append(f" = {table.name}", style="not bold")
        tail = f"  {extent(table)}"
        if self.texts and table.name in self.texts:
            tail += "  " + self.texts[table.name]
        room = width - line.cell_len - len(tail) - 4
        ids = ["-" if b < 0 else str(b) for b in table.block_ids]
        ids_text = _fit(ids, max(room, 12), marks, keep_last=True)
        return line.append(f"  [{ids_text}]{tail}", style="not bold default")


def picture(snapshot: Snapshot, width: int = 80, legend: bool = True) -> str:
    """The same as plain text, for a page or a docstring.

    Examples:
        >>> from minipaged.core import BlockPool, BlockTable
        >>> pool = BlockPool(num_blocks=3)
        >>> a = BlockTable(pool, block_size=4)
        >>> a.reserve(6); a.commit([1] * 6); b = a.fork()
        []
        >>> print(picture(Snapshot.take(pool, {"A": a, "B": b}, block_size=4), legend=False))
        ┌────────┬────────┬────────┐
        │ 0      │ 1      │ 2      │
        │ ■ ■ ■ ■│ ■ ■ · ·│ · · · ·│
        │ AB ×2  │ AB ×2  │ blank  │
        └────────┴────────┴────────┘
        A  [0 1]  6 tokens
        B  [0 1]  6 tokens
        free, next first: 2
    """
    return plain(PoolMap(snapshot, legend=legend), width)


def plain(renderable: RenderableType, width: int = 80) -> str:
    """What a console of this width would print, without colours."""
    target = StringIO()
    Console(file=target, width=width, color_system=None, legacy_windows=False).print(renderable)
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines())


# --- legends ---------------------------------------------------------------------------------


def grid_legend(grid: Grid) -> list[str]:
    """What the signs mean that occur in this grid."""
    marks, blocks = grid.marks, grid.blocks
    entries = [
        (any(b.num_written and b.state == "held" for b in blocks), f"{marks.written} written"),
        (any(b.num_promised for b in blocks), f"{marks.promised} promised to this step"),
        (True, f"{marks.empty} empty"),
        (_has(blocks, "cached"), f"{marks.cached} free, but still found by its prefix"),
        (any(b.prefix for b in blocks), "#name of the published prefix"),
        (any(b.is_shared for b in blocks), f"{marks.times}2 shared by two"),
        (_has(blocks, "pinned"), "copied: the source of a copy to come"),
        (grid.slots_per_glyph > 1, f"one sign is {grid.slots_per_glyph} slots"),
    ]
    return [text for occurs, text in entries if occurs]


def strip_legend(strip: Strip) -> list[str]:
    """What the signs mean that occur in this strip."""
    marks, blocks, size = strip.marks, strip.blocks, strip.block_size
    own = [b for b in blocks if b.state == "held" and not b.is_shared]
    entries = [
        (any(b.num_written == size for b in own), "A full block of A"),
        (any(b.num_written < size for b in own), "a partly written"),
        (CROWD in strip.letters.values(), f"{CROWD} of one for whom no letter is left"),
        (any(b.is_shared for b in blocks), "2 shared by two"),
        (any(b.ref_count > 9 for b in blocks), "+ by ten or more"),
        (_has(blocks, "cached"), f"{marks.cached} free, but still found by its prefix"),
        (_has(blocks, "blank"), f"{marks.empty} blank"),
        (_has(blocks, "pinned"), "! the source of a copy to come"),
        (strip.blocks_per_mark > 1, f"one sign is the busiest of {strip.blocks_per_mark} blocks"),
    ]
    return [text for occurs, text in entries if occurs]


def flow(entries: Iterable[str], width: int) -> Iterator[Text]:
    """Entries side by side, never broken inside, as many to a line as fit."""
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + 3 + len(entry) <= width:
            lines[-1] += f"   {entry}"
        else:
            lines.append(entry)
    yield from (Text(line, style="dim", no_wrap=True, overflow="crop") for line in lines)


# --- helpers ---------------------------------------------------------------------------------


def _has(blocks: list[BlockView], state: str) -> bool:
    return any(block.state == state for block in blocks)


def _free(snapshot: Snapshot, marks: Marks, width: int) -> Text:
    head = "free, next first: "
    ids = [str(b) for b in snapshot.free_order]
    return Text(head + (_fit(ids, width - len(head), marks) if ids else "none"), style="dim")


def _fit(ids: list[str], room: int, marks: Marks, keep_last: bool = False) -> str:
    """As many ids as there is room for, then how many more there are."""
    text = " ".join(ids)
    if len(text) <= room:
        return text
    tail = f"{marks.more} {ids[-1]}" if keep_last else f"{marks.more} {len(ids):,} in all"
    ids = ids[: room // 2]  # each takes two characters at least
    while ids and len(" ".join([*ids, tail])) > room:
        ids = ids[:-1]
    return " ".join([*ids, tail])
