"""Judges the steps of an engine that is built of this package's pools, tables and caches.

What a pool says is not believed: who holds a block is read off the tables. What a plan says is not
believed either: a slot is written when the cache was told to write it, in every layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from minipaged.cache import KVCache, PagedBatch
from minipaged.core import NO_BLOCK, BlockPool, BlockTable

from .poisoning import poison
from .shadow import Shadow, as_array
from .state import short
from .watch import WatchedCache, WatchedPool, clean, watch


class Owner(NamedTuple):
    """One sequence: its name in messages, its map, and all its tokens, computed or not."""

    name: str
    table: BlockTable
    token_ids: Sequence[int]


class Sanitizer:
    """Judges every step of an engine that is made of ``BlockPool``, ``BlockTable`` and ``KVCache``.

    Args:
        pools: pools that hold nothing yet, each with its cache; from here on they are watched, and
            every slot that may not be read holds poison.

    Examples:
        >>> pool, cache = BlockPool(4), KVCache(1, 4, 2, 1, 1)
        >>> sanitizer = Sanitizer((pool, cache))
        >>> table = BlockTable(pool, block_size=2)
        >>> owner = Owner("a", table, token_ids=[7, 8, 9])
        >>> copies = table.reserve(3)
        >>> sanitizer.before_copies([owner]); cache.copy_blocks(copies)
        >>> batch = PagedBatch.build([table])
        >>> sanitizer.before_kernels(batch, [owner])
        >>> table.block_ids[0] = 3
        >>> sanitizer.before_kernels(batch, [owner])
        Traceback (most recent call last):
        ...
        minipaged.sanitizer.errors.SanitizerError: step 1, sequence "a": its block table has block 3
        as entry 0, its row of the batch has 0
    """

    def __init__(self, *pools: tuple[BlockPool, KVCache] | tuple[None, None]):
        self.watched: list[tuple[BlockPool, KVCache, Shadow]] = []
        self._is_open = False  # a step has begun and has not ended
        for pool, cache in pools:
            if pool is not None and cache is not None:
                self.watched.append((pool, cache, self._watch(pool, cache)))

    @staticmethod
    def _watch(pool: BlockPool, cache: KVCache) -> Shadow:
        if any(pool.ref_count) or pool.num_cached:
            raise ValueError("a pool is watched from its beginning: this one holds blocks already")
        shadow = Shadow(pool.num_blocks, cache.block_size, num_layers=len(cache.key))
        shadow.begin_step()
        watch(pool, WatchedPool, shadow)
        pool.evicted = []  # type: ignore[attr-defined]
        watch(cache, WatchedCache, shadow)
        for tensor in (cache.key, cache.value):
            poison(tensor, range(pool.num_blocks))
        return shadow

    def before_copies(self, owners: Iterable[Owner]) -> None:
        """The step's slots are reserved, nothing is done yet. ``owners``: all that hold blocks."""
        owners = list(owners)
        if self._is_open:  # the last one failed; trying again is another step
            self._begin_step()
        self._is_open = True
        for pool, _, shadow in self.watched:
            _look(pool, shadow, owners)
            names = {owner.name for owner in owners}
            shadow.histories = {n: h for n, h in shadow.histories.items() if n in names}
            for block_id, name in pool.evicted:  # type: ignore[attr-defined]
                if pool.lookup(name) == block_id or pool.prefix_hash[block_id] == name:
                    what = f"is given block {block_id}, which is still found by hash {short(name)}"
                    who = shadow.holder(block_id)
                    shadow.fail("stale-hash", what, who, block_id=block_id)
            pool.evicted.clear()  # type: ignore[attr-defined]

    def before_kernels(
        self, batch: PagedBatch, owners: Sequence[Owner], window: int | None = None
    ) -> None:
        """Judge all writes and reads of a batch whose rows are these sequences."""
        _, cache, shadow = self._of(owners[0].table.pool)
        clean(cache, shadow)
        _clean_tails(cache, shadow, owners)
        _check_rows(shadow, as_array(batch.block_tables), owners)
        for name, table, token_ids in owners:
            shadow.tokens(name, token_ids[: table.num_reserved], table.root)
        arrays = batch.block_tables, batch.seq_lens, batch.query_start_loc, batch.slot_mapping
        _check_positions(shadow, batch, owners)
        names = [owner.name for owner in owners]
        shadow.batch(names, *arrays, window=window, written=False)

    def after_step(self, owners: Iterable[Owner]) -> None:
        """Everything is committed: every holder is counted, once. The next step begins."""
        owners = list(owners)
        for pool, _, shadow in self.watched:
            shadow.check_done()
            _look(pool, shadow, owners)
            for block_id, names in shadow.holders.items():
                if len(names) != pool.ref_count[block_id]:
                    what = f"{shadow.held(block_id)} block {block_id}, its ref_count is"
                    what = f"{what} {pool.ref_count[block_id]}"
                    shadow.fail("ref-count", what, names[0], block_id=block_id)
            if sum(pool.ref_count) != sum(map(len, shadow.holders.values())):
                _leaked(pool, shadow)
        self._begin_step()

    def _begin_step(self) -> None:
        self._is_open = False
        for _, _, shadow in self.watched:
            shadow.begin_step()

    def _of(self, pool: BlockPool) -> tuple[BlockPool, KVCache, Shadow]:
        return next(watched for watched in self.watched if watched[0] is pool)


