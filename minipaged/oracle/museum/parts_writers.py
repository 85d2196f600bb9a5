"""Writers with one fault each; every function is wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .exhibit import Exhibit, hang

WRITERS: list[Exhibit] = []
SCALED: list[Exhibit] = []  # called with scales


def _store(cache: Tensor, rows: Tensor, slots: Tensor) -> None:
    cache[slots // cache.shape[1], slots % cache.shape[1]] = rows.to(cache.dtype)


def _both(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """The right writer."""
    keep = slots >= 0
    _store(keys, key[keep], slots[keep])
    _store(values, value[keep], slots[keep])


def _at(cache: Tensor, offset: int) -> Tensor:
    """The `[num_heads, dim]` row that begins at an offset, wherever that is."""
    strides, shape = cache.stride()[2:], cache.shape[2:]
    return cache.as_strided(shape, strides, cache.storage_offset() + offset)


@hang(WRITERS, "writer", "padding", "vllm #43810")
def padding_overwrites_the_last_slot(key, value, keys, values, slots):
    """Indexes with -1, which is the last slot of the last block."""
    blocks = slots // keys.shape[1]
    keys[blocks, slots % keys.shape[1]] = key.to(keys.dtype)
    values[blocks, slots % keys.shape[1]] = value.to(values.dtype)


@hang(WRITERS, "writer", "padding", "onnxruntime #32391")
def padding_overwrites_slot_zero(key, value, keys, values, slots):
    """Clamps -1 to 0: memory-safe, and silently wrong."""
    for t in range(len(slots) - 1, -1, -1):
        slot = slots[t : t + 1].clamp(min=0)
        _both(key[t : t + 1], value[t : t + 1], keys, values, slot)


@hang(WRITERS, "writer", "padding")
def stops_at_the_first_padding(key, value, keys, values, slots):
    """Takes the first -1 for the end of the batch."""
    end = next((t for t, slot in enumerate(slots.tolist()) if slot < 0), len(slots))
    _both(key[:end], value[:end], keys, values, slots[:end])


@hang(WRITERS, "writer", "padding", "LMCache #4921")
def drops_padding_from_slots_alone(key, value, keys, values, slots):
    """Removes -1 from the slots but not the rows that go with it."""
    kept = slots[slots >= 0]
    _both(key[: len(kept)], value[: len(kept)], keys, values, kept)


@hang(WRITERS, "writer", "padding")
def slot_zero_is_padding(key, value, keys, values, slots):
    """Skips `slot <= 0` instead of `slot < 0`."""
    keep = slots > 0
    _both(key[keep], value[keep], keys, values, slots[keep])


@hang(WRITERS, "writer", "integer width", "vllm #1486, lightllm #907")
def offset_in_32_bits(key, value, keys, values, slots):
    """Computes block * stride in 32 bits."""
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, keys.shape[1])
            for cache, rows in ((keys, key), (values, value)):
                wrapped = (block * cache.stride(0) + 2**31) % 2**32 - 2**31
                _at(cache, wrapped + offset * cache.stride(1)).copy_(rows[t])


@hang(WRITERS, "writer", "integer width", "lmdeploy #4494")
def offset_in_unsigned_32_bits(key, value, keys, values, slots):
    """Computes the offset in unsigned 32 bits, which goes wrong twice as late."""
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            block, offset = divmod(slot, keys.shape[1])
            for cache, rows in ((keys, key), (values, value)):
                start = (block * cache.stride(0) + offset * cache.stride(1)) % 2**32
                _at(cache, start).copy_(rows[t])


@hang(WRITERS, "writer", "integer width", "vllm #1486")
def slots_in_16_bits(key, value, keys, values, slots):
    """Keeps slots in 16 bits."""
    _both(key, value, keys, values, slots.to(torch.int16).long())


@hang(WRITERS, "writer", "strides", "flashinfer #527")
def packed_cache_assumed(key, value, keys, values, slots):
    """Takes the cache for contiguous, whatever its strides are."""
    for cache, rows in ((keys, key), (values, value)):
        _, _, heads, dim = cache.shape
        for t, slot in enumerate(slots.tolist()):
            if slot >= 0:
                begin = cache.storage_offset() + slot * heads * dim
                cache.as_strided((heads, dim), (dim, 1), begin).copy_(rows[t])


@hang(WRITERS, "writer", "strides", "aiter #3498")
def block_base_from_the_slot_stride(key, value, keys, values, slots):
    """Takes block_size * stride(1) for stride(0)."""
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            for cache, rows in ((keys, key), (values, value)):
                _at(cache, slot * cache.stride(1)).copy_(rows[t])


@hang(WRITERS, "writer", "strides")
def values_by_the_strides_of_keys(key, value, keys, values, slots):
    """Uses one set of strides for both caches, where they have one shape."""
    like = keys.stride() if keys.shape == values.shape else values.stride()
    _both(key, value, keys, values.as_strided(values.shape, like), slots)


@hang(WRITERS, "writer", "strides")
def writes_to_a_copy(key, value, keys, values, slots):
    """Flattens the cache with reshape, which copies what is not contiguous."""
    keep = slots >= 0
    for cache, rows in ((keys, key), (values, value)):
        cache.reshape(-1, *cache.shape[2:])[slots[keep]] = rows[keep].to(cache.dtype)


@hang(WRITERS, "writer", "strides")
def packed_rows_assumed(key, value, keys, values, slots):
    """Reads keys as contiguous, though they are a slice of a fused projection."""
    t, h, d = key.shape
    packed = key.as_strided((t, h, d), (h * d, d, 1)) if key.numel() else key
    _both(packed, value, keys, values, slots)


@hang(WRITERS, "writer", "mix-up")
def keys_stored_as_values(key, value, keys, values, slots):
    """Stores the key twice where both are of one width."""
    _both(key, key if key.shape == value.shape else value, keys, values, slots)


@hang(WRITERS, "writer", "mix-up")
def heads_reversed(key, value, keys, values, slots):
    """Stores the values of the heads in the opposite order."""
    _both(key, value.flip(1), keys, values, slots)


@hang(WRITERS, "writer", "tails", "vllm #4128")
def dims_in_eights(key, value, keys, values, slots):
    """Copies eight numbers at a time and forgets the rest."""
    d, dv = (max(8, x.shape[2] // 8 * 8) for x in (key, value))
    _both(key[..., :d], value[..., :dv], keys[..., :d], values[..., :dv], slots)


@hang(WRITERS, "writer", "tails", "lmdeploy #1761")
def sixteen_heads_at_most(key, value, keys, values, slots):
    """Has threads for sixteen heads."""
    _both(key[:, :16], value[:, :16], keys[:, :, :16], values[:, :, :16], slots)


@hang(WRITERS, "writer", "launch", "flashinfer #3125")
def first_1024_tokens(key, value, keys, values, slots):
    """Launches at most 1024 rows, without an error."""
    _both(key[:1024], value[:1024], keys, values, slots[:1024])


@hang(WRITERS, "writer", "units", "aiter #4825")
def block_size_a_power_of_two(key, value, keys, values, slots):
    """Divides by shifting."""
    shift = keys.shape[1].bit_length() - 1
    offset, block = slots & ((1 << shift) - 1), (slots >> shift) % keys.shape[0]
    _both(key, value, keys, values, torch.where(slots < 0, slots, block * keys.shape[1] + offset))


@hang(WRITERS, "writer", "units", "vllm #17362")
def block_and_offset_exchanged(key, value, keys, values, slots):
    """Takes `[num_blocks, block_size]` for `[block_size, num_blocks]`."""
    turned = (slots % keys.shape[0]) * keys.shape[1] + slots // keys.shape[0] % keys.shape[1]
    _both(key, value, keys, values, torch.where(slots < 0, slots, turned))


@hang(WRITERS, "writer", "stray writes")
def clears_the_rest_of_the_block(key, value, keys, values, slots):
    """Zeroes what follows a token in its block."""
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            keys[slot // keys.shape[1], slot % keys.shape[1] + 1 :] = 0
            _both(key[: t + 1], value[: t + 1], keys, values, slots[: t + 1])


@hang(WRITERS, "writer", "rounding", "Triton 3.9.0 interpreter")
def truncates_to_bfloat16(key, value, keys, values, slots):
    """Cuts the lower half of a float32 off instead of rounding."""
    if keys.dtype == torch.bfloat16:
        cut = torch.full((), -65536, dtype=torch.int32)
        key, value = ((x.float().view(torch.int32) & cut).view(torch.float32) for x in (key, value))
    _both(key, value, keys, values, slots)


@hang(WRITERS, "writer", "values")
def cleans_nan(key, value, keys, values, slots):
    """Stores 0 for NaN and the largest number for infinity."""
    _both(key.nan_to_num(), value.nan_to_num(), keys, values, slots)


@hang(WRITERS, "writer", "values")
def loses_the_sign_of_zero(key, value, keys, values, slots):
    """Adds 0 to each number on the way, which makes 0 of -0."""
    _both(key + 0.0, value + 0.0, keys, values, slots)


@hang(WRITERS, "writer", "inputs")
def clamps_the_slots_in_place(key, value, keys, values, slots):
    """Is right, but leaves the caller's slot_mapping changed."""
    _both(key, value, keys, values, slots.clone())
    slots.clamp_(min=0)


