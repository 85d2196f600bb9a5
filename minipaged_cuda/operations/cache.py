"""Writing new keys and values, and merging attention states; knows caches of any strides."""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged_cuda.operations.arguments import (
    Launcher,
    element_bytes,
    launcher_and_card,
    per_head,
    run,
    strides,
)
from minipaged_cuda.operations.checks import (
    check_caches,
    check_rows,
    check_states,
    check_write,
    is_aligned,
    type_name,
)
from minipaged_cuda.plan import WriteSizes, plan_merge_states, plan_write

BLOCK = ("block", "token", "head")


def write_kv(
    key: Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: Tensor,  # [num_tokens, num_kv_heads, value_head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, value_head_dim]
    slot_mapping: Tensor,  # [num_tokens] int64, -1 for tokens that are not kept
    *,
    k_scale: Tensor | float | None = None,  # [num_kv_heads] float32, stored * k_scale = key
    v_scale: Tensor | float | None = None,  # [num_kv_heads] float32
    launcher: Launcher | None = None,
) -> None:
    """Store each token's key and value in its slot, `block_id * block_size + offset`.

    Bit for bit where the cache has their type and no scale, else rounded to nearest even; a
    float8_e4m3fn cache saturates at 448. Slots are trusted: one that the cache does not have is
    written to all the same.

    Raises:
        InvalidBatch: Sizes or types that contradict each other.
        Unsupported: No kernel converts between these types on this card.
        DeviceError: The tensors are on no GPU, and no launcher was given.
    """
    check_caches(key_cache, value_cache)
    check_rows(key=key, value=value, key_cache=key_cache, value_cache=value_cache)
    check_write(key, value, key_cache, value_cache, slot_mapping, (k_scale, v_scale))
    launcher, card = launcher_and_card(launcher, key_cache)
    scaled, num_kv_heads = k_scale is not None or v_scale is not None, key_cache.shape[2]
    sizes = WriteSizes(
        num_tokens=len(slot_mapping),
        num_kv_heads=num_kv_heads,
        head_dim=key.shape[-1],
        value_head_dim=value.shape[-1],
        block_size=key_cache.shape[1],
        new_type=type_name(key),
        cache_type=type_name(key_cache),
        element_bytes=key_cache.element_size(),
        is_scaled=scaled,
        is_aligned=is_aligned(key, value, key_cache, value_cache),
    )
    launch = plan_write(sizes, card)
    if not key.numel() and not value.numel():
        return
    k_scale, v_scale = ((1.0 if x is None else x) if scaled else None for x in (k_scale, v_scale))
    units = element_bytes(launch)
    arguments = {
        "key": key,
        "value": value,
        "key_cache": key_cache,
        "value_cache": value_cache,
        "slot_mapping": slot_mapping,
        "num_kv_heads": num_kv_heads,
        "slot_stride": slot_mapping.stride(0),
        **strides("new_key", key, BLOCK[1:], units["key"]),
        **strides("new_value", value, BLOCK[1:], units["value"]),
        **strides("key", key_cache, BLOCK, units["key_cache"]),
        **strides("value", value_cache, BLOCK, units["value_cache"]),
        "k_scale": per_head(k_scale, num_kv_heads, key),
        "v_scale": per_head(v_scale, num_kv_heads, key),
    }
    run(launcher, launch, arguments)


def merge_states(
    out_a: Tensor,  # [..., head_dim]
    lse_a: Tensor,  # [...] float32, natural logarithm
    out_b: Tensor,  # [..., head_dim]
    lse_b: Tensor,  # [...] float32
    *,
    launcher: Launcher | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over two disjoint sets of keys, from the attention over each: `(out, lse)`.

    `(0, -inf)` is the identity, whatever `out` holds beside an lse of -inf, and two of them merge
    to it.

    Raises:
        InvalidBatch: Sizes or types that contradict each other.
        Unsupported: No kernel merges outputs of this type.
        DeviceError: The tensors are on no GPU, and no launcher was given.
    """
    check_states(out_a, lse_a, out_b, lse_b)
    launcher, _ = launcher_and_card(launcher, out_a)
    launch = plan_merge_states(lse_a.numel(), out_a.shape[-1], type_name(out_a))
    out = torch.empty_like(out_a, memory_format=torch.contiguous_format)
    lse = torch.empty_like(lse_a, memory_format=torch.contiguous_format)
    if lse.numel():
        given = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
        packed = {name: x.contiguous() for name, x in given.items()}
        run(launcher, launch, {**packed, "out": out, "lse": lse, "num_heads": 1})
    return out, lse
