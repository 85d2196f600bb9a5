"""Faults of addresses: strides, offsets, integer widths, block ids, what lies in the gaps."""

from __future__ import annotations

from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "layout")


def _packed(self, a, cache, block, offset, head, dim):
    _, s1, s2, s3 = cache.stride()
    base = cache.storage_offset() + block * cache.shape[1] * s1
    return base + offset * s1 + head * s2 + dim * s3


def _heads_first(self, a, cache, block, offset, head, dim):
    _, size, _, width = cache.shape
    base = cache.storage_offset() + block * cache.stride(0)
    return base + (head * size + offset) * width + dim


def _contiguous(self, a, cache, block, offset, head, dim):
    _, size, heads, width = cache.shape
    base = cache.storage_offset() + block * size * heads * width
    return base + (offset * heads + head) * width + dim


def _strides_of_keys(self, a, cache, block, offset, head, dim):
    s0, s1, s2, s3 = a.key_cache.stride()
    return cache.storage_offset() + block * s0 + offset * s1 + head * s2 + dim * s3


def _row_of_head_dim(self, a, cache, block, offset, head, dim):
    s0, s1, _, s3 = cache.stride()
    width = a.query.shape[2]
    return cache.storage_offset() + block * s0 + offset * s1 + head * width + dim * s3


def _wrapped(bits):
    """Block times stride in so many bits."""

    def address(self, a, cache, block, offset, head, dim):
        half = 1 << (bits - 1)
        start = (block * cache.stride(0) + half) % (2 * half) - half
        return start + Right.address(self, a, cache, block * 0, offset, head, dim)

    return address


def _lookup(change):
    """The blocks of a tile, changed."""

    def lookup(self, a, w, which, logical, inside):
        block = Right.lookup(self, a, w, which, logical, inside)
        return torch.where(inside, change(a, w, logical, block), 0)

    return lookup


def _consecutive(a, w, logical, block):
    return a.block_tables[w.s, 0].long() + logical


def _sorted_ids(a, w, logical, block):
    count = -(-w.kv_len // a.key_cache.shape[1])
    row = a.block_tables[w.s].clone()
    row[:count] = row[:count].sort().values
    return row[logical.clamp(max=len(row) - 1)].long()


def _own_copy_of_shared(a, w, logical, block):
    """A block that an earlier sequence has is taken to be written by it only later."""
    earlier = {int(b) for row in a.block_tables[: w.s] for b in row if b >= 0}
    taken = torch.tensor([int(b) in earlier for b in block])
    return torch.where(taken, (block + 1) % len(a.key_cache), block)


def _table_before_mask(self, a, w, which, logical, inside):
    return Right.lookup(self, a, w, which, logical, torch.ones_like(inside))


def _values_unmasked(self, a, which, tile, inside):
    return tile if which == "value" else Right.switched_off(self, a, which, tile, inside)


def _lanes_of_block(self, a, w, which, logical, inside):
    """Lanes of blocks that the sequence has, the tail of the last one included."""
    count = -(-w.kv_len // a.key_cache.shape[1])
    return Right.lookup(self, a, w, which, logical, inside | (logical < count))


def _hidden_tail(self, a, w, out, lse, o, e):
    Right.store(self, a, w, out, lse, o.nan_to_num(), e)


LAYOUT = (
    _plant(
        "int32_offset",
        "vllm #1486",
        "Block id times stride is computed in 32 bits.",
        address=_wrapped(32),
    ),
    _plant(
        "int16_offset",
        "lmdeploy #4494",
        "Block id times stride is computed in 16 bits.",
        address=_wrapped(16),
    ),
    _plant(
        "block_id_of_8_bits",
        UNKNOWN,
        "Block ids are kept in a byte.",
        lookup=_lookup(lambda a, w, logical, block: block % 256),
    ),
    _plant(
        "packed_blocks_assumed",
        "vllm #37032",
        "A block is taken to begin where the one before it ends.",
        address=_packed,
    ),
    _plant(
        "contiguous_cache_assumed",
        "flashinfer #527",
        "Strides are computed from the shape.",
        address=_contiguous,
    ),
    _plant(
        "heads_first_assumed",
        "aiter #3498",
        "A head's tokens are taken to lie together.",
        address=_heads_first,
    ),
    _plant(
        "value_with_strides_of_key",
        "aiter #3498",
        "Values are read with the strides of the keys.",
        address=_strides_of_keys,
    ),
    _plant(
        "value_row_of_head_dim",
        UNKNOWN,
        "Heads are taken to be `head_dim` apart, also those of narrower values.",
        address=_row_of_head_dim,
    ),
    _plant(
        "offset_of_view_ignored",
        "flashinfer #527",
        "A cache is read from the beginning of its memory.",
        address=lambda self, a, cache, *at: (
            Right.address(self, a, cache, *at) - cache.storage_offset()
        ),
    ),
    _plant(
        "consecutive_blocks_assumed",
        "pytorch #182593",
        "Blocks are taken to follow the first one.",
        lookup=_lookup(_consecutive),
    ),
    _plant(
        "ascending_blocks_assumed",
        "pytorch #182593",
        "Blocks are read in the order of their ids.",
        lookup=_lookup(_sorted_ids),
    ),
    _plant(
        "shared_block_misread",
        UNKNOWN,
        "A block that an earlier sequence has too is read elsewhere.",
        lookup=_lookup(_own_copy_of_shared),
    ),
    _plant(
        "table_padding_read",
        "vllm #42494",
        "Blocks are fetched for whole tiles, and the values of what is masked are multiplied by 0.",
        lookup=_table_before_mask,
        switched_off=_values_unmasked,
    ),
    _plant(
        "tail_values_read",
        "vllm #641",
        "Values of the last block's empty slots are multiplied by weight 0, NaN or not.",
        lookup=_lanes_of_block,
        switched_off=_values_unmasked,
    ),
    _plant(
        "tail_read_and_nan_hidden",
        "vllm #43990",
        "The tail is read, and what becomes NaN is made 0.",
        lookup=_lanes_of_block,
        switched_off=_values_unmasked,
        store=_hidden_tail,
    ),
    _plant(
        "missing_block_is_block_0",
        "onnxruntime #32391",
        "Lanes of no block read block 0, and their values are multiplied by 0.",
        switched_off=_values_unmasked,
    ),
)
