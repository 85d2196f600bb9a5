"""Attention as the formula says it, over contiguous keys; knows nothing of blocks or batches."""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.attention.semantics import (
    attention_scores,
    compute_dtype,
    query_positions,
    repeat_kv_heads,
)


def dense_attention(
    query: Tensor,  # [query_len, num_heads, head_dim]
    key: Tensor,  # [seq_len, num_kv_heads, head_dim]
    value: Tensor,  # [seq_len, num_kv_heads, value_head_dim]
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,  # [num_heads]
    sinks: Tensor | None = None,  # [num_heads]
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # [query_len, num_heads, value_head_dim]
    """softmax(scale * query . key) * value, for the newest `query_len` tokens of one sequence.

    A query that sees no key returns 0, and its lse is -inf, or the sink's logit where there is
    one. float64 is computed in float64, everything else in float32.

    Returns:
        The output in the query's dtype; with `return_lse` also `[query_len, num_heads]`: the
        natural log of each softmax denominator, in the dtype of the computation.
    """
    (query_len, num_heads, _), seq_len = query.shape, key.shape[0]
    dtype = compute_dtype(query, key, value)
    scores = attention_scores(
        query.to(dtype),
        key.to(dtype),
        query_positions(query_len, seq_len, query.device),
        torch.arange(seq_len, device=query.device),
        scale=scale,
        causal=causal,
        window=window,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
    )
    lse = torch.logsumexp(scores, dim=-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.to(dtype)[:, None].expand_as(lse))
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0.0)[..., None])
    value = repeat_kv_heads(value.to(dtype), num_heads)
    out = torch.einsum("hqk,khd->qhd", weights, value).to(query.dtype)
    return (out, lse.T) if return_lse else out
