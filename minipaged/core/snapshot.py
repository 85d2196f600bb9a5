"""A frozen picture of a pool and its tables: plain tuples, from which everything is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from .block_pool import BlockPool
from .block_table import BlockTable

_PICTURES = "minipaged.view"


@dataclass(frozen=True, slots=True)
class TableView:
    """One sequence as it was: ``block_ids`` in logical order, -1 where a window has passed."""

    name: str
    block_ids: tuple[int, ...]
    num_tokens: int
    num_reserved: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a pool at one moment; later changes of the pool do not reach it.

    Examples:
        >>> pool = BlockPool(num_blocks=3)
        >>> table = BlockTable(pool, block_size=2)
        >>> table.reserve(3); table.commit([1, 2, 3])
        []
        >>> shot = Snapshot.take(pool, {"A": table}, block_size=2)
        >>> shot.ref_counts, shot.free_order, shot.owners(1)
        ((1, 1, 0), (2,), ('A',))
    """

    block_size: int
    ref_counts: tuple[int, ...]
    prefixes: tuple[str | None, ...]  # short names of the published prefixes, None: unpublished
    free_order: tuple[int, ...]  # the next block to be handed out comes first
    tables: tuple[TableView, ...]
    num_evictions: int

    @classmethod
    def take(cls, pool: BlockPool, tables: Mapping[str, BlockTable], block_size: int) -> Snapshot:
        """Copy what a picture needs; O(size of the pool)."""
        own = ((name, t) for name, t in tables.items() if t.pool is pool)
        views = (TableView(n, tuple(t.block_ids), t.num_tokens, t.num_reserved) for n, t in own)
        ref_counts, free_order = tuple(pool.ref_count), tuple(pool.free_order())
        prefixes = tuple(h.hex()[:6] if h else None for h in pool.prefix_hash)
        return cls(block_size, ref_counts, prefixes, free_order, tuple(views), pool.num_evictions)

    @property
    def num_blocks(self) -> int:
        """Size of the pool."""
        return len(self.ref_counts)

    def owners(self, block_id: int) -> tuple[str, ...]:
        """Names of the sequences that hold this block, in the order of ``tables``."""
        return tuple(t.name for t in self.tables if block_id in t.block_ids)

    def _repr_html_(self) -> str:
        # Pictures lie on a higher floor, so core may not import them: called by name, when asked.
        return import_module(_PICTURES).drawing(self)._repr_html_()
