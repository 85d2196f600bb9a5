"""Paged attention and cache writing on a CPU, compiled by Numba; knows torch tensors, no loops.

Same signatures and laws as the readable forms. Keys and values are read in place from a cache of
any strides, as long as the numbers of a head lie side by side.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from minipaged.attention import cpu_kernels, cpu_plan, cpu_write
from minipaged.attention.semantics import check_options, compute_dtype
from minipaged.attention.validation import check_shapes, walk
from minipaged.core.errors import InvalidBatch

# NumPy has no bfloat16, and Numba no float16 on a CPU: their bits are widened by the kernels.
_STORED = {torch.float32: "f4", torch.float64: "f8", torch.bfloat16: "i2", torch.float16: "u2"}


class NotCompiled(InvalidBatch, NotImplementedError):
    """A sound batch that only the readable forms compute."""


def cpu_paged_attention(
    query: Tensor,  # [num_tokens, num_heads, head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, value_head_dim]
    block_tables: Tensor,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens: Tensor,  # [num_seqs] int32, keys visible at the end of this step
    query_start_loc: Tensor,  # [num_seqs + 1] int32
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,  # [num_heads] float32
    sinks: Tensor | None = None,  # [num_heads] float32
    k_scale: Tensor | float | None = None,  # [num_kv_heads] float32
    v_scale: Tensor | float | None = None,  # [num_kv_heads] float32
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # [num_tokens, num_heads, value_head_dim]
    """`paged_attention`, fast: same arguments, same result up to rounding.

    A row's bits depend on its query and the keys that it sees alone: not on the rest of the batch,
    the chunking of a prompt, the placement or size of blocks, or the number of threads, which is
    the smaller of Numba's and torch's.

    Raises:
        InvalidBatch: As `paged_attention`; or a tensor that is not on the CPU, caches of a type
            other than float32, bfloat16, float16 or float64, a head whose numbers are not
            contiguous.
    """
    batch = block_tables, seq_lens, query_start_loc
    check_shapes(query, key_cache, value_cache, *batch, alibi_slopes, sinks, k_scale, v_scale)
    check_options(window, softcap)
    _check_caches(key_cache, value_cache)
    dtype = compute_dtype(query, key_cache)
    num_heads, num_kv_heads = query.shape[1], key_cache.shape[2]
    queries = query.to(dtype)
    queries = queries if queries.stride(2) == 1 else queries.contiguous()
    out = torch.zeros(*query.shape[:2], value_cache.shape[3], dtype=dtype)
    lse = torch.full(query.shape[:2], -torch.inf, dtype=dtype)
    tensors = [queries, key_cache, value_cache, out, lse]
    tensors += [tensor.contiguous() for tensor in batch]
    tensors += [_vector(x, num_heads, dtype) for x in (alibi_slopes, sinks)]
    tensors += [_vector(x, num_kv_heads, dtype) for x in (k_scale, v_scale)]
    problem = problem_of(tensors, causal=causal, window=window, scale=scale, softcap=softcap)
    if not cpu_plan.attend(problem, worker_address(key_cache.dtype, dtype), num_threads()):
        list(walk(len(query), key_cache.shape, *batch, window))  # this says what is wrong
        raise AssertionError("the compiled check and the readable one disagree")
    out = out.to(query.dtype)
    return (out, lse) if return_lse else out


def problem_of(
    tensors: list[Tensor | None],  # in the order of the first fields of `cpu_plan.PROBLEM`
    *,
    causal: bool = True,
    window: int | None = None,
    scale: float,
    softcap: float | None = None,
) -> np.ndarray:  # [1] cpu_plan.PROBLEM
    """A call as the compiled loops read it: addresses, which keep nothing alive, and numbers."""
    query, key_cache, value_cache, *_ = given = [x for x in tensors if x is not None]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    strides = query.stride()[:2] + key_cache.stride()[:3] + value_cache.stride()[:3]
    sizes = (*query.shape, value_cache.shape[3], *key_cache.shape[:3], *given[5].shape)
    plan = (0,) * 7
    problem = (*addresses, *strides, *sizes, causal, window or 0, *plan, scale, softcap or 0.0)
    return np.array([problem], cpu_plan.PROBLEM)


def worker_address(stored: torch.dtype, computed: torch.dtype) -> int:
    """The compiled worker for a cache of one type and sums of another."""
    worker: Any = cpu_kernels.worker(_STORED[stored], _STORED[computed])
    return worker.address


def cpu_write_kv(
    key: Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: Tensor,  # [num_tokens, num_kv_heads, value_head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, value_head_dim]
    slot_mapping: Tensor,  # [num_tokens] int64, -1 for tokens that are not kept
) -> None:
    """Store each token's key and value in its slot, `block_id * block_size + offset`.

    Raises:
        InvalidBatch: Sizes that contradict each other, or a slot that the cache does not have;
            nothing is written then.
    """
    _check_caches(key_cache, value_cache)
    if key_cache.shape[:3] != value_cache.shape[:3]:
        shapes = f"{tuple(key_cache.shape[:3])} and {tuple(value_cache.shape[:3])}"
        raise InvalidBatch(f"key_cache and value_cache begin with different sizes: {shapes}")
    for name, x, right, dtypes in (
        ("key", key, (len(key), *key_cache.shape[2:]), tuple(_STORED)),
        ("value", value, (len(key), *value_cache.shape[2:]), tuple(_STORED)),
        ("slot_mapping", slot_mapping, (len(key),), (torch.int64,)),
    ):
        if x.shape != right or x.dtype not in dtypes or x.device.type != "cpu":
            found = f"{x.dtype} {tuple(x.shape)} on {x.device}"
            raise InvalidBatch(f"{name} is {found}, not {dtypes[0]} {right} on cpu")
    slots = slot_mapping.contiguous()
    for rows, stored in ((key, key_cache), (value, value_cache)):
        rows = rows.to(stored.dtype)
        rows = rows if rows.stride(2) == 1 else rows.contiguous()
        size, (num_blocks, block_size, num_heads, dim) = stored.element_size(), stored.shape
        source = rows.data_ptr(), *(size * stride for stride in rows.stride()[:2])
        target = stored.data_ptr(), *(size * stride for stride in stored.stride()[:3])
        shape = len(rows), num_heads, dim * size, block_size, num_blocks * block_size
        arguments = (*source, *target, slots.data_ptr(), shape)
        bad_slot = cpu_write.write_rows(*arguments)
        if bad_slot != -1:
            raise InvalidBatch(f"slot {bad_slot} is not one of {num_blocks * block_size} slots")


def warm_up(dtype: torch.dtype = torch.float32) -> float:
    """Compile what caches of this type need, or load it from disk; returns the seconds taken."""
    begin = time.perf_counter()
    key_cache, value_cache = torch.zeros(2, 1, 1, 1, 16, dtype=dtype)
    token, slot = key_cache[0], torch.zeros(1, dtype=torch.int64)
    cpu_write_kv(token, token, key_cache, value_cache, slot)
    one, start = torch.ones(1, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    table = torch.zeros(1, 1, dtype=torch.int32)
    cpu_paged_attention(token, key_cache, value_cache, table, one, start, scale=1.0)
    return time.perf_counter() - begin


def num_threads() -> int:
    """How many threads a call may use: Numba's or torch's setting, whichever is smaller."""
    _start_threads()
    return min(numba.get_num_threads(), torch.get_num_threads())


@cache
def _start_threads() -> None:
    """Numba sets the number of OpenMP threads when it first starts them, torch's too: undo that."""
    threads_of_torch = torch.get_num_threads()
    numba.get_num_threads()
    torch.set_num_threads(threads_of_torch)


def _check_caches(*caches: Tensor) -> None:
    for tensor in caches:
        if tensor.device.type != "cpu" or tensor.dtype not in _STORED:
            found = f"{tensor.dtype} on {tensor.device}"
            raise NotCompiled(f"the CPU kernels read {list(_STORED)} on a cpu, not {found}")
        if tensor.stride(-1) != 1 or tensor.dtype != caches[0].dtype:
            raise InvalidBatch(
                f"key and value caches must be of one type, with the numbers of a head side by "
                f"side; one is {tensor.dtype} with strides {tensor.stride()}"
            )


def _vector(value: Tensor | float | None, size: int, dtype: torch.dtype) -> Tensor | None:
    """A number per head as the kernels read it."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        return value.to(dtype).contiguous()
    return torch.full((size,), value, dtype=dtype)
