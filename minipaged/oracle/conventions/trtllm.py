"""TensorRT-LLM's kernels, as FlashInfer offers them: HND pages and dense tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .flashinfer import joined_pages
from .indices import block_table, starts
from .keywords import Keyworded, given
from .packing import tensor
from .reading import dtype_of, integers, optional, rows, scaled, side, stated, tokens


class TRTLLM(Keyworded):
    """`trtllm_batch_context_with_kv_cache`: TensorRT-LLM's kernels as FlashInfer has them.

    What differs from the native convention:

    - `kv_cache` is `[num_pages, 2, num_kv_heads, page_size, head_dim]` with a table for both; or,
      with `uses_shared_paged_kv_idx=False` (storage "separate rows"), `[num_pages, 1, ...]` with
      tables `[batch_size, 2, max_pages]`, the pages of the keys and those of the values, as
      TensorRT-LLM itself has them.
    - `bmm1_scale` is the softmax scale (times the scale of quantised keys, which are not judged
      here), `bmm2_scale` multiplies the output.
    - `window_left` does not count the query itself; -1 is off. Without `causal` there is none.
    - The lse is to base 2. Neither softcap nor ALiBi.
    """

    name = "trtllm"
    features = Features(
        block_sizes=(16, 32, 64),
        kv_len=(0, 100),
        right_window=False,
        softcap=False,
        alibi=False,
        storages=("separate rows",),
    )
    contract = Contract(lse_base="2")
    source = "flashinfer/prefill.py trtllm_batch_context_with_kv_cache; tensorrt_llm kvCacheUtils.h"
    options: ClassVar = {
        "window_left": ("left_window", False),
        "sinks": ("sinks", False),
        "causal": ("causal", (True,)),
        "uses_shared_paged_kv_idx": ("storages", ()),
        "return_lse": ("lse", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        separate = case.placement.storage == "separate rows"
        cache, tables = _separate(case, device) if separate else _shared(case, device)
        args = (
            tensor(case.flat_query, problem.dtype, device),
            cache,
            torch.zeros(16, dtype=torch.uint8, device=device),
            tables,
            tensor(case.seq_lens, torch.int32, device),
            max(problem.query_lens),
            max(problem.kv_lens),
            spec.scale,
            1.0,
            problem.num_seqs,
            tensor(case.query_start_loc, torch.int32, device),
            tensor(starts(problem.kv_lens), torch.int32, device),
        )
        kwargs = given(
            window_left=spec.window[0],
            sinks=None if spec.sinks is None else [tensor(spec.sinks, device=device)],
            causal=None if spec.causal else False,
            uses_shared_paged_kv_idx=False if separate else None,
            return_lse=True,
        )
        return Call(args, kwargs, scratch=(args[2],))

    def refuses(self, *args: Any, **kwargs: Any) -> str:  # noqa: D102
        no_window = kwargs.get("causal", True) or kwargs.get("window_left", -1) < 0
        return "" if no_window else "without causal, there is no window"

    def read(  # noqa: D102
        self,
        query: Tensor,
        kv_cache: Tensor,
        workspace_buffer: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        max_q_len: int,
        max_kv_len: int,
        bmm1_scale: float,
        bmm2_scale: float,
        batch_size: int,
        cum_seq_lens_q: Tensor,
        cum_seq_lens_kv: Tensor,
        *,
        window_left: int = -1,
        sinks: list[Tensor] | None = None,
        uses_shared_paged_kv_idx: bool = True,
        causal: bool = True,
        return_lse: bool = False,
    ) -> Problem:
        pages = kv_cache.transpose(2, 3)
        lengths = integers(seq_lens)
        if uses_shared_paged_kv_idx:
            tables = [integers(block_tables)] * 2
        else:
            tables = [integers(block_tables[:, which]) for which in (0, 1)]
        key = tokens(pages[:, 0], tables[0], lengths)
        value = scaled(tokens(pages[:, -1], tables[1], lengths), bmm2_scale)
        window = side(window_left), None
        spec = Spec(bmm1_scale, causal, window, sinks=optional(sinks[0] if sinks else None))
        return stated(rows(query, cum_seq_lens_q), key, value, spec, dtype_of(query))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        out = torch.from_numpy(outs).to(args[0])
        if not kwargs.get("return_lse"):
            return out
        return out, torch.from_numpy(lses / math.log(2)).float().to(out.device)

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """Without the lse."""
        kwargs = {**call.kwargs, "return_lse": False}
        yield "without lse", replace(call, kwargs=kwargs, unpack=lambda out: (out, None))


def _shared(case: Case, device: str) -> tuple[Tensor, Tensor]:
    return joined_pages(case, "HND", device), block_table(case, device)


def _separate(case: Case, device: str) -> tuple[Tensor, Tensor]:
    """Keys and values on pages of their own, all in one pool, the values first."""
    table, count = case.table.astype(np.int64), case.placement.num_blocks
    memory = np.concatenate([case.pool("value"), case.pool("key")]).swapaxes(1, 2)
    own = np.zeros(table.shape, dtype=bool)
    for s, ids in enumerate(case.placement.block_ids):
        own[s, : len(ids)] = True
    both = np.stack([np.where(own, table + count, table), table], 1)
    cache = tensor(memory[:, None], case.stored_dtype("key"), device)
    return cache, tensor(both.astype(np.int32), torch.int32, device)
