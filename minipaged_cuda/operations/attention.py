"""Paged attention over torch tensors; knows sizes, options and plans, not how a kernel computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minipaged.attention.semantics import check_options
from minipaged.attention.validation import check_shapes
from minipaged_cuda.operations.arguments import (
    Launcher,
    attention_tensors,
    launcher_and_card,
    per_head,
    run,
)
from minipaged_cuda.operations.checks import (
    check_attention,
    check_types,
    check_values,
    is_aligned,
    type_name,
)
from minipaged_cuda.plan import AttentionPlan, AttentionSizes, plan_attention

MAX_WINDOW = 2**30  # beyond any sequence, and kernels may subtract it in 32 bits


def paged_attention(
    query: Tensor,  # [num_tokens, num_heads, head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
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
    max_query_len: int | None = None,
    num_splits: int | None = None,
    kernel: str | None = None,
    launcher: Launcher | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # [num_tokens, num_heads, head_dim]
    """`minipaged.attention.paged_attention` on a GPU: same arguments, same result up to rounding.

    Rows of `query` after the last sequence return 0. Slots that no query sees are never read.
    Lengths and tables that lie on a GPU are trusted, for reading them would mean waiting.

    Beyond the arguments of that:

    - `max_query_len=1` promises that row s is the only one of sequence s, for every sequence; the
      kernels then need not search for it. Any other number promises nothing.
    - `num_splits`: runs that the keys of a sequence are cut into, for more CTAs to share; None for
      as many as fill the card. A number of your own makes the bits of a sequence independent of
      the rest of its batch.
    - `kernel`: one of `minipaged_cuda.plan.KERNELS`; None for the one that suits best.
    - `launcher`: runs the kernels; None for the GPU that the tensors are on.

    Returns:
        The output, and with `return_lse` also `[num_tokens, num_heads]` float32, natural logarithm.

    Raises:
        InvalidBatch: Sizes that contradict each other, a wrong type, or on a CPU wrong values.
        Unsupported: Sound, but no kernel computes it; the message says what they do compute.
        DeviceError: The tensors are on no GPU, and no launcher was given.
    """
    check_types(locals())  # still the arguments, by name
    batch = block_tables, seq_lens, query_start_loc
    check_shapes(query, key_cache, value_cache, *batch, alibi_slopes, sinks, k_scale, v_scale)
    check_options(window, softcap)
    check_attention(query, key_cache, value_cache, len(seq_lens), max_query_len)
    launcher, card = launcher_and_card(launcher, query)
    check_values(query, key_cache, *batch, window, max_query_len)
    flags = {"CAUSAL": causal or None, "WINDOW": window, "SOFTCAP": softcap}
    flags |= {
        "ALIBI": alibi_slopes,
        "SINKS": sinks,
        "SCALES": k_scale if v_scale is None else v_scale,
    }
    sizes = AttentionSizes(
        num_tokens=len(query),
        num_seqs=len(seq_lens),
        num_heads=query.shape[1],
        num_kv_heads=key_cache.shape[2],
        head_dim=query.shape[2],
        block_size=key_cache.shape[1],
        max_blocks=block_tables.shape[1],
        query_type=type_name(query),
        cache_type=type_name(key_cache),
        flags=frozenset(name for name, x in flags.items() if x is not None),
        one_query=max_query_len == 1,
        is_aligned=is_aligned(query, key_cache, value_cache),
    )
    plan = plan_attention(sizes, card, kernel=kernel, num_splits=num_splits)
    if "SCALES" in sizes.flags:
        k_scale, v_scale = (1.0 if x is None else x for x in (k_scale, v_scale))
    arguments = {
        **attention_tensors(plan.attend, query, key_cache, value_cache, *batch),
        "scale": scale,
        "window": min(window or 0, MAX_WINDOW),
        "softcap": softcap or 0.0,
        "alibi_slopes": per_head(alibi_slopes, sizes.num_heads, query),
        "sinks": per_head(sinks, sizes.num_heads, query),
        "k_scale": per_head(k_scale, sizes.num_kv_heads, query),
        "v_scale": per_head(v_scale, sizes.num_kv_heads, query),
    }
    out = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = query.new_empty(query.shape[:2], dtype=torch.float32)
    if query.numel():
        _launch(launcher, plan, arguments, out, lse)
    return (out, lse) if return_lse else out


def _launch(
    launcher: Launcher, plan: AttentionPlan, arguments: dict[str, Any], out: Tensor, lse: Tensor
) -> None:
    """Write the results at once, or by way of a float32 result for every split."""
    if plan.merge is None:
        run(launcher, plan.attend, {**arguments, "out": out, "lse": lse})
        return
    num_splits = plan.num_splits
    partial_out = lse.new_empty(*lse.shape, num_splits, out.shape[-1])
    partial_lse = lse.new_empty(*lse.shape, num_splits)
    run(launcher, plan.attend, {**arguments, "out": partial_out, "lse": partial_lse})
    parts = {"partial_out": partial_out, "partial_lse": partial_lse, "num_splits": num_splits}
    run(launcher, plan.merge, {**arguments, **parts, "out": out, "lse": lse})
