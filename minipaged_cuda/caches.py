"""K and V on a GPU, or page-locked on its host: blocks are moved by kernels, and nobody waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minipaged.cache import KVCache
from minipaged.engine.transfer import to_device

from .buckets import Memory


class KernelCache(KVCache):
    """A cache whose blocks kernels copy, in the order of the stream.

    Args:
        shape: as ``KVCache``, up to ``head_dim``.
        memory: the device that the kernels run on.
        operations: has ``copy_blocks`` and ``swap_blocks``.
        on_host: lie in page-locked memory of the host, which the device reads and writes itself.
        options: as ``KVCache``.
    """

    def __init__(
        self, *shape: int, memory: Memory, operations: Any, on_host: bool = False, **options: Any
    ):
        super().__init__(*shape, device="meta" if on_host else memory.device, **options)
        self._memory, self._operations = memory, operations
        if on_host:  # the layout is known; the memory is of another kind
            self.key, self.value = (
                memory.host_memory(x.nbytes).view(x.dtype).as_strided(x.shape, x.stride())
                for x in (self.key, self.value)
            )

    def swap_blocks(self, other: KVCache, pairs: Iterable[tuple[int, int]]) -> None:
        """Copy blocks ``(mine, its)``; no block may be both read and written."""
        pairs = np.array(list(pairs), np.int32)
        if not pairs.size:
            return
        placed = to_device(pairs, self._memory.device)
        if other is self:
            self._operations.copy_blocks(self.key, self.value, placed)
            return
        for mine, its in ((self.key, other.key), (self.value, other.value)):
            self._operations.swap_blocks(mine, its, placed)
