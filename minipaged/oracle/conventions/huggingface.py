"""Hugging Face transformers' continuous batching: gathered keys and an additive mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .indices import past_and_new, token_slots, without_new
from .keywords import Keyworded
from .packing import array, tensor
from .reading import dtype_of, integers, stated
from .sglang import dense


class HuggingFace(Keyworded):
    """One layer of transformers' continuous batching with SDPA: write, gather, attend.

    What differs from the native convention:

    - The caches are flat, `[num_slots, num_kv_heads, head_dim]`, and hold what was before this
      step. The kernel writes `key` and `value` of this step to the slots of `write_index`, and
      then gathers the slots of `read_index`: all keys of all sequences, one after another.
    - Queries are one batch row of all tokens, `[1, num_heads, num_tokens, head_dim]`, and
      `attention_mask` `[1, 1, num_tokens, len(read_index)]` is added to the scores: 0, or the
      smallest number of the dtype. It keeps sequences apart and says everything else: the causal
      diagonal, a window (which counts the query itself), a tree.
    - `cu_seq_lens_q` and `cu_seq_lens_k` say where sequences begin.
    - It returns the output `[1, num_tokens, num_heads, head_dim]`, no lse. A row that sees nothing
      is anything. Neither softcap, ALiBi nor sinks.
    """

    name = "hf"
    features = Features(
        query_len=(1, 12),
        kv_len=(1, 50),
        softcap=False,
        alibi=False,
        sinks=False,
        masks=("tree", "random"),
        queries_beyond_keys=False,
        lse=False,
    )
    contract = Contract(empty_row="any")
    source = "transformers/generation/continuous_batching/cache.py, utils.py; sdpa_attention.py"

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, dtype = case.problem, case.problem.dtype
        _, new = past_and_new(case)
        everything = [slice(None)] * problem.num_seqs
        shape = (1, 1, len(case.flat_query), sum(problem.kv_lens))
        smallest = torch.finfo(getattr(torch, dtype)).min
        mask = torch.full(shape, smallest, dtype=getattr(torch, dtype), device=device)
        column, starts = np.cumsum([0, *problem.kv_lens]), case.query_start_loc
        for s in range(problem.num_seqs):
            block = mask[0, 0, starts[s] : starts[s + 1], column[s] : column[s + 1]]
            block[tensor(problem.visible(s), torch.bool, device)] = 0
        flat = (
            tensor(without_new(case, case.pool(which), which), dtype, device).flatten(0, 1)
            for which in ("key", "value")
        )
        args = (
            tensor(case.flat_query.swapaxes(0, 1)[None], dtype, device),
            *(
                dense(many, new, dtype, device).transpose(0, 1)[None]
                for many in (problem.key, problem.value)
            ),
            *flat,
            tensor(token_slots(case, everything), torch.int64, device),
            tensor(token_slots(case, new), torch.int64, device),
            mask,
        )
        kwargs = {
            "scaling": problem.spec.scale,
            "cu_seq_lens_q": tensor(starts, torch.int32, device),
            "cu_seq_lens_k": tensor(column, torch.int32, device),
        }
        return Call(args, kwargs, lambda out: (out[0], None), scratch=args[3:5])

    def read(  # noqa: D102
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        read_index: Tensor,
        write_index: Tensor,
        attention_mask: Tensor,
        *,
        scaling: float,
        cu_seq_lens_q: Tensor,
        cu_seq_lens_k: Tensor,
    ) -> Problem:
        seen = attention_mask[0, 0].cpu() == 0
        pools = []
        for cache, fresh in ((key_cache, key), (value_cache, value)):
            pool = array(cache).copy()
            pool[integers(write_index)] = array(fresh[0].transpose(0, 1))
            pools.append(pool[integers(read_index)])
        queries = array(query[0].transpose(0, 1))
        q, k = integers(cu_seq_lens_q), integers(cu_seq_lens_k)
        parts = list(zip(map(slice, q, q[1:]), map(slice, k, k[1:])))
        spec = Spec(scaling, causal=False, masks=tuple(seen[a, b].numpy() for a, b in parts))
        keys, values = ([pool[b] for _, b in parts] for pool in pools)
        return stated([queries[a] for a, _ in parts], keys, values, spec, dtype_of(query))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        return torch.from_numpy(outs)[None].to(args[0])
