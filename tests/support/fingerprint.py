"""Fake K and V that betray every mix-up, and two caches that hold them.

In a real model the K and V of a position depend on *all* tokens before it. A fake that depends on
the token alone cannot tell [0, 0, 1] from [1, 1, 1] at position 2, and a block of another prefix
would pass for the right one. So here a slot holds the fingerprint of a whole ``Prefix``.

    ListCache     a slot holds the prefix itself: fast, for millions of slots
    TensorCache   a slot holds numbers made from it, in a real ``KVCache``: for the real code path

A slot that nobody wrote, or nobody may read any more, holds None or NaN: never a harmless zero.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minipaged.cache import KVCache, PagedBatch
from minipaged.core import BlockTable

NUM_LAYERS, NUM_KV_HEADS, HEAD_DIM, VALUE_HEAD_DIM = 2, 2, 2, 1


class Prefix(NamedTuple):
    """All that K and V of one position may depend on; the last token is the position's own."""

    tokens: tuple[int, ...]
    salt: str | None = None
    weights: int = 0  # which weights computed it


@functools.cache
def fake_kv(prefix: Prefix) -> tuple[Tensor, Tensor]:
    """K ``[layers, heads, dim]`` and V ``[layers, heads, value dim]``, of this prefix only."""
    digest = torch.tensor(list(sha256(repr(tuple(prefix)).encode()).digest()), dtype=torch.float32)
    split = NUM_LAYERS * NUM_KV_HEADS * HEAD_DIM
    key = digest[:split].view(NUM_LAYERS, NUM_KV_HEADS, HEAD_DIM)
    value = digest[split : split + NUM_LAYERS * NUM_KV_HEADS * VALUE_HEAD_DIM]
    return key, value.view(NUM_LAYERS, NUM_KV_HEADS, VALUE_HEAD_DIM)


def _stack(prefixes: Iterable[Prefix]) -> tuple[Tensor, Tensor]:
    """K and V of several positions, ``[layers, positions, heads, dim]``."""
    keys, values = zip(*map(fake_kv, prefixes))
    return torch.stack(keys, 1), torch.stack(values, 1)


class ListCache:
    """One Python list: slot -> the prefix whose K and V it holds."""

    def __init__(self, num_blocks: int, block_size: int):
        self.block_size = block_size
        self.slots: list[Prefix | None] = [None] * (num_blocks * block_size)

    def clone(self) -> ListCache:
        twin = ListCache(0, self.block_size)
        twin.slots = self.slots.copy()
        return twin

    def write(self, tables: Sequence[BlockTable], prefixes: Sequence[Prefix]) -> None:
        """What a step computes: the reserved, unwritten positions of ``tables``, one by one."""
        slots = [slot for t in tables for slot in t.slots(t.num_tokens, t.num_reserved)]
        for slot, prefix in zip(slots, prefixes, strict=True):
            self.slots[slot] = prefix

    def first_misread(self, table: BlockTable, prefixes: Sequence[Prefix]) -> int | None:
        """The first position at which ``table`` does not read what it should."""
        first = table.num_dropped * self.block_size
        slots = table.slots(first, len(prefixes))
        pairs = zip(range(first, len(prefixes)), slots)
        return next((p for p, slot in pairs if self.slots[slot] != prefixes[p]), None)

    def copy(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.swap(self, pairs)

    def swap(self, other: Any, pairs: Iterable[tuple[int, int]]) -> None:
        size = self.block_size
        moved = [(its, self.slots[mine * size : (mine + 1) * size]) for mine, its in pairs]
        for its, content in moved:
            other.slots[its * size : (its + 1) * size] = content

    def wrong(self, expected: dict[int, Prefix]) -> list[int]:
        """The slots that do not hold what they should."""
        return [slot for slot, prefix in expected.items() if self.slots[slot] != prefix]

    def poison(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.slots[slot] = None


class TensorCache:
    """A real ``KVCache``, addressed through a real ``PagedBatch``."""

    def __init__(self, num_blocks: int, block_size: int):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.kv = KVCache(
            NUM_LAYERS,
            num_blocks,
            block_size,
            NUM_KV_HEADS,
            HEAD_DIM,
            value_head_dim=VALUE_HEAD_DIM,
            sanitize=True,
        )

    def clone(self) -> TensorCache:
        twin = TensorCache(self.num_blocks, self.block_size)
        twin.kv.key.copy_(self.kv.key)
        twin.kv.value.copy_(self.kv.value)
        return twin

    def write(self, tables: Sequence[BlockTable], prefixes: Sequence[Prefix]) -> None:
        batch = PagedBatch.build(tables)
        batch.validate(self.num_blocks, self.block_size)
        assert len(batch.positions) == len(prefixes)
        if not prefixes:
            return
        keys, values = _stack(prefixes)
        for layer in range(NUM_LAYERS):
            self.kv.write(layer, keys[layer], values[layer], batch.slot_mapping)

    def first_misread(self, table: BlockTable, prefixes: Sequence[Prefix]) -> int | None:
        first = table.num_dropped * self.block_size
        if first == len(prefixes):
            return None
        keys, values = _stack(prefixes[first:])
        good = torch.ones(len(prefixes) - first, dtype=torch.bool)
        for layer in range(NUM_LAYERS):
            key, value = self.kv.gather(layer, table.block_ids[table.num_dropped :], len(good))
            good &= (key == keys[layer]).flatten(1).all(1)
            good &= (value == values[layer]).flatten(1).all(1)
        return None if good.all() else first + int(good.logical_not().nonzero()[0])

    def copy(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.kv.copy_blocks(pairs)

    def swap(self, other: Any, pairs: Iterable[tuple[int, int]]) -> None:
        self.kv.swap_blocks(other.kv, pairs)

    def wrong(self, expected: dict[int, Prefix]) -> list[int]:
        if not expected:
            return []
        slots = torch.tensor(list(expected))
        block, offset = slots // self.block_size, slots % self.block_size
        keys, values = _stack(expected.values())
        good = (self.kv.key[:, block, offset] == keys).transpose(0, 1).flatten(1).all(1)
        good &= (self.kv.value[:, block, offset] == values).transpose(0, 1).flatten(1).all(1)
        return slots[~good].tolist()

    def poison(self, slots: Iterable[int]) -> None:
        self.kv.poison(list(slots))
