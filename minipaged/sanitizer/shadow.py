"""The shadow of a cache: every write, read and copy is told here, and judged before it is done.

It touches no tensor and believes nobody: a block table is right only if every slot that it leads to
was written by this history, at this position, since the block was handed out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .books import Books
from .checks import Accesses, check_reads, check_sizes, check_writes
from .state import quoted

Pairs = Iterable[tuple[int, int]]


class Shadow(Books):
    """Who holds which block, and what lies in each slot.

    Args:
        num_blocks, block_size: of the pool.
        num_layers: how often ``wrote`` must be called until a planned slot is a written one.

    Examples:
        >>> shadow = Shadow(num_blocks=8, block_size=4)
        >>> shadow.begin_step()
        >>> shadow.allocated("a", [3]); shadow.write("a", range(2), [12, 13])
        >>> shadow.read("a", block_table=[3], seq_len=2)
        >>> shadow.read("a", block_table=[3], seq_len=3)
        Traceback (most recent call last):
        ...
        minipaged.sanitizer.errors.SanitizerError: step 1, sequence "a": reads position 2 from
        slot 14 (block 3, offset 2), which was not written since block 3 was allocated at step 1
    """

    def write(self, owner: str, positions: Iterable[int], slots: Iterable[int]) -> None:
        """The K and V of some positions go into slots: its own, unshared, unpublished, once."""
        where, into = np.array(list(positions), np.int64), np.array(list(slots), np.int64)
        check_writes(self, Accesses([owner], np.zeros_like(where), where, into))
        self.wrote(into, self.num_layers)

    def wrote(self, slots: np.ndarray, num_layers: int = 1) -> None:
        """Slots of this step's plan were written, in so many layers more."""
        slots = slots[slots >= 0]
        self.known((slots // self.block_size).tolist(), None, "writes")
        strange = self.flat["step"][slots] != self.step
        if strange.any():
            slot = int(slots[strange][0])
            what = f"writes {self.where(slot)} without a plan; the slot {self.story(slot=slot)}"
            who = self.holder(slot // self.block_size)
            self.fail("unplanned-write", what, who, slot=slot)
        self.flat["layers"][slots] += num_layers

    def read(
        self,
        owner: str,
        block_table: Sequence[int],
        seq_len: int,
        *,
        num_queries: int = 1,
        window: int | None = None,
    ) -> None:
        """The newest ``num_queries`` tokens of a sequence look at all that they may see."""
        tables, lens = np.array([list(block_table)], np.int64), np.array([seq_len])
        check_reads(self, [owner], tables, lens, np.array([num_queries]), window)

    def batch(
        self,
        owners: Sequence[str],
        block_tables: Any,  # [num_seqs, max_blocks_per_seq]
        seq_lens: Any,  # [num_seqs]
        query_start_loc: Any,  # [num_seqs + 1]
        slot_mapping: Any,  # [num_tokens]
        *,
        window: int | None = None,
        written: bool = True,
    ) -> None:
        """One step in the native convention: all its writes, then all its reads.

        Takes tensors, arrays or lists. ``written=False``: ``wrote`` will tell, layer by layer.
        """
        arrays = (block_tables, seq_lens, query_start_loc, slot_mapping)
        tables, lens, starts, slots = map(as_array, arrays)
        counts = check_sizes(self, owners, tables, lens, starts, slots)
        row = np.repeat(np.arange(len(owners)), counts)
        positions = np.arange(len(row)) - (starts[:-1] - lens + counts)[row]
        slots, padding = slots[: len(row)], slots[len(row) :]
        for slot in padding[padding != -1].tolist():
            what = f"a row of slot_mapping behind the last sequence writes {self.where(slot)}"
            self.fail("unowned-write", f"{what}; it must be -1", slot=slot)
        check_writes(self, Accesses(owners, row, positions, slots), tables)
        if written:
            self.wrote(slots, self.num_layers)
        check_reads(self, owners, tables, lens, counts, window)

    # --- whole blocks --------------------------------------------------------------------------

    def copy(self, pairs: Pairs) -> None:
        """Blocks are copied within the pool, every source before any destination is written."""
        self.settle()
        pairs = [(int(source), int(destination)) for source, destination in pairs]
        for block_id in sorted({a for a, _ in pairs} & {b for _, b in pairs}):
            what = f"block {block_id} is source and destination of copies of one step"
            self.fail("chained-copy", what, self.holder(block_id), block_id=block_id)
        self.swap(self, pairs)

    def swap(self, other: Shadow, pairs: Pairs) -> None:
        """Blocks are copied into another pool: ``(mine, its)``."""
        pairs = [(int(source), int(destination)) for source, destination in pairs]
        saved = self.save([a for a, _ in pairs], [other.holder(b) for _, b in pairs])
        other.restore(saved, [b for _, b in pairs])

    def save(
        self, block_ids: Sequence[int], owners: Sequence[str | None] | None = None
    ) -> np.ndarray:  # [num_blocks, block_size] of slots.SLOT
        """What blocks hold, for ``restore``, here or elsewhere; each must hold something."""
        owners = owners or [self.holder(block_id) for block_id in block_ids]
        for block_id, owner in zip(block_ids, owners):
            self.known([block_id], owner, "copies from")
            if not (self.slots[block_id]["layers"] > 0).any():
                what = f"copies from block {block_id}, which {self.story(block_id)}"
                self.fail("unwritten-copy", what, owner, block_id=block_id)
        return self.slots[list(block_ids)]

    def restore(self, saved: np.ndarray, block_ids: Sequence[int]) -> None:
        """Saved blocks go into these: held, unpublished, and shared only where they are blank."""
        self.settle(block_ids)
        for i, block_id in enumerate(block_ids):
            who = self.holder(block_id)
            self.known([block_id], who, "copies into")
            if (fault := self._unfit(block_id, block_id in block_ids[:i])) is not None:
                what = f"copies into block {block_id}, which is {fault[1]}"
                self.fail(fault[0], what, who, block_id=block_id)
        self.slots[list(block_ids)] = saved

    def _unfit(self, block_id: int, is_second: bool) -> tuple[str, str] | None:
        """Why a block must not be overwritten."""
        names, is_blank = self.holders.get(block_id, []), self.slots[block_id]["layers"].max() == 0
        if is_second:
            return "double-write", "the destination of another copy of this step"
        if block_id in self.published:
            return "published-write", "published"
        if not names:
            return "unowned-write", "held by nobody"
        if len(names) > 1 and not is_blank:
            return "shared-write", f"held by {quoted(names)}"
        return None


@contextmanager
def sanitize(
    num_blocks: int, block_size: int, *, num_layers: int = 1, leaks: bool = False
) -> Iterator[Shadow]:
    """A shadow for somebody's engine, which tells it what it does.

    Args:
        num_blocks: of the engine's pool.
        block_size: tokens per block.
        num_layers: as in ``Shadow``.
        leaks: whether blocks that are still held at the end are an error.

    Raises:
        SanitizerError: inside the block, by the event that cannot be right.
    """
    shadow = Shadow(num_blocks, block_size, num_layers=num_layers)
    yield shadow
    if leaks:
        shadow.check_idle()


def as_array(values: Any) -> np.ndarray:
    """Whole numbers out of a tensor on any device, an array or a list."""
    values = values.cpu() if hasattr(values, "cpu") else values
    return np.asarray(values).astype(np.int64)
