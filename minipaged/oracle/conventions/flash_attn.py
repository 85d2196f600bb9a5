"""FlashAttention 2: large blocks, the lse with the heads first, and an ALiBi of its own."""

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
from .indices import block_table, starts
from .keywords import Keyworded, given
from .packing import ORDERS, caches, tensor
from .reading import dtype_of, integers, optional, rows, side, stated, tokens
from .vllm import window_size


class FlashAttention2(Keyworded):
    """`flash_attn_varlen_func` of FlashAttention 2 with a `block_table`.

    What differs from the native convention:

    - Blocks of a multiple of 256 tokens. Lengths of the keys come as sums, `cu_seqlens_k`.
    - `window_size` is `(left, right)`, not counting the query; -1 leaves a side open, 0 does not.
    - `softcap` 0 is off.
    - With `return_attn_probs` it returns `(out, lse, _)`, the lse `[num_heads, num_tokens]`. The
      lse of a row that sees nothing is +inf or -inf, by whether the keys were split.
    - ALiBi is `-slope * |distance|`, so it is judged only where no query sees what comes after it.
      There, if no window cuts, the kernel adds `slope * key position` instead: the output is the
      same, the lse is more by `slope * query position`.
    """

    name = "flash_attn"
    features = Features(
        block_sizes=(256,),
        head_dims=(8, 16, 40, 64),
        num_kv_heads=(1, 2),
        kv_len=(0, 600),
        num_seqs=(1, 3),
        sinks=False,
        storages=ORDERS,
        far=True,
        shared_tails=True,
    )
    contract = Contract(empty_lse="any")
    source = "flash_attn/flash_attn_interface.py; csrc/flash_attn/flash_api.cpp; src/mask.h"
    options: ClassVar = {
        "alibi_slopes": ("alibi", False),
        "softcap": ("softcap", False),
        "return_attn_probs": ("lse", False),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        slopes = spec.alibi_slopes
        kwargs = given(
            cu_seqlens_q=tensor(case.query_start_loc, torch.int32, device),
            cu_seqlens_k=tensor(starts(problem.kv_lens), torch.int32, device),
            max_seqlen_q=max(problem.query_lens),
            max_seqlen_k=max(problem.kv_lens),
            softmax_scale=spec.scale,
            causal=spec.causal,
            window_size=window_size(spec),
            softcap=spec.softcap,
            alibi_slopes=None if slopes is None else tensor(slopes, torch.float32, device),
            block_table=block_table(case, device),
            return_attn_probs=True,
        )
        more = _more_lse(kwargs)

        def unpack(returned: Any) -> tuple[Any, Any]:
            out, lse, _ = returned
            return out, lse.T - torch.from_numpy(more).to(lse)

        query = tensor(case.flat_query, problem.dtype, device)
        pair = caches(case, case.placement.storage or "NHD", device)
        return Call((query, *pair), kwargs, unpack)

    def refuses(self, *args: Any, **kwargs: Any) -> str:  # noqa: D102
        open_right = not kwargs["causal"] and kwargs["window_size"][1] != 0
        if "alibi_slopes" in kwargs and open_right:
            return "FlashAttention's ALiBi depends on the distance, not on its sign"
        return ""

    def read(  # noqa: D102
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        *,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: Tensor | None = None,
        return_attn_probs: bool = False,
        block_table: Tensor,
    ) -> Problem:
        spec = Spec(
            softmax_scale or q.shape[-1] ** -0.5,
            causal,
            (side(window_size[0]), side(window_size[1])),
            softcap or None,
            optional(alibi_slopes),
        )
        lengths, table = integers(cu_seqlens_k.diff()), integers(block_table)
        key, value = tokens(k, table, lengths), tokens(v, table, lengths)
        return stated(rows(q, cu_seqlens_q), key, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        out = torch.from_numpy(outs).to(args[0])
        if not kwargs.get("return_attn_probs"):
            return out
        return out, torch.from_numpy(lses + _more_lse(kwargs)).float().T.to(out.device), None

    def variants(self, call: Call, contract: Contract) -> Iterator[tuple[str, Call]]:
        """Without the lse."""
        kwargs = {**call.kwargs, "return_attn_probs": False}
        yield "without lse", replace(call, kwargs=kwargs, unpack=lambda out: (out, None))


def _more_lse(kwargs: dict[str, Any]) -> np.ndarray:
    """`[num_tokens, num_heads]` (or `[1, 1]`, of 0): what causal ALiBi adds to the lse."""
    left, right = kwargs["window_size"]
    causal = (kwargs["causal"] or right == 0) and not 0 <= left < kwargs["max_seqlen_k"]
    if "alibi_slopes" not in kwargs or not causal:
        return np.zeros((1, 1))
    starts_q, starts_k = (integers(kwargs[name]) for name in ("cu_seqlens_q", "cu_seqlens_k"))
    position = []
    for a, b, kv_len in zip(starts_q, starts_q[1:], np.diff(starts_k)):
        position += range(kv_len - (b - a), kv_len)
    return np.outer(position, kwargs["alibi_slopes"].cpu().double().numpy())
