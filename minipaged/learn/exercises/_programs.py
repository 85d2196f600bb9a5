"""Small programs in order of size, so that the first one that fails is the smallest story."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from minipaged.core import BlockPool, Snapshot, TableView

Operation = TypeVar("Operation")


def programs(
    operations: Iterable[Operation], max_len: int, min_len: int = 1
) -> Iterator[tuple[Operation, ...]]:
    """Every sequence of operations, the shortest first; of one length, in the order given.

    Examples:
        >>> ["".join(p) for p in programs("AB", max_len=2)]
        ['A', 'B', 'AA', 'AB', 'BA', 'BB']
    """
    choices = tuple(operations)
    for length in range(min_len, max_len + 1):
        yield from product(choices, repeat=length)


def listed(parts: Iterable[object], empty: str = "nothing") -> str:
    """Parts as a sentence says them.

    Examples:
        >>> listed(["fork", "A writes"])
        'fork, A writes'
    """
    return ", ".join(map(str, parts)) or empty


def snapshot(
    pool: BlockPool, tables: Mapping[str, tuple[list[int], int]], block_size: int
) -> Snapshot:
    """The state of a pool whose tables are plain lists: ``{name: (block_ids, num_tokens)}``."""
    views = (TableView(name, tuple(ids), n, n) for name, (ids, n) in tables.items())
    return Snapshot(
        block_size=block_size,
        ref_counts=tuple(pool.ref_count),
        prefixes=tuple(h.hex()[:6] if h else None for h in pool.prefix_hash),
        free_order=tuple(pool.free_order()),
        tables=tuple(views),
        num_evictions=pool.num_evictions,
    )


def drawn(
    pool: BlockPool, tables: Mapping[str, tuple[list[int], int]], block_size: int, width: int = 76
) -> str:
    """The same, as a picture for the end of a story."""
    from minipaged.view import PoolMap, plain

    return plain(PoolMap(snapshot(pool, tables, block_size)), width=width).rstrip()
