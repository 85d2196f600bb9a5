"""A step's pool in the terminal, without the blocks that it has nothing to do with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rich.text import Text

from minipaged.view import PoolMap
from minipaged.view.blocks import BlockView
from minipaged.view.grid import Grid
from minipaged.view.marks import Marks
from minipaged.view.moment import Moment
from minipaged.view.strip import Strip

MANY = 12  # blocks in two rows of 80 columns


class _Part(Grid):
    """A grid of some blocks, and a line that counts the others by their state."""

    left: Counter[str]

    def lines(self) -> list[Text]:
        lines = super().lines() if self.blocks else []
        said = " and ".join(f"{count:,} {state}" for state, count in sorted(self.left.items()))
        return [*lines, Text(f"not drawn: {said}", style="dim")] if said else lines


@dataclass(frozen=True)
class BusyMap(PoolMap):
    """A picture of the blocks ``drawn``, if they fit; else as a ``PoolMap`` shows a large pool."""

    drawn: frozenset[int] = frozenset()

    def _pool(
        self, blocks: list[BlockView], letters: Mapping[str, str], marks: Marks, width: int
    ) -> Grid | Strip:
        shown = [block for block in blocks if block.block_id in self.drawn]
        grid = _Part(shown, self.snapshot.block_size, letters, marks, width)
        grid.left = Counter(block.state for block in blocks if block.block_id not in self.drawn)
        if grid.num_lines <= self.max_rows and grid.inner + 2 <= width:
            return grid
        return super()._pool(blocks, letters, marks, width)


def busy(moment: Moment, letters: Mapping[str, str], num_used: int) -> BusyMap:
    """The first ``num_used`` blocks; of more than ``MANY`` those held, or changed by this step.

    Args:
        moment: what to draw.
        letters: of its sequences.
        num_used: blocks that the whole run uses; those behind are neither drawn nor counted.
    """
    shot = moment.snapshot
    shot = replace(
        shot,
        ref_counts=shot.ref_counts[:num_used],
        prefixes=shot.prefixes[:num_used],
        free_order=tuple(b for b in shot.free_order if b < num_used),
    )
    drawn = set(range(num_used))
    if num_used > MANY:
        changed = {b for change in moment.changes for b in change.block_ids}
        drawn = {b for b in drawn if b in changed or b not in shot.free_order}
    return BusyMap(shot, letters=letters, legend=False, drawn=frozenset(drawn))
