"""FlashAttention 3: pages of any size, scales per sequence and head, the lse heads first."""

from __future__ import annotations

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
from .indices import block_table
from .keywords import Keyworded, given
from .packing import ORDERS, caches, tensor
from .reading import dtype_of, integers, rows, scaled, side, stated, tokens
from .vllm import window_size


class FlashAttention3(Keyworded):
    """`flash_attn_with_kvcache` of FlashAttention 3 with a `page_table`.

    What differs from the native convention:

    - `window_size` is `(left, right)`, not counting the query; -1 leaves a side open, 0 does not.
    - `softcap` 0 is off. `k_descale` and `v_descale` are `[batch_size, num_kv_heads]`. (The
      compiled library wants queries of the dtype of the keys: judge it without `kv_forms`.)
    - With `return_softmax_lse` it returns `(out, lse)`, the lse `[num_heads, num_tokens]`.
    - Neither ALiBi nor sinks.
    """

    name = "flash_attn3"
    features = Features(
        kv_forms=("float8_e4m3fn",),
        kv_scales=("tensor", "head"),
        value_head_dims=(1, 2, 3, 4, 5, 8, 16, 40, 64, 512),
        alibi=False,
        sinks=False,
        storages=ORDERS,
        far=True,
        shared_tails=True,
    )
    source = "hopper/flash_attn_interface.py; hopper/flash_api.cpp; hopper/softmax.h"
    options: ClassVar = {
        "softcap": ("softcap", False),
        "k_descale": ("kv_forms", ()),
        "v_descale": ("kv_forms", ()),
        "return_softmax_lse": ("lse", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        descales = (self._descale(case, case.scales(which), device) for which in ("key", "value"))
        kwargs = given(
            cache_seqlens=tensor(case.seq_lens, torch.int32, device),
            page_table=block_table(case, device),
            cu_seqlens_q=tensor(case.query_start_loc, torch.int32, device),
            max_seqlen_q=max(problem.query_lens),
            **dict(zip(("k_descale", "v_descale"), descales)),
            softmax_scale=spec.scale,
            causal=spec.causal,
            window_size=window_size(spec),
            softcap=spec.softcap,
            return_softmax_lse=True,
        )
        query = tensor(case.flat_query, problem.dtype, device)
        pair = caches(case, case.placement.storage or "NHD", device)
        return Call((query, *pair), kwargs, lambda returned: (returned[0], returned[1].T))

    def _descale(self, case: Case, scale: Any, device: str) -> Tensor | None:
        if scale is None:
            return None
        shape = (case.problem.num_seqs, case.problem.num_kv_heads)
        return tensor(np.broadcast_to(scale, shape).copy(), torch.float32, device)

    def read(  # noqa: D102
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        *,
        cache_seqlens: Tensor,
        page_table: Tensor,
        cu_seqlens_q: Tensor,
        max_seqlen_q: int,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        return_softmax_lse: bool = False,
    ) -> Problem:
        window = side(window_size[0]), side(window_size[1])
        spec = Spec(softmax_scale or q.shape[-1] ** -0.5, causal, window, softcap or None)
        table, lengths = integers(page_table), integers(cache_seqlens)
        key = scaled(tokens(k_cache, table, lengths), k_descale)
        value = scaled(tokens(v_cache, table, lengths), v_descale)
        return stated(rows(q, cu_seqlens_q), key, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        out = torch.from_numpy(outs).to(args[0])
        if not kwargs.get("return_softmax_lse"):
            return out
        return out, torch.from_numpy(lses).float().T.to(out.device)

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """Without the lse."""
        kwargs = {**call.kwargs, "return_softmax_lse": False}
        yield "without lse", replace(call, kwargs=kwargs, unpack=lambda out: (out, None))
