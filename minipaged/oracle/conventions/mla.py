"""FlashMLA: one latent vector per token, of which the values are the first part."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..cases import Case
from ..contract import Contract, Features
from ..truth import Problem, Spec
from .base import Call
from .indices import block_table
from .keywords import Keyworded
from .packing import array, caches, tensor
from .reading import dtype_of, integers, stated, tokens


class MLA(Keyworded):
    """`flash_mla_with_kvcache`, dense.

    What differs from the native convention:

    - One cache `[num_blocks, block_size, 1, head_dim]`: a key is the whole row (576 numbers: 512
      of the latent, 64 of the rotary part), its value the first `head_dim_v` of it. One kv head.
    - Queries `[batch_size, query_len, num_heads, head_dim]`: all sequences have as many.
    - `softmax_scale` is that of the head before absorption, not `1 / sqrt(head_dim)`.
    - The lse is `[batch_size, num_heads, query_len]`; of a row that sees nothing it is +inf or
      -inf, by the version.
    - No window, softcap, ALiBi or sinks (its `attn_sink` leaves the lse alone: not judged here).
    """

    name = "mla"
    features = Features(
        block_sizes=(1, 4, 16, 64),
        head_dims=(12, 24, 576),
        value_head_dims=(8, 12, 512),
        groups=(1, 16),
        num_kv_heads=(1, 1),
        query_len=(1, 4),
        ragged=False,
        left_window=False,
        right_window=False,
        softcap=False,
        alibi=False,
        sinks=False,
        latent=True,
        far=True,
        shared_tails=True,
    )
    contract = Contract(empty_lse="any")
    source = "flash_mla/flash_mla_interface.py; tests/test_flash_mla_dense_decoding.py"
    options: ClassVar = {"causal": ("causal", (False,))}

    def pack(self, case: Case, device: str = "cpu") -> Call:  # noqa: D102
        problem = case.problem
        batch, query_len = problem.num_seqs, problem.query_lens[0]
        query = case.flat_query.reshape(batch, query_len, problem.num_heads, problem.head_dim)
        args = (
            tensor(query, problem.dtype, device),
            caches(case, case.placement.storage or "NHD", device)[0],
            block_table(case, device),
            tensor(case.seq_lens, torch.int32, device),
            problem.value_head_dim,
        )

        def unpack(returned: Any) -> tuple[Any, Any]:
            out, lse = returned
            return out.flatten(0, 1), lse.transpose(1, 2).flatten(0, 1)

        scale = {"softmax_scale": problem.spec.scale}
        return Call(args, {**scale, **({"causal": True} if problem.spec.causal else {})}, unpack)

    def read(  # noqa: D102
        self,
        q: Tensor,
        k_cache: Tensor,
        block_table: Tensor,
        cache_seqlens: Tensor,
        head_dim_v: int,
        *,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> Problem:
        latent = tokens(k_cache, integers(block_table), integers(cache_seqlens))
        value = (x[..., :head_dim_v] for x in latent)
        spec = Spec(softmax_scale or q.shape[-1] ** -0.5, causal)
        return stated((array(x) for x in q), latent, value, spec, dtype_of(q))

    def write(self, outs, lses, *args, **kwargs) -> Any:  # noqa: D102
        q: Tensor = args[0]
        shape = q.shape[:3]
        out = torch.from_numpy(outs).to(q).unflatten(0, shape[:2])
        lse = torch.from_numpy(lses).float().to(out.device).unflatten(0, shape[:2])
        return out, lse.transpose(1, 2)
