"""vLLM's older cache for AMD's GPUs: keys cut into pieces of 16 bytes, values transposed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .indices import block_table, past_and_new
from .keywords import Keyworded, given
from .packing import array, guarded_rows, tensor
from .reading import dtype_of, integers, optional, rows, stated, tokens, total


class VLLMXPacked(Keyworded):
    """`chunked_prefill_paged_decode` of vLLM, with `context_attention_fwd` for the prefill.

    What differs from the native convention:

    - With x numbers to 16 bytes, keys are `[num_blocks, num_kv_heads, head_dim // x, block_size,
      x]` and values `[num_blocks, num_kv_heads, head_dim, block_size]`. Storage "interleaved
      values": with `use_interleaved_v_cache` the same memory holds
      `[num_blocks, num_kv_heads, block_size // x, head_dim, x]`.
    - The keys and values of this step come a second time, dense: `key` and `value` `[num_tokens,
      num_kv_heads, head_dim]`. A sequence of one query reads all from the cache, a longer one only
      what was before this step.
    - `sliding_window` counts the query itself; None is off. No softcap, no lse; always causal.
    - It writes to `output` and returns nothing.
    """

    name = "vllm_xpacked"
    features = Features(
        block_sizes=(8, 16, 32),
        head_dims=(8, 16, 24, 64, 80, 128),
        causal=(True,),
        right_window=False,
        softcap=False,
        queries_beyond_keys=False,
        lse=False,
        storages=("interleaved values",),
    )
    contract = Contract(empty_row="any")
    source = "vllm/v1/attention/ops/chunked_prefill_paged_decode.py; ops/prefix_prefill.py"
    options: ClassVar = {
        "alibi_slopes": ("alibi", False),
        "sliding_window": ("left_window", False),
        "sinks": ("sinks", False),
        "use_interleaved_v_cache": ("storages", ()),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        _, new = past_and_new(case)
        dense = (
            np.concatenate([x[part] for x, part in zip(many, new)])
            for many in (problem.key, problem.value)
        )
        interleaved = case.placement.storage == "interleaved values"
        key_cache, value_cache = self._caches(case, interleaved, device)
        shape = (len(case.flat_query), problem.num_heads, problem.value_head_dim)
        output, one = guarded_rows(shape, problem.dtype, device), tensor(1.0, device=device)
        args = (
            tensor(case.flat_query, problem.dtype, device),
            *(tensor(x, problem.dtype, device) for x in dense),
            output,
            "auto",
            key_cache,
            value_cache,
            block_table(case, device),
            tensor(case.query_start_loc, torch.int32, device),
            tensor(case.seq_lens, torch.int32, device),
            max(problem.kv_lens),
            max(problem.query_lens),
            one,
            one.clone(),
        )
        slopes, sinks = (
            None if x is None else tensor(x, torch.float32, device)
            for x in (spec.alibi_slopes, spec.sinks)
        )
        left = spec.window[0]
        kwargs = given(
            alibi_slopes=slopes,
            sliding_window=None if left is None else left + 1,
            sinks=sinks,
            use_interleaved_v_cache=True if interleaved else None,
        )
        kwargs["sm_scale"] = spec.scale
        return Call(args, kwargs, lambda _: (output, None), outputs=(output,))

    def _caches(self, case: Case, interleaved: bool, device: str) -> tuple[Tensor, Tensor]:
        guards, count = case.placement.guards, case.placement.num_blocks
        key, value = (case.pool(which, guards) for which in ("key", "value"))
        dtype, (blocks, size, heads, dim) = case.problem.dtype, key.shape
        x = pieces(dtype)
        key = key.reshape(blocks, size, heads, dim // x, x).transpose(0, 2, 3, 1, 4)
        if interleaved:
            cut = value.reshape(blocks, size // x, x, heads, dim).transpose(0, 3, 1, 4, 2)
            value = cut.reshape(blocks, heads, dim, size)
        else:
            value = value.transpose(0, 2, 3, 1)
        inner = slice(guards, guards + count)
        packed = (tensor(np.ascontiguousarray(m), dtype, device)[inner] for m in (key, value))
        return tuple(packed)  # pyright: ignore[reportReturnType]

    def refuses(self, *args: Any, **kwargs: Any) -> str:  # noqa: D102
        both = {"alibi_slopes", "sinks"} <= set(kwargs)
        return "no ALiBi together with sinks in a prefill" if both and args[11] > 1 else ""

    def read(  # noqa: D102
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        kv_cache_dtype: str,
        key_cache: Tensor,
        value_cache: Tensor,
        block_table: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        max_seq_len: int,
        max_query_len: int,
        k_scale: Tensor,
        v_scale: Tensor,
        *,
        alibi_slopes: Tensor | None = None,
        sliding_window: int | None = None,
        sm_scale: float,
        sinks: Tensor | None = None,
        use_interleaved_v_cache: bool = False,
    ) -> Problem:
        spec = Spec(
            sm_scale,
            window=(total(sliding_window), None),
            alibi_slopes=optional(alibi_slopes),
            sinks=optional(sinks),
        )
        queries, table = rows(query, query_start_loc), integers(block_table)
        pools = _keys(key_cache), _values(value_cache, use_interleaved_v_cache)
        many = []
        for pool, dense in zip(pools, (key, value)):
            olds, news = tokens(pool, table, integers(seq_lens)), rows(dense, query_start_loc)
            many.append([_newest(old, new) for old, new in zip(olds, news)])
        return stated(queries, many[0], many[1], spec, dtype_of(query))

    def write(self, outs, lses, *args, **kwargs) -> None:  # noqa: D102
        args[3].copy_(torch.from_numpy(outs))


def pieces(dtype: str) -> int:
    """Numbers of this dtype in 16 bytes."""
    return 16 // getattr(torch, dtype).itemsize


def _newest(cached: Any, new: Any) -> Any:
    """A sequence of several queries takes this step's tokens from the dense tensor."""
    return cached if len(new) < 2 else np.concatenate([cached[: len(cached) - len(new)], new])


def _keys(cache: Tensor) -> Any:
    """Number d of a key is at `[block, head, d // x, offset, d % x]`."""
    dim = cache.shape[2] * cache.shape[4]
    pool = array(cache)
    parts = [pool[:, :, d // cache.shape[4], :, d % cache.shape[4]] for d in range(dim)]
    return np.stack(parts, -1).swapaxes(1, 2)


def _values(cache: Tensor, interleaved: bool) -> Any:
    """Number d of a value: `[block, head, d, offset]`, or at a flat index within block and head."""
    blocks, heads, dim, size = cache.shape
    pool, x = array(cache), 16 // cache.element_size()
    if not interleaved:
        return np.stack([pool[:, :, d] for d in range(dim)], -1).swapaxes(1, 2)
    flat, d, offset = pool.reshape(blocks, heads, -1), np.arange(dim), np.arange(size)[:, None]
    return flat[:, :, offset // x * dim * x + d * x + offset % x].swapaxes(1, 2)
