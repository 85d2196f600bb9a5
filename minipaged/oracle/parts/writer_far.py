"""Writing beyond 2^31 and 2^32 elements, in memory of which only a few pages are ever touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..address_space import SparseCache, sparse_cache
from .judge import Judge
from .memory import Views, same_bits
from .writer_cases import WriteCase
from .writer_scaled import Scale, as_float64

BLOCK_SIZE, HEAD_DIM = 16, 8
FAR_BLOCKS, FAR_STRIDE = 18, 2**28 + 3 * 2**20  # elements from block to block


@dataclass(frozen=True)
class FarCase:
    """A cache beyond 2^32 elements: of few blocks far apart, or of many side by side."""

    layout: str

    def __str__(self) -> str:
        return f"a cache beyond 2^32 elements, {self.layout}"

    @classmethod
    def all(cls, layouts: Sequence[str]) -> Iterator[FarCase]:
        """Blocks far apart only where strides are allowed."""
        yield from (cls(kind) for kind in ("padded blocks", "packed") if kind in layouts)

    def cache(self, num_heads: int, dtype: torch.dtype) -> SparseCache:
        """One such cache.

        Raises:
            NoAddressSpace: The system refuses.
        """
        shape = BLOCK_SIZE, num_heads, HEAD_DIM
        if self.layout == "packed":
            return sparse_cache(2**32 // (BLOCK_SIZE * num_heads * HEAD_DIM) + 5, shape, dtype)
        return sparse_cache(FAR_BLOCKS, shape, dtype, FAR_STRIDE)


def far_inputs(
    case: FarCase, dtype: torch.dtype, num_heads: int
) -> tuple[WriteCase, tuple[SparseCache, SparseCache]]:
    """Tokens for both ends and the middle, beyond 2^31, and the caches.

    Raises:
        NoAddressSpace: The system refuses.
    """
    caches = case.cache(num_heads, dtype), case.cache(num_heads, dtype)
    num_blocks = len(caches[0].cache)
    end, sizes = num_blocks * BLOCK_SIZE, (num_blocks, BLOCK_SIZE, num_heads, HEAD_DIM, HEAD_DIM)
    key_dtype = dtype if dtype.itemsize > 1 else torch.float32
    return WriteCase(sizes, (end - 1, 3, end - 19, end * 2 // 3), dtype, key_dtype), caches


def compare_far(
    judge: Judge,
    case: WriteCase,
    rows: Views,
    scales: tuple[Scale, Scale],
    caches: tuple[SparseCache, SparseCache],
) -> None:
    """The tokens must be there, and nothing where a 32-bit offset would have put them.

    Raises:
        Broken: Something is not.
    """
    for name, x, scale, far in zip(("key", "value"), rows, scales, caches):
        for t, slot in enumerate(case.slots):
            place = slot // BLOCK_SIZE, slot % BLOCK_SIZE
            holds = _holds(far.cache[place], x[t], scale)
            hit = any(far.memory[i] != 0 for i in far.wrapped(*place))
            offset = place[0] * far.cache.stride(0)
            text = f"the {name} of slot {slot}, {offset:,} elements from the start, is not there"
            text += "; it lies where a 32-bit offset would put it" if hit else ""
            judge.require(holds and not hit, "address space", 6, text)


def _holds(found: Tensor, row: Tensor, scale: Scale) -> bool:
    if scale is None:
        return same_bits(found, row.to(found.dtype))
    scales = as_float64(torch.as_tensor(scale).reshape(-1, 1))
    wanted = as_float64(row)
    return bool((abs(as_float64(found) * scales - wanted) <= abs(wanted).max() / 4).all())
