"""ONNX Runtime's `com.microsoft.PagedAttention`: it writes this step's keys and values itself."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .indices import block_table, past_and_new, without_new
from .keywords import Keyworded, given
from .packing import tensor
from .reading import dtype_of, integers, optional, rows, stated, tokens, total
from .sglang import dense


class OnnxRuntime(Keyworded):
    """`com.microsoft.PagedAttention`: inputs are positional, attributes are keywords.

    What differs from the native convention:

    - Queries, keys, values and output have the heads side by side: `[num_tokens, heads * dim]`,
      and `num_heads` and `kv_num_heads` are attributes.
    - The caches hold what was before this step; where its own keys and values go, they hold
      poison. The operator writes them. `past_seqlens` does not count this step.
    - `block_table` is negative where there is no block.
    - `local_window_size` counts the query itself; -1 is off. `softcap` 0 is off. Always causal.
    - `head_sink`: a logit per head. It returns the output alone; no lse, no ALiBi.
    """

    name = "onnx"
    features = Features(
        causal=(True,),
        right_window=False,
        alibi=False,
        kv_len=(1, 50),
        queries_beyond_keys=False,
        lse=False,
    )
    contract = Contract(padding="-1")
    source = "onnxruntime/contrib_ops/cuda/bert/paged_attention.cc, paged_attention_impl.cu"
    options: ClassVar = {
        "local_window_size": ("left_window", False),
        "softcap": ("softcap", False),
        "head_sink": ("sinks", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec, dtype = case.problem, case.problem.spec, case.problem.dtype
        past, new = past_and_new(case)
        caches = (
            tensor(without_new(case, case.pool(which), which), dtype, device)
            for which in ("key", "value")
        )
        args = (
            tensor(case.flat_query, dtype, device).flatten(1),
            dense(problem.key, new, dtype, device).flatten(1),
            dense(problem.value, new, dtype, device).flatten(1),
            *caches,
            tensor(case.query_start_loc, torch.int32, device),
            tensor([part.stop for part in past], torch.int32, device),
            block_table(case, device),
        )
        left, sinks = spec.window[0], spec.sinks
        kwargs = given(
            num_heads=problem.num_heads,
            kv_num_heads=problem.num_kv_heads,
            scale=spec.scale,
            softcap=spec.softcap,
            local_window_size=None if left is None else left + 1,
            head_sink=None if sinks is None else tensor(sinks, device=device),
        )
        shape = problem.num_heads, problem.value_head_dim
        return Call(args, kwargs, lambda out: (out.unflatten(1, shape), None), scratch=args[3:5])

    def read(  # noqa: D102
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        cumulative_sequence_length: Tensor,
        past_seqlens: Tensor,
        block_table: Tensor,
        *,
        num_heads: int,
        kv_num_heads: int,
        scale: float = 0.0,
        softcap: float = 0.0,
        local_window_size: int = -1,
        head_sink: Tensor | None = None,
    ) -> Problem:
        news, size = integers(cumulative_sequence_length.diff()), key_cache.shape[1]
        table, many = integers(block_table), []
        for cache, fresh in ((key_cache, key), (value_cache, value)):
            cache, at = cache.clone(), 0
            for row, past, count in zip(table, integers(past_seqlens), news):
                for p in range(past, past + count):
                    cache[row[p // size], p % size] = fresh[at].reshape(kv_num_heads, -1)
                    at += 1
            lengths = (past_seqlens + cumulative_sequence_length.diff()).tolist()
            many.append(tokens(cache, table, lengths))
        heads = query.reshape(len(query), num_heads, key_cache.shape[3])
        spec = Spec(
            scale or key_cache.shape[3] ** -0.5,
            window=(total(max(local_window_size, 0)), None),
            softcap=softcap or None,
            sinks=optional(head_sink),
        )
        queries = rows(heads, cumulative_sequence_length)
        return stated(queries, many[0], many[1], spec, dtype_of(query))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        return torch.from_numpy(outs).to(args[0]).flatten(1)
