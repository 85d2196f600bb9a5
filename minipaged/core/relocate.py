"""Moves whole sequences between pools (swap out, swap in); plans copies, moves no bytes.

Paper: section 4.5, swapping.
"""

from __future__ import annotations

from collections.abc import Sequence

from .block_pool import BlockPool
from .block_table import BlockTable, Copy
from .errors import OutOfBlocks


def relocate(tables: Sequence[BlockTable], pool: BlockPool) -> list[Copy]:
    """Move sequences to another pool, keeping what they share; or change nothing at all.

    Blocks whose prefix the new pool already holds are adopted there and need no copy.

    Returns:
        Copies from blocks of the old pool to blocks of the new one. They must run before either
        pool's blocks are used again; the moved full blocks are published at the next ``commit``.

    Raises:
        OutOfBlocks: the new pool cannot hold them; both pools and all tables are as before.
    """
    held: dict[int, int | None] = {}  # old block -> the block that holds the same prefix there
    for table in tables:
        table._require_no_reservation("relocate")
        for i in range(table.num_dropped, len(table.block_ids)):
            old = table.block_ids[i]
            if held.setdefault(old, None) is None and i < len(table._hashes):
                held[old] = pool.lookup(table._hashes[i])
    found = [block_id for block_id in held.values() if block_id is not None]
    missing = [old for old, new in held.items() if new is None]
    needed = len(missing) + sum(pool.is_free(block_id) for block_id in found)
    if needed > pool.num_free:
        raise OutOfBlocks(
            f"{len(held)} blocks to move need {needed} free blocks there, "
            f"{pool.num_free} of {pool.num_blocks} are free"
        )
    for block_id in found:
        pool.share(block_id)
    copies = [Copy(old, new) for old, new in zip(missing, pool.allocate(len(missing)))]
    placed = {old: new for old, new in held.items() if new is not None} | dict(copies)
    first_holder = set(placed)
    for table in tables:
        _move(table, pool, placed, first_holder)
    return copies


def _move(table: BlockTable, pool: BlockPool, placed: dict[int, int], unclaimed: set[int]) -> None:
    """Point one table at its blocks' new places, and give the old ones back."""
    old_pool, old_ids = table.pool, table.block_ids[table.num_dropped :]
    for block_id in old_ids:
        if block_id in unclaimed:
            unclaimed.discard(block_id)  # placing it counted its first holder
        else:
            pool.share(placed[block_id])
    table.block_ids[table.num_dropped :] = [placed[block_id] for block_id in old_ids]
    table.pool = pool
    while len(table._hashes) > table.num_dropped and (
        pool.prefix_hash[table.block_ids[len(table._hashes) - 1]] != table._hashes[-1]
    ):
        table._hashes.pop()  # copied, not adopted: published at the next commit
    for block_id in reversed(old_ids):
        old_pool.release(block_id)
