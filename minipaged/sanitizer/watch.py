"""Pools and caches that tell a shadow what is done to them; they do nothing else differently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from minipaged.cache import KVCache
from minipaged.core import BlockPool

from .poisoning import poison
from .shadow import Shadow, as_array

_Pool, _Cache = (BlockPool, KVCache) if TYPE_CHECKING else (object, object)


def watch(thing: Any, watcher: type, shadow: Shadow) -> None:
    """From now on every call on ``thing`` is told to ``shadow``; nothing else changes."""
    thing.__class__ = type(watcher.__name__, (watcher, type(thing)), {"shadow": shadow})


class WatchedPool(_Pool):
    """A pool whose blocks' births and deaths are noted, and whose promises are checked."""

    shadow: Shadow
    evicted: list[tuple[int, Any]]  # since the last step: blocks and the hashes they had

    def allocate(self, num_blocks: int = 1) -> list[int]:
        """As the pool; what was evicted must not be found by its old hash any more."""
        block_ids = super().allocate(num_blocks)
        for block_id in block_ids:
            if (name := self.shadow.born(block_id)) is not None:
                self.evicted.append((block_id, name))
        return block_ids

    def share(self, block_id: int) -> None:
        """As the pool; a free block lives on only if it is published."""
        shadow = self.shadow
        shadow.known([block_id], None, "shares")
        if self.is_free(block_id) and self.prefix_hash[block_id] is None:
            what = f"shares block {block_id}, which {shadow.story(block_id)}"
            shadow.fail("freed-share", what, shadow.holder(block_id), block_id=block_id)
        super().share(block_id)

    def release(self, block_id: int) -> None:
        """As the pool; only a held block can be freed."""
        shadow = self.shadow
        shadow.known([block_id], None, "frees")
        if self.ref_count[block_id] == 0:
            what = f"frees block {block_id}, whose ref_count is 0 already"
            shadow.fail("double-free", what, shadow.holder(block_id), block_id=block_id)
        super().release(block_id)
        self._note(block_id)

    def unpin(self, block_id: int) -> None:
        """As the pool."""
        super().unpin(block_id)
        self._note(block_id)

    def publish(self, block_id: int, prefix_hash: bytes, parent_hash: bytes | None) -> int:
        """As the pool; the block is written, and one prefix has one content."""
        self.shadow.publish([block_id], [prefix_hash])
        holder = super().publish(block_id, prefix_hash, parent_hash)
        if holder != block_id:
            self.shadow.unlist(block_id)
        return holder

    def forget_prefixes(self) -> None:
        """As the pool."""
        super().forget_prefixes()
        for block_id in list(self.shadow.published):
            self.shadow.unlist(block_id)
            self._note(block_id)

    def _note(self, block_id: int) -> None:
        if self.is_free(block_id) and self.prefix_hash[block_id] is None:
            self.shadow.died(block_id)


class WatchedCache(_Cache):
    """A cache whose writes and copies are noted when they are done, not when they are planned."""

    shadow: Shadow
    _last: tuple[Any, int, Any] = None, 0, None  # a step's slots, read back once for all layers

    def write(self, layer: int, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        """As the cache; only slots of the plan may be written."""
        known, step, slots = self._last
        if known is not slot_mapping or step != self.shadow.step:
            slots = as_array(slot_mapping)
            self._last = slot_mapping, self.shadow.step, slots
        self.shadow.wrote(slots)
        super().write(layer, key, value, slot_mapping)

    def swap_blocks(self, other: KVCache, pairs: Iterable[tuple[int, int]]) -> None:
        """As the cache; a copy's source was written and its destination is free for it."""
        pairs = list(pairs)
        if pairs and other is self:
            clean(self, self.shadow)
            self.shadow.copy(pairs)
        elif pairs and isinstance(other, WatchedCache):
            clean(other, other.shadow, [destination for _, destination in pairs])
            self.shadow.swap(other.shadow, pairs)
        super().swap_blocks(other, pairs)

    def poison(self, slots: Sequence[int]) -> None:
        """As the cache, for every type of numbers; the slots count as never written."""
        self.shadow.forget(slots)
        size = self.block_size
        for tensor in (self.key, self.value):
            poison(tensor, [s // size for s in slots], [s % size for s in slots])


def clean(cache: KVCache, shadow: Shadow, only: Iterable[int] | None = None) -> None:
    """Whatever was in blocks that were freed or handed out anew is gone, in the tensors too."""
    if done := shadow.settle(only):
        for tensor in (cache.key, cache.value):
            poison(tensor, done)
