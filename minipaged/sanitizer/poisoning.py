"""Fills slots that nobody may read with the loudest number of their type; knows tensors only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_NO_HOLES = slice(None)


def loudest(dtype: torch.dtype) -> int | float:
    """NaN where the type has it; else the number that is farthest from all that are stored.

    Examples:
        >>> loudest(torch.float16), loudest(torch.int8), loudest(torch.uint8)
        (nan, -128, 255)
    """
    if dtype.is_floating_point:
        return torch.nan
    info = torch.iinfo(dtype)
    return info.min if info.min < 0 else info.max  # 255 is NaN in both 8-bit float formats


def poison(
    cache: Tensor,  # [num_layers, num_blocks, block_size, num_kv_heads, head_dim]
    block_ids: Sequence[int],
    offsets: Sequence[int] | None = None,  # one per block; None: the whole blocks
) -> None:
    """Make slots of all layers unfit to be read: whoever does is found out in his numbers."""
    number = torch.tensor(loudest(cache.dtype)).to(cache.dtype)
    if cache.dtype.itemsize == 1:  # as bytes: 8-bit floats know no indexing
        cache, number = cache.view(torch.uint8), number.view(torch.uint8)
    blocks = torch.tensor(block_ids, dtype=torch.int64, device=cache.device)
    within = _NO_HOLES
    if offsets is not None:
        within = torch.tensor(offsets, dtype=torch.int64, device=cache.device)
    cache[:, blocks, within] = number.to(cache.device)