def _look(pool: BlockPool, shadow: Shadow, owners: Iterable[Owner]) -> None:
    """Note for every block whose table it is in."""
    shadow.holders = holders = {}
    for name, table, _ in owners:
        if table.pool is pool:
            for block_id in table.block_ids:
                if block_id != NO_BLOCK:
                    holders.setdefault(block_id, []).append(name)
    shadow.last_holder.update((block_id, names[0]) for block_id, names in holders.items())


def _leaked(pool: BlockPool, shadow: Shadow) -> None:
    for block_id, count in enumerate(pool.ref_count):
        if count and block_id not in shadow.holders:
            what = f"block {block_id} is held by nobody any more, its ref_count is {count}"
            shadow.fail("leak", what, shadow.holder(block_id), block_id=block_id)


def _clean_tails(cache: KVCache, shadow: Shadow, owners: Sequence[Owner]) -> None:
    """Behind its written tokens, a sequence's own last blocks hold nothing."""
    size, tails = shadow.block_size, list[int]()
    for _, table, _ in owners:
        first = table.num_tokens
        for i in range(first // size, len(table.block_ids)):
            block_id = table.block_ids[i]
            if len(shadow.holders.get(block_id, ())) == 1 and block_id not in shadow.published:
                start = max(0, first - i * size)
                tails += range(block_id * size + start, (block_id + 1) * size)
    slots = np.array(tails, dtype=np.int64)
    slots = slots[shadow.flat["position"][slots] >= 0]
    if len(slots):
        cache.poison(slots.tolist())


def _check_rows(shadow: Shadow, tables: np.ndarray, owners: Sequence[Owner]) -> None:
    """A row of the batch is its sequence's own block table, and -1 behind it."""
    for row, (name, table, _) in zip(tables.tolist(), owners):
        ids = table.block_ids
        if row[: len(ids)] == ids and all(block_id == NO_BLOCK for block_id in row[len(ids) :]):
            continue
        right = ids + [NO_BLOCK] * (len(row) - len(ids))
        i = next((i for i, pair in enumerate(zip(row, right)) if pair[0] != pair[1]), len(row))
        has = f"its block table has {f'block {ids[i]}' if i < len(ids) else 'nothing'}"
        got = row[i] if i < len(row) else "nothing"
        shadow.fail("wrong-table", f"{has} as entry {i}, its row of the batch has {got}", name)


def _check_positions(shadow: Shadow, batch: PagedBatch, owners: Sequence[Owner]) -> None:
    """The new tokens of a row are at the positions that were reserved for them."""
    positions, starts = as_array(batch.positions), as_array(batch.query_start_loc).tolist()
    lens = as_array(batch.seq_lens).tolist()
    for i, (name, table, _) in enumerate(owners):
        if lens[i] != table.num_reserved:
            what = f"seq_lens is {lens[i]}, but {table.num_reserved} positions are reserved"
            shadow.fail("wrong-length", what, name)
        got = positions[starts[i] : starts[i + 1]].tolist()
        right = list(range(table.num_tokens, table.num_reserved))
        if got != right:
            what = f"computes positions {got}, reserved are {right}"
            shadow.fail("wrong-position", what, name)