@hang(WRITERS, "writer", "frozen", "sglang #26521", makes=True)
def slots_of_the_first_call():
    """Remembers the slots by the address of their tensor."""
    seen: dict[Any, Tensor] = {}

    def write_kv(key, value, keys, values, slots):
        key_of = slots.data_ptr(), len(slots)
        seen.setdefault(key_of, slots.clone())
        same = seen[key_of] if bool((seen[key_of] < keys.shape[0] * keys.shape[1]).all()) else slots
        _both(key, value, keys, values, same)

    return write_kv


def _scaled(key, value, keys, values, slots, k_scale: Any, v_scale: Any) -> None:
    for rows, cache, scale in ((key, keys, k_scale), (value, values, v_scale)):
        _codes(cache, rows.float() / torch.as_tensor(scale).reshape(-1, 1), slots)


def _codes(cache: Tensor, numbers: Tensor, slots: Tensor, clamp: bool = True) -> None:
    keep = slots >= 0
    numbers = numbers.round() if cache.dtype == torch.int8 else numbers
    if clamp and cache.dtype == torch.int8:
        numbers = numbers.clamp(-127, 127)
    _store(cache, numbers[keep].to(torch.int32), slots[keep])


def _hang_scaled(fault_class: str, like: str = "") -> Callable[..., Any]:
    return hang(SCALED, "writer", fault_class, like)


