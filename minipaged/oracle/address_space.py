"""Caches far larger than the machine's memory: address space that is given pages when touched.

An offset computed in 32 bits goes wrong only beyond 2^31 elements. Here that costs a few KiB.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, nameless before 3.13


class NoAddressSpace(Exception):
    """The system does not lend so much, or only in earnest."""


@dataclass
class SparseCache:
    """A cache in lazily mapped memory.

    Attributes:
        cache: The tensor; zeros where nothing was written.
        memory: All of the mapping, of the cache's type, one dimension. On both sides of the cache
            there is room for offsets that wrapped around.
        base: Where in `memory` the cache begins, in elements.
    """

    cache: Tensor
    memory: Tensor
    base: int

    def wrapped(self, *index: int) -> list[int]:
        """Places in `memory` where a 32-bit offset to `cache[index]` would land, if not right."""
        offset = sum(i * stride for i, stride in zip(index, self.cache.stride()))
        size = self.cache.element_size()
        # Signed and unsigned, counted in elements and in bytes.
        places = {_signed(offset), offset % 2**32}
        places |= {x // size for x in (_signed(offset * size), offset * size % 2**32)}
        inside = range(-self.base, len(self.memory) - self.base)
        return sorted(self.base + x for x in places - {offset} if x in inside)


def sparse_cache(
    num_blocks: int,
    block_shape: Sequence[int],
    dtype: torch.dtype = torch.bfloat16,
    block_stride: int | None = None,
) -> SparseCache:
    """A `[num_blocks, *block_shape]` cache, of which only touched pages take memory.

    Args:
        num_blocks: As many as it takes for the last one to lie beyond 2^31 elements.
        block_shape: `(block_size, num_kv_heads, head_dim)`, say.
        dtype: Of the cache.
        block_stride: Elements from one block to the next; the block's own size if None. A large one
            reaches far with a dozen blocks.

    Raises:
        NoAddressSpace: The system refuses.

    Examples:
        >>> import torch
        >>> pool = sparse_cache(20, (16, 2, 8), torch.int8, block_stride=2**27)
        >>> pool.cache.shape, pool.cache.stride(0) * 19 > 2**31
        (torch.Size([20, 16, 2, 8]), True)
        >>> pool.cache[19, 3, 1] = 7
        >>> int(pool.cache[19].sum())
        56
    """
    strides = [1]
    for size in reversed(block_shape):
        strides.insert(0, strides[0] * size)
    strides[0] = max(block_stride or 0, strides[0])
    base = min(2**31, num_blocks * strides[0])  # a signed wrap lands before the cache
    length = base + num_blocks * strides[0]
    memory = _map(length * dtype.itemsize).view(dtype)
    cache = memory.as_strided((num_blocks, *block_shape), strides, base)
    return SparseCache(cache, memory, base)


def _signed(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def _map(num_bytes: int) -> Tensor:
    try:
        if _NORESERVE:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
            return torch.frombuffer(mmap.mmap(-1, num_bytes, flags), dtype=torch.uint8)
        with tempfile.TemporaryFile() as file:  # the mapping keeps what it needs of it
            file.truncate(num_bytes)  # a sparse file, where the file system knows such
            return torch.frombuffer(mmap.mmap(file.fileno(), num_bytes), dtype=torch.uint8)
    except (OSError, ValueError, OverflowError, RuntimeError) as error:
        raise NoAddressSpace(f"no {num_bytes / 2**30:.0f} GiB of address space: {error}") from error
