"""OpenVINO's PagedAttentionExtension on a CPU: it writes this step's keys and values itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..cases import Case
from ..contract import Features
from ..truth import Problem, Spec
from ..truth.problem import Array
from .base import Call
from .indices import page_lists, past_and_new, without_new
from .keywords import Keyworded
from .reading import integers, lists, optional, rows, stated, tokens, total


class OpenVINO(Keyworded):
    """`PagedAttentionExtension` on a CPU, its inputs by name as float32 NumPy arrays.

    What differs from the native convention:

    - The caches are `[num_blocks, num_kv_heads, 32, head_dim]` and hold what was before this step:
      where its own keys and values go, they hold poison. Those come dense, and the op writes them.
    - Queries, keys, values and output have the heads side by side: `[num_tokens, heads * dim]`.
    - `past_lens` does not count this step. Blocks are the rows of a CSR matrix, `block_indices`
      and `block_indices_begins`; `subsequence_begins` is `query_start_loc`.
    - `sliding_window` counts the query itself; 0 is off. `alibi_slopes` and `sinks` of size 0 are
      off; sinks are `[1, num_heads, 1, 1]`.
    - Always causal, no more queries than keys, no softcap, no lse.
    """

    name = "openvino"
    features = Features(
        dtypes=("float32",),
        block_sizes=(32,),
        head_dims=(8, 16, 64, 80, 128),
        query_len=(1, 12),  # a step of no tokens is refused, in a batch 0 would do
        kv_len=(1, 100),
        causal=(True,),
        right_window=False,
        softcap=False,
        queries_beyond_keys=False,
        lse=False,
    )
    source = "openvino src/core/dev_api/openvino/op/paged_attention.hpp; intel_cpu paged_attn.cpp"
    options: ClassVar = {
        "sliding_window": ("left_window", False),
        "alibi_slopes": ("alibi", False),
        "sinks": ("sinks", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        past, new = past_and_new(case)
        indptr, indices, _ = page_lists(case)
        caches = (
            without_new(case, case.pool(which), which).swapaxes(1, 2) for which in ("key", "value")
        )
        fresh = (
            np.concatenate([x[part] for x, part in zip(many, new)])
            for many in (problem.key, problem.value)
        )
        left, slopes, sinks = spec.window[0], spec.alibi_slopes, spec.sinks
        kwargs = dict(
            query=_floats(_side_by_side(case.flat_query)),
            **dict(zip(("key", "value"), (_floats(_side_by_side(x)) for x in fresh))),
            **dict(zip(("key_cache", "value_cache"), map(_floats, caches))),
            past_lens=_ints([part.stop for part in past]),
            subsequence_begins=_ints(case.query_start_loc),
            block_indices=_ints(indices),
            block_indices_begins=_ints(indptr),
            scale=np.float32(spec.scale),
            sliding_window=np.int32(0 if left is None else left + 1),
            alibi_slopes=_floats([] if slopes is None else slopes),
            max_context_len=np.int32(max(problem.kv_lens)),
            sinks=_floats([] if sinks is None else sinks.reshape(1, -1, 1, 1)),
        )
        shape = (len(case.flat_query), problem.num_heads, problem.value_head_dim)
        written = kwargs["key_cache"], kwargs["value_cache"]
        return Call((), kwargs, lambda out: (out.reshape(shape), None), scratch=written)

    def read(  # noqa: D102
        self,
        *,
        query: Any,
        key: Any,
        value: Any,
        key_cache: Any,
        value_cache: Any,
        past_lens: Any,
        subsequence_begins: Any,
        block_indices: Any,
        block_indices_begins: Any,
        scale: Any,
        sliding_window: Any = 0,
        alibi_slopes: Any = (),
        max_context_len: Any,
        sinks: Any = (),
    ) -> Problem:
        heads, ids = key_cache.shape[1], lists(block_indices, block_indices_begins)
        many = []
        for cache, fresh in ((key_cache, key), (value_cache, value)):
            olds = tokens(cache.swapaxes(1, 2), ids, integers(past_lens))
            news = rows(fresh.reshape(len(fresh), heads, cache.shape[3]), subsequence_begins)
            many.append([np.concatenate(x) for x in zip(olds, news)])
        dim = key_cache.shape[3]
        queries = query.reshape(len(query), query.shape[1] // dim, dim)
        spec = Spec(
            float(scale),
            window=(total(int(sliding_window)), None),
            alibi_slopes=optional(alibi_slopes) if np.size(alibi_slopes) else None,
            sinks=optional(sinks) if np.size(sinks) else None,
        )
        return stated(rows(queries, subsequence_begins), many[0], many[1], spec, "float32")

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        return _floats(outs.reshape(len(outs), -1))


def _side_by_side(x: Array) -> Array:
    return x.reshape(len(x), x.shape[1] * x.shape[2])


def _floats(x: Any) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=np.float32)


def _ints(x: Any) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=np.int32)