@_hang_scaled("scales", "flashinfer #1416")
def values_by_the_scale_of_keys(key, value, keys, values, slots, *, k_scale, v_scale):
    """Divides both by k_scale."""
    _scaled(key, value, keys, values, slots, k_scale, k_scale)


@_hang_scaled("scales", "flashinfer #1023")
def scales_dropped(key, value, keys, values, slots, *, k_scale, v_scale):
    """Takes scales and does not use them."""
    _scaled(key, value, keys, values, slots, 1.0, 1.0)


@_hang_scaled("scales")
def multiplies_by_the_scale(key, value, keys, values, slots, *, k_scale, v_scale):
    """Multiplies where it should divide."""
    _scaled(key, value, keys, values, slots, 1 / k_scale, 1 / v_scale)


@_hang_scaled("range")
def wraps_around(key, value, keys, values, slots, *, k_scale, v_scale):
    """Keeps the lower eight bits of what does not fit."""
    for rows, cache, scale in ((key, keys, k_scale), (value, values, v_scale)):
        _codes(cache, rows.float() / scale, slots, clamp=False)


@_hang_scaled("rounding")
def truncates_codes(key, value, keys, values, slots, *, k_scale, v_scale):
    """Rounds toward zero."""
    for rows, cache, scale in ((key, keys, k_scale), (value, values, v_scale)):
        _codes(cache, (rows.float() / scale).trunc(), slots)
