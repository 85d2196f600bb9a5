"""vLLM: keys and values in one tensor of any of six memory orders; results go to `out`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .flashinfer import joined_pages
from .indices import block_table
from .keywords import Keyworded, given
from .packing import caches, guarded_rows, tensor
from .reading import dtype_of, integers, optional, rows, scaled, side, stated, tokens

FP8_PER_TENSOR, FP8_PER_TOKEN_HEAD = 1, 3  # of vLLM's `KVQuantMode`
# Memory order of layers, blocks, heads, tokens (N) and content (C: a key, then its value).
ORDERS = {
    "LBHNC": (0, 1, 2, 3, 4),
    "LBNHC": (0, 1, 3, 2, 4),
    "LHBNC": (0, 2, 1, 3, 4),
    "BLHNC": (1, 0, 2, 3, 4),
    "BLNHC": (1, 0, 3, 2, 4),
    "BHLNC": (1, 2, 0, 3, 4),
}


class VLLM(Keyworded):
    """`unified_attention` of vLLM's Triton backend, over one layer of a cache of three.

    What differs from the native convention:

    - The cache is one tensor `[num_blocks, num_kv_heads, block_size, 2 * head_dim]`, a key and its
      value in one row, and the layers of the model may be interleaved: the stride of a block is
      then not its size. The kernel gets `k` and `v` `[num_blocks, block_size, num_kv_heads,
      head_dim]` as views of it.
    - `window_size` is `(left, right)`, not counting the query; `(-1, -1)` is off. Without
      `causal` the kernel only knows windows as far to the right as to the left.
    - ALiBi is `slope * (key position - position of the step's first query)`: for the other queries
      more by a constant. Softmax does not see it, a sink does: with both, the output depends on
      where a chunk of a prompt begins, which is a fault and judged as one.
    - `softcap` 0 is off. `k_descale` and `v_descale` are one number, as a tensor; scales for every
      token and head come as `k_scale_cache` and `v_scale_cache`, with `kv_quant_mode` 3.
    - It writes to `out`, returns nothing, and has no lse. Rows that see no key are anything (by
      the variant of the kernel: NaN, 0, or never written).
    """

    name = "vllm"
    features = Features(
        kv_forms=("float8_e4m3fn",),
        kv_scales=("tensor", "token"),
        lse=False,
        storages=tuple(ORDERS),
        far=True,
        shared_tails=True,
    )
    contract = Contract(empty_row="any")
    source = "vllm/v1/kv_cache_layout.py; vllm/v1/attention/ops/triton_unified_attention.py"
    options: ClassVar = {
        "alibi_slopes": ("alibi", False),
        "sinks": ("sinks", False),
        "k_scale_cache": ("kv_scales", ("tensor",)),
    }

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem, spec = case.problem, case.problem.spec
        key, value = self.views(case, device)
        shape = (len(case.flat_query), problem.num_heads, problem.value_head_dim)
        out = guarded_rows(shape, problem.dtype, device)
        codes = [case.scales(which) for which in ("key", "value")]
        scales = [None if s is None else tensor(s, torch.float32, device) for s in codes]
        per_token = scales[0] is not None and scales[0].ndim == 3
        kwargs = dict(
            q=tensor(case.flat_query, problem.dtype, device),
            k=key,
            v=value,
            out=out,
            cu_seqlens_q=tensor(case.query_start_loc, torch.int32, device),
            max_seqlen_q=max(problem.query_lens),
            seqused_k=tensor(case.seq_lens, torch.int32, device),
            max_seqlen_k=max(problem.kv_lens),
            softmax_scale=spec.scale,
            causal=spec.causal,
            window_size=window_size(spec),
            block_table=block_table(case, device),
            softcap=spec.softcap or 0.0,
            q_descale=None,
            k_descale=None if per_token else scales[0],
            v_descale=None if per_token else scales[1],
            **given(
                alibi_slopes=_floats(spec.alibi_slopes, device),
                sinks=_floats(spec.sinks, device),
                k_scale_cache=scales[0] if per_token else None,
                v_scale_cache=scales[1] if per_token else None,
                kv_quant_mode=_mode(case, per_token),
            ),
        )
        return Call((), kwargs, lambda _: (out, None), outputs=(out,))

    def views(self, case: Case, device: str) -> tuple[Tensor, Tensor]:
        """`[num_blocks, block_size, num_kv_heads, dim]` views of layer 1 of the cache."""
        place = case.placement
        if place.storage == "far" or case.is_far("key"):
            return caches(case, place.storage or "NHD", device)
        order = ORDERS[place.storage or "LBHNC"]
        pools = [case.pool(which, place.guards) for which in ("key", "value")]
        layer = np.concatenate(pools, -1).swapaxes(1, 2)
        dtype = case.stored_dtype("key")
        other = case.poison(layer.shape, dtype, "another layer")
        memory = np.stack([other, layer, other]).transpose(order)
        logical = tensor(np.ascontiguousarray(memory), dtype, device).permute(*np.argsort(order))
        cache = logical[1, place.guards : place.guards + place.num_blocks].transpose(1, 2)
        dim = case.problem.head_dim
        return cache[..., :dim], cache[..., dim:]

    def refuses(self, *args: Any, **kwargs: Any) -> str:  # noqa: D102
        left, right = kwargs["window_size"]
        if not kwargs["causal"] and left != right:
            return "without causal, vLLM's window reaches as far to the right as to the left"
        return ""

    def read(  # noqa: D102
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        cu_seqlens_q: Tensor,
        max_seqlen_q: int,
        seqused_k: Tensor,
        max_seqlen_k: int,
        softmax_scale: float,
        causal: bool,
        window_size: tuple[int, int],
        block_table: Tensor,
        softcap: float,
        q_descale: Tensor | None,
        k_descale: Tensor | None,
        v_descale: Tensor | None,
        *,
        alibi_slopes: Tensor | None = None,
        sinks: Tensor | None = None,
        kv_quant_mode: int = 0,
        k_scale_cache: Tensor | None = None,
        v_scale_cache: Tensor | None = None,
    ) -> Problem:
        window = side(window_size[0])  # the right side of it counts only without `causal`
        spec = Spec(
            softmax_scale,
            causal,
            (window, None if causal else window),
            softcap or None,
            optional(alibi_slopes),
            optional(sinks),
        )
        table, lengths = integers(block_table), integers(seqused_k)
        key = scaled(tokens(k, table, lengths), k_descale)
        value = scaled(tokens(v, table, lengths), v_descale)
        if k_scale_cache is not None and v_scale_cache is not None:
            worth = [tokens(s[..., None], table, lengths) for s in (k_scale_cache, v_scale_cache)]
            key = [x * s for x, s in zip(key, worth[0])]
            value = [x * s for x, s in zip(value, worth[1])]
        return stated(rows(q, cu_seqlens_q), key, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> None:  # noqa: D102
        kwargs["out"].copy_(torch.from_numpy(outs))


class VLLMSplit(VLLM):
    """`unified_attention` over the two tensors of earlier versions of vLLM.

    `[2, num_blocks, block_size, num_kv_heads, head_dim]`, or, of the FlashInfer backend,
    `[num_blocks, 2, ...]`. All else is as in `VLLM`.
    """

    name = "vllm_split"
    features = VLLM.features.only(storages=("blocks outermost",))
    source = "vllm/utils/torch_utils.py; vllm 0.9 vllm/v1/attention/backends/flash_attn.py"

    def views(self, case: Case, device: str) -> tuple[Tensor, Tensor]:  # noqa: D102
        if case.placement.storage == "blocks outermost":
            key, value = joined_pages(case, "NHD", device).unbind(1)
            return key, value
        return caches(case, case.placement.storage or "NHD", device)


def window_size(spec: Spec) -> tuple[int, int]:
    """The pair that FlashAttention's interface takes: -1 for an open side."""
    left, right = spec.window
    if spec.causal and left is not None:
        right = 0
    return (-1 if left is None else left, -1 if right is None else right)


def _mode(case: Case, per_token: bool) -> int | None:
    if case.codes("key") is None:
        return None
    return FP8_PER_TOKEN_HEAD if per_token else FP8_PER_TENSOR


def _floats(x: Any, device: str) -> Tensor | None:
    return None if x is None else tensor(x, torch.float32, device)
