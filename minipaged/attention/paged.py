"""Attention over keys that live in blocks, written twice; knows the block table, not who owns it.

The first form gathers a sequence's keys and calls the formula. The second never gathers: it walks
the block table as a kernel does (Kwon et al. 2023, section 4.1). They agree up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.attention.dense import dense_attention
from minipaged.attention.online_softmax import AttentionState
from minipaged.attention.semantics import (
    attention_scores,
    compute_dtype,
    query_positions,
    repeat_kv_heads,
)
from minipaged.attention.validation import check_shapes, walk


def paged_attention(
    query: Tensor,  # [num_tokens, num_heads, head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, value_head_dim]
    block_tables: Tensor,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens: Tensor,  # [num_seqs] int32, keys visible at the end of this step
    query_start_loc: Tensor,  # [num_seqs + 1] int32, where each sequence's rows of query begin
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,  # [num_heads] float32
    sinks: Tensor | None = None,  # [num_heads] float32
    k_scale: Tensor | float | None = None,  # [num_kv_heads] float32, stored * k_scale = key
    v_scale: Tensor | float | None = None,  # [num_kv_heads] float32
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # [num_tokens, num_heads, value_head_dim]
    """Attention of a ragged batch over paged keys: `dense_attention` of each sequence.

    Prefill, chunked prefill and decode are one call; decode is one query per sequence. A slot is
    read only if some query sees its position: table padding, the tail of the last block, blocks
    freed behind a window, and other sequences' blocks may hold anything, NaN included. Rows of
    `query` after the last sequence return 0.

    Returns:
        As `dense_attention`: the output, and with `return_lse` also `[num_tokens, num_heads]`.

    Raises:
        InvalidBatch: Sizes that contradict each other, or a visible position without a block.
    """
    batch = block_tables, seq_lens, query_start_loc
    check_shapes(query, key_cache, value_cache, *batch, alibi_slopes, sinks, k_scale, v_scale)
    out, lse = _blank_rows(query, key_cache, value_cache)
    for rows, block_ids, seen in walk(len(query), key_cache.shape, *batch, window):
        position = torch.tensor(seen, dtype=torch.int64, device=query.device)
        block = torch.tensor(block_ids, device=query.device)[position // key_cache.shape[1]]
        slots = block, position % key_cache.shape[1]
        out[rows], lse[rows] = dense_attention(
            query[rows],
            _dequantize(key_cache[slots], k_scale, lse.dtype),
            _dequantize(value_cache[slots], v_scale, lse.dtype),
            scale=scale,
            causal=causal,
            window=window,
            softcap=softcap,
            alibi_slopes=alibi_slopes,
            sinks=sinks,
            return_lse=True,
        )
    return (out, lse) if return_lse else out


def paged_attention_blockwise(
    query: Tensor,  # [num_tokens, num_heads, head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, value_head_dim]
    block_tables: Tensor,  # [num_seqs, max_blocks_per_seq] int32
    seq_lens: Tensor,  # [num_seqs] int32
    query_start_loc: Tensor,  # [num_seqs + 1] int32
    *,
    window: int | None = None,
    sinks: Tensor | None = None,  # [num_heads] float32
    k_scale: Tensor | float | None = None,  # [num_kv_heads] float32
    v_scale: Tensor | float | None = None,  # [num_kv_heads] float32
    return_lse: bool = False,
    **options,
) -> Tensor | tuple[Tensor, Tensor]:  # [num_tokens, num_heads, value_head_dim]
    """The same, one block at a time: each meets the queries once and is forgotten.

    Takes what `paged_attention` takes. Its memory does not grow with the sequence.
    """
    batch, slopes = (block_tables, seq_lens, query_start_loc), options.get("alibi_slopes")
    check_shapes(query, key_cache, value_cache, *batch, slopes, sinks, k_scale, v_scale)
    (out, lse), num_heads = _blank_rows(query, key_cache, value_cache), query.shape[1]
    for rows, block_ids, seen in walk(len(query), key_cache.shape, *batch, window):
        mine, block_size = query[rows].to(lse.dtype), key_cache.shape[1]
        positions = query_positions(len(mine), seen.stop, query.device)
        state = AttentionState.empty(num_heads, len(mine), out.shape[-1], like=lse)
        for logical in range(seen.start // block_size, -(-seen.stop // block_size)):
            first = logical * block_size
            here = range(max(first, seen.start), min(first + block_size, seen.stop))
            slots = block_ids[logical], slice(here.start - first, here.stop - first)
            key = _dequantize(key_cache[slots], k_scale, lse.dtype)
            value = _dequantize(value_cache[slots], v_scale, lse.dtype)
            places = positions, torch.tensor(here, device=query.device)
            scores = attention_scores(mine, key, *places, window=window, **options)
            state = state.update(scores, repeat_kv_heads(value, num_heads).transpose(0, 1))
        if sinks is not None:  # one more key for every query, whose value is 0
            scores = sinks.to(lse.dtype)[:, None, None].expand(-1, len(mine), 1)
            state = state.update(scores, state.acc.new_zeros(1, out.shape[-1]))
        out[rows], lse[rows] = (x.transpose(0, 1) for x in state.finish())
    return (out, lse) if return_lse else out


def _blank_rows(query: Tensor, key_cache: Tensor, value_cache: Tensor) -> tuple[Tensor, Tensor]:
    """What a row returns that sees nothing: 0, and -inf in the dtype of the computation."""
    out = query.new_zeros(*query.shape[:-1], value_cache.shape[-1])
    dtype = compute_dtype(query, key_cache, value_cache)
    return out, torch.full_like(out[..., 0], -torch.inf, dtype=dtype)


def _dequantize(stored: Tensor, scale: Tensor | float | None, dtype: torch.dtype) -> Tensor:
    """The numbers that `[num_keys, num_kv_heads, dim]` stored ones stand for."""
    scale = 1.0 if scale is None else scale
    return stored.to(dtype) * torch.as_tensor(scale, dtype=dtype, device=stored.device)[..., None]
