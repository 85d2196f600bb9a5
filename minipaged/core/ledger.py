"""What every slot of the pool is doing right now; reads the books, changes nothing.

Each slot is in one class, so they add up to the pool. Paper: figure 2, for contiguous caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from .block_pool import BlockPool
from .block_table import BlockTable


@dataclass(frozen=True, slots=True)
class Ledger:
    """How many slots do what; a slot holds one token's K/V of all layers.

    Examples:
        >>> pool = BlockPool(num_blocks=4)
        >>> table = BlockTable(pool, block_size=4)
        >>> table.reserve(6); table.commit([1] * 6)
        []
        >>> Ledger.measure([table], pool, block_size=4)
        Ledger(live=6, shared=0, reserved=0, tail_waste=2, cached=0, orphaned=0, free=8, saved=0)
    """

    live: int  # holds a token of exactly one sequence
    shared: int  # holds a token of two or more sequences
    reserved: int  # promised to this step, not yet written
    tail_waste: int  # behind the end of the last, partial block: all that paging wastes
    cached: int  # free, and a prefix lookup can still find it
    orphaned: int  # free and published, but its parent was evicted: no lookup gets here
    free: int
    saved: int  # not a class: further slots that would be needed if nothing were shared

    @property
    def num_slots(self) -> int:
        """All slots of the pool."""
        return sum(getattr(self, f.name) for f in fields(self) if f.name != "saved")

    @property
    def waste(self) -> float:
        """Share of the held slots that hold no token (the paper's internal fragmentation)."""
        held = self.live + self.shared + self.reserved + self.tail_waste
        return self.tail_waste / held if held else 0.0

    @classmethod
    def measure(cls, tables: Sequence[BlockTable], pool: BlockPool, block_size: int) -> Ledger:
        """Classify every slot; ``tables`` must be all the tables that hold blocks of ``pool``.

        Raises:
            ValueError: a block has a holder that is not among ``tables``.
        """
        covers = _covers(tables, pool, block_size)
        live = shared = reserved = tail = saved = 0
        for written, promised in covers.values():
            *_, second, most = sorted([0, *written])
            shared, live = shared + second, live + most - second
            reserved, tail = reserved + max(promised) - most, tail + block_size - max(promised)
            saved += sum(written) - most
        published = {b for b, h in enumerate(pool.prefix_hash) if h and b not in covers}
        cached = len(published & _reachable(pool)) * block_size
        orphaned = len(published) * block_size - cached
        unused = sum(map(pool.is_free, range(pool.num_blocks))) - pool.num_cached
        pinned = pool.num_blocks - len(covers) - len(published) - unused  # copies not yet run
        reserved += pinned * block_size
        ledger = cls(live, shared, reserved, tail, cached, orphaned, unused * block_size, saved)
        assert ledger.num_slots == pool.num_blocks * block_size, f"{ledger} misses some of the pool"
        return ledger


def _covers(
    tables: Sequence[BlockTable], pool: BlockPool, block_size: int
) -> dict[int, tuple[list[int], list[int]]]:
    """For every held block: how many of its slots each holder has written, and was promised."""
    covers: dict[int, tuple[list[int], list[int]]] = {}
    for table in tables:
        for i in range(table.num_dropped, len(table.block_ids)):
            written, promised = covers.setdefault(table.block_ids[i], ([], []))
            written.append(max(0, min(table.num_tokens - i * block_size, block_size)))
            promised.append(min(table.num_reserved - i * block_size, block_size))
    for block_id, count in enumerate(pool.ref_count):
        known = len(covers[block_id][0]) if block_id in covers else 0
        if count != known:
            raise ValueError(f"block {block_id} has {count} holders, {known} of them were given")
    return covers


def _reachable(pool: BlockPool) -> set[int]:
    """Published blocks that a lookup can reach: their ancestors are all published too."""
    children: dict[bytes | None, list[int]] = {}
    for block_id, prefix_hash in enumerate(pool.prefix_hash):
        if prefix_hash is not None:
            children.setdefault(pool.parent_hash[block_id], []).append(block_id)
    reachable, frontier = set(), list(children.get(None, ()))
    while frontier:
        block_id = frontier.pop()
        reachable.add(block_id)
        frontier += children.get(pool.prefix_hash[block_id], ())
    return reachable
