"""Cases as torch tensors, in the memory orders that caches have; knows no library's arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..address_space import sparse_cache
from ..cases import Case, Which
from ..truth.problem import Array

ORDERS = ("NHD", "HND", "padded", "interleaved", "side by side", "mixed")


def tensor(x: Any, dtype: str | torch.dtype = "float32", device: str = "cpu") -> Tensor:
    """Numbers on the grid of `dtype` as a tensor of it; int4 numbers come as int8."""
    name = {"int4": "int8", "tfloat32": "float32"}.get(str(dtype), dtype)
    as_dtype = getattr(torch, name) if isinstance(name, str) else name
    return torch.tensor(np.asarray(x)).to(as_dtype).to(device)


def array(x: Any) -> Array:
    """A tensor or array of any float dtype as float64, exactly."""
    if isinstance(x, Tensor):
        return x.detach().cpu().to(torch.float64).numpy()
    return np.asarray(x, dtype=np.float64)


def caches(case: Case, order: str = "NHD", device: str = "cpu") -> tuple[Tensor, Tensor]:
    """`[num_blocks, block_size, num_kv_heads, dim]` views of the keys' and the values' memory.

    The shape is the same in every order, the strides are not:

    - "NHD": a token's heads together; "HND": a head's tokens together.
    - "mixed": the keys are NHD, the values HND.
    - "padded": a gap of one token after every block.
    - "interleaved": a block's keys, then its values, then the next block.
    - "side by side": a token's key and value in one row, head by head.
    - "far": one block so far from the next that half of the pool lies beyond 2^31 elements.

    Guard blocks lie before and after the pool in the same memory; they and all gaps are poison.
    """
    if order == "far" or case.is_far("key") or case.is_far("value"):
        return _far(case, "key", order, device), _far(case, "value", order, device)
    guards = case.placement.guards
    key, value = case.pool("key", guards), case.pool("value", guards)
    inner = slice(guards, guards + case.placement.num_blocks)
    dtypes = case.stored_dtype("key"), case.stored_dtype("value")
    if order in ("interleaved", "side by side") and dtypes[0] == dtypes[1]:
        dims, memory = (key.shape[-1], value.shape[-1]), _joined(case, key, value, order)
        both = tensor(memory, dtypes[0], device)[inner]
        if order == "interleaved":
            return both[:, 0, ..., : dims[0]], both[:, 1, ..., : dims[1]]
        return both[..., : dims[0]], both[..., dims[0] :]
    if order in ("HND", "mixed"):
        turned = tensor(value.swapaxes(1, 2).copy(), dtypes[1], device)[inner].transpose(1, 2)
        if order == "mixed":
            return tensor(key, dtypes[0], device)[inner], turned
        return tensor(key.swapaxes(1, 2).copy(), dtypes[0], device)[inner].transpose(1, 2), turned
    if order == "padded":
        key, value = (
            np.concatenate([x, _gap(case, x, d)], 1) for x, d in zip((key, value), dtypes)
        )
    size = case.placement.block_size
    pair = (tensor(x, d, device)[inner, :size] for x, d in zip((key, value), dtypes))
    return tuple(pair)  # pyright: ignore[reportReturnType]


def _far(case: Case, which: Which, order: str, device: str) -> Tensor:
    """A cache of which only the blocks in use are ever touched; what is beside them is poison."""
    place, dtype = case.placement, case.stored_dtype(which)
    codes = case.codes(which)
    tokens = codes.numbers if codes else getattr(case.problem, which)
    shape = place.block_size, *tokens[0].shape[1:]
    stride = 2**32 // place.num_blocks if order == "far" else None
    memory = sparse_cache(place.num_blocks, shape, getattr(torch, dtype), stride)
    for block in {b for row in place.block_ids for b in row}:
        memory.cache[block] = tensor(case.poison(shape, dtype, which), dtype)
        # Where an offset of 32 bits would land instead, if that is in this memory.
        for start in memory.wrapped(block):
            span = memory.memory[start : start + math.prod(shape)]
            span.copy_(tensor(case.poison(tuple(span.shape), dtype, "wrapped"), dtype))
    for s, stored in enumerate(tokens):
        for i, block in enumerate(place.block_ids[s]):
            part = stored[i * place.block_size : (i + 1) * place.block_size]
            memory.cache[block, : len(part)] = tensor(part, dtype)
    return memory.cache.to(device)


def _joined(case: Case, key: Array, value: Array, order: str) -> Array:
    if order == "side by side":
        return np.concatenate([key, value], -1)
    wide = max(key.shape[-1], value.shape[-1])
    shape = len(key), 2, *key.shape[1:3], wide
    memory = case.poison(shape, case.stored_dtype("key"), "gap")
    memory[:, 0, ..., : key.shape[-1]], memory[:, 1, ..., : value.shape[-1]] = key, value
    return memory


def _gap(case: Case, pool: Array, dtype: str) -> Array:
    return case.poison((len(pool), 1, *pool.shape[2:]), dtype, "gap")


def within_wider(x: Tensor, dim: int, beside: float) -> Tensor:
    """The same numbers as a view of a tensor three wider in `dim`, which holds `beside` there."""
    shape = list(x.shape)
    shape[dim] += 3
    wide = torch.full(shape, beside, dtype=x.dtype, device=x.device)
    inner = wide.narrow(dim, 1, x.shape[dim])
    inner.copy_(x)
    return inner


def guarded_rows(shape: tuple[int, ...], dtype: str, device: str = "cpu") -> Tensor:
    """An output buffer of NaN in the middle of a larger memory, two rows of NaN on both sides."""
    whole = torch.full((shape[0] + 4, *shape[1:]), torch.nan, device=device)
    return tensor(whole.cpu(), dtype, device)[2 : 2 + shape[0]]
