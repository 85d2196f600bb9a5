"""Copiers of blocks with one fault each; every function is wrong on purpose."""

from __future__ import annotations

import torch

from .exhibit import Exhibit, hang

COPIES: list[Exhibit] = []


def _copy(cache, pairs):
    """The right copier."""
    ids = pairs.long()
    cache[ids[:, 1]] = cache[ids[:, 0]]


@hang(COPIES, "copy", "order", "vllm #50729")
def one_pair_after_the_other(cache, pairs):
    """Copies in place in the order of the list, so that a chain hands on what was just written."""
    for source, destination in pairs.tolist():
        cache[destination] = cache[source]


@hang(COPIES, "copy", "order")
def backwards(cache, pairs):
    """Copies in place from the end of the list, which saves chains but not cycles."""
    for source, destination in reversed(pairs.tolist()):
        cache[destination] = cache[source]


@hang(COPIES, "copy", "mix-up")
def exchanges(cache, pairs):
    """Swaps the two blocks."""
    old = cache.clone()
    for source, destination in pairs.tolist():
        cache[destination], cache[source] = old[source], old[destination]


@hang(COPIES, "copy", "mix-up", "vllm #17362")
def source_and_destination_exchanged(cache, pairs):
    """Reads the pairs as (destination, source)."""
    _copy(cache, pairs.flip(1))


@hang(COPIES, "copy", "mix-up")
def first_destination_only(cache, pairs):
    """Keeps the pairs in a dict by source, so that one destination of each survives."""
    kept = dict(pairs.tolist())
    _copy(cache, torch.tensor(list(kept.items())).reshape(-1, 2))


@hang(COPIES, "copy", "strides", "flashinfer #527")
def packed_blocks_assumed(cache, pairs):
    """Takes the cache for contiguous."""
    size = cache[0].numel()
    flat = cache.as_strided((cache.shape[0], size), (size, 1))
    _copy(flat, pairs)


@hang(COPIES, "copy", "strides")
def copies_a_copy(cache, pairs):
    """Flattens with reshape, which copies what is not contiguous."""
    _copy(cache.reshape(cache.shape[0], -1), pairs)


@hang(COPIES, "copy", "strides", "vllm #37032")
def copies_the_gap_too(cache, pairs):
    """Moves everything between two block starts, gaps and neighbours in the same memory too."""
    whole = cache.as_strided((cache.shape[0], cache.stride(0)), (cache.stride(0), 1))
    _copy(whole, pairs)


@hang(COPIES, "copy", "integer width", "flashinfer #1654")
def int64_pairs_read_as_int32(cache, pairs):
    """Reads the first half of the pairs' memory as if they were 32 bits wide."""
    pairs = pairs.contiguous()
    halves = pairs.view(torch.int32).reshape(-1)[: pairs.numel()].reshape(-1, 2)
    _copy(cache, halves)


@hang(COPIES, "copy", "integer width", "vllm #1486")
def offset_of_a_block_in_32_bits(cache, pairs):
    """Computes block * stride in 32 bits."""

    def block(i):
        offset = (i * cache.stride(0) + 2**31) % 2**32 - 2**31
        return cache.as_strided(
            cache.shape[1:], cache.stride()[1:], cache.storage_offset() + offset
        )

    held = [(block(b), block(a).clone()) for a, b in pairs.tolist()]
    for destination, numbers in held:
        destination.copy_(numbers)


@hang(COPIES, "copy", "tails")
def numbers_in_fours(cache, pairs):
    """Copies four numbers at a time and forgets the rest of the block."""
    ids, size = pairs.long(), cache[0].numel() // 4 * 4
    flat = cache[ids[:, 0]].flatten(1)[:, :size]
    for row, i in zip(flat, ids[:, 1].tolist()):
        whole = cache[i].flatten().clone()
        whole[:size] = row
        cache[i] = whole.view(cache[i].shape)


@hang(COPIES, "copy", "launch", "flashinfer #3125")
def first_512_pairs(cache, pairs):
    """Launches at most 512 pairs, without an error."""
    _copy(cache, pairs[:512])


@hang(COPIES, "copy", "values")
def copies_numbers_instead_of_bits(cache, pairs):
    """Goes through arithmetic, which makes every NaN the same one."""
    if cache.dtype.is_floating_point:
        old = cache.clone()
        _copy(old, pairs)
        cache[pairs.long()[:, 1]] = old[pairs.long()[:, 1]].nan_to_num(nan=torch.nan)
        cache[pairs.long()[:, 1]] = cache[pairs.long()[:, 1]] + 0.0
    else:
        _copy(cache, pairs)


@hang(COPIES, "copy", "inputs")
def sorts_the_pairs_in_place(cache, pairs):
    """Is right, but leaves the caller's pairs in another order."""
    _copy(cache, pairs.clone())
    pairs.copy_(pairs.flip(0))
