"""Faults of lengths: how many keys and queries there are."""

from __future__ import annotations

from functools import partial

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "lengths")


def _sizes(a, s):
    return int(a.seq_lens[s]), a.key_cache.shape[1]


def _last_block_of_zero(self, a, s):
    length, size = _sizes(a, s)
    return (-(-length // size) - 1) * size + length % size if length else 0


def _one_block_more(self, a, s):
    length, size = _sizes(a, s)
    return length // size * size + (length - 1) % size + 1 if length else 0


def _whole_blocks(self, a, s):
    length, size = _sizes(a, s)
    return -(-length // size) * size


def _without_partial_block(self, a, w):
    low, high = Right.key_range(self, a, w)
    size = a.key_cache.shape[1]
    return low, high // size * size if high > size else high


def _length_of_the_one_before(self, a, s):
    return int(a.seq_lens[s - 1 if s and s == len(a.seq_lens) - 1 else s])


def _up_to(limit):
    def key_range(self, a, w):
        low, high = Right.key_range(self, a, w)
        return low, min(high, limit)

    return key_range


LENGTHS = (
    _plant(
        "last_block_of_zero",
        "flashinfer #2079",
        "The last block is taken to hold `length % block_size` keys, also where that is 0.",
        kv_len=_last_block_of_zero,
    ),
    _plant(
        "one_block_more",
        "pegainfer #291",
        "A length that fills its last block counts one block more.",
        kv_len=_one_block_more,
    ),
    _plant(
        "length_in_whole_blocks",
        "flashinfer #942",
        "The bound is in blocks, so the tail of the last one counts.",
        kv_len=_whole_blocks,
    ),
    _plant(
        "partial_block_dropped",
        UNKNOWN,
        "The last block of a longer sequence counts only if it is full.",
        key_range=_without_partial_block,
    ),
    _plant(
        "last_key_dropped",
        "nano-vllm #213",
        "The key written in this very step is not seen.",
        key_range=lambda self, a, w: (r := Right.key_range(self, a, w)) and (r[0], r[1] - 1),
    ),
    _plant(
        "first_key_dropped",
        UNKNOWN,
        "Reading begins at the second key.",
        key_range=lambda self, a, w: (r := Right.key_range(self, a, w)) and (max(1, r[0]), r[1]),
    ),
    _plant(
        "position_is_length",
        "nano-vllm f5b48402",
        "A query stands one position too late.",
        positions=lambda self, a, i, n, k: Right.positions(self, a, i, n, k) + 1,
    ),
    _plant(
        "length_of_first_sequence",
        "flash-attention #1795",
        "Every sequence is as long as the first.",
        kv_len=lambda self, a, s: int(a.seq_lens[0]),
    ),
    _plant(
        "last_length_of_the_one_before",
        UNKNOWN,
        "The last sequence of a batch has the length of the one before it.",
        kv_len=_length_of_the_one_before,
    ),
    *(
        _plant(
            f"at_most_{limit}_keys",
            "vllm #905",
            f"Keys from {limit} on are not seen.",
            key_range=_up_to(limit),
        )
        for limit in (32, 128, 256, 512)
    ),
    _plant(
        "at_most_8_sequences",
        "flashinfer #3125",
        "The ninth sequence of a batch is never computed.",
        num_seqs=lambda self, a: min(8, len(a.seq_lens)),
    ),
    _plant(
        "at_most_8_queries",
        UNKNOWN,
        "The ninth query of a sequence is never computed.",
        work=lambda self, a, s: Right.work(self, a, s)[:2],
    ),
)
