"""Faults of block tables and of rows: whose keys, and whose queries."""

from __future__ import annotations

from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "lengths")


def _short_ones_ignore_the_table(self, a, w, which, logical, inside):
    block = Right.lookup(self, a, w, which, logical, inside)
    return torch.where(inside, logical, 0) if w.kv_len < 16 else block


def _table_row(width):
    def lookup(self, a, w, which, logical, inside):
        entry = (w.s * width(a) + logical) % a.block_tables.numel()
        return torch.where(inside, a.block_tables.flatten()[entry].long(), 0)

    return lookup


def _blocks_of_longest(a):
    return max(1, -(-int(a.seq_lens.max()) // a.key_cache.shape[1]))


def _start_of_queries(self, a, w, which, logical, inside):
    skipped = int(a.query_start_loc[w.s]) // a.key_cache.shape[1]
    return Right.lookup(self, a, w, which, logical + skipped, inside)


def _rows_of_longest(self, a, s, first, index):
    longest = int(a.query_start_loc.diff().max())
    return (s * longest + index) % len(a.query)


def _power_of_two(self, a, keys, size):
    shift = size.bit_length() - 1
    return keys >> shift, keys % (1 << shift)


def _uniform_lengths(self, a, s, first, index):
    return (s * (len(a.query) // len(a.seq_lens)) + index) % len(a.query)


def _block_of_tile(self, a, w, which, logical, inside):
    block = Right.lookup(self, a, w, which, logical, inside)
    return block[0].expand(block.shape) if which == "value" and inside[0] else block


def _no_row_of_empty(self, a, s):
    """Rows are counted over sequences that have keys."""
    tiles = Right.work(self, a, s)
    missing = sum(int(q) for q, k in zip(a.query_start_loc.diff()[:s], a.seq_lens[:s]) if not k)
    for w in tiles:
        w.rows = w.rows - missing
    return tiles


TABLES = (
    _plant(
        "short_ones_ignore_the_table",
        "flashinfer #3106",
        "Below 16 keys the logical block is read as the physical one.",
        lookup=_short_ones_ignore_the_table,
    ),
    _plant(
        "block_table_by_token",
        "aiter #4825",
        "The block table is indexed by the token, right only for blocks of 1.",
        place=lambda self, a, keys, size: (keys, keys % size),
    ),
    _plant(
        "block_size_16_assumed",
        "vllm #27547",
        "Positions are divided by 16, whatever the block size is.",
        place=lambda self, a, keys, size: (keys // 16, keys % 16),
    ),
    _plant(
        "block_size_a_power_of_two",
        UNKNOWN,
        "Positions are shifted instead of divided, wrong for a block size of 3.",
        place=_power_of_two,
    ),
    _plant(
        "offset_within_tile",
        "flashinfer #810",
        "The offset in a block is counted from the beginning of the tile.",
        place=lambda self, a, keys, size: (keys // size, (keys - keys[0]) % size),
    ),
    _plant(
        "one_block_per_tile",
        "flashinfer #3022",
        "The values of a whole tile come from the block of its first key.",
        lookup=_block_of_tile,
    ),
    _plant(
        "table_of_8_columns",
        UNKNOWN,
        "Of the block table the first 8 columns are used, then the last of them again and again.",
        place=lambda self, a, keys, size: ((keys // size).clamp(max=7), keys % size),
    ),
    _plant(
        "table_stride_of_longest",
        "mini-sglang #68",
        "A row of the block table is taken to be as wide as the longest sequence.",
        lookup=_table_row(_blocks_of_longest),
    ),
    _plant(
        "table_of_first_sequence",
        "attention-gym #189",
        "Every sequence reads through the first row of the block table.",
        lookup=_table_row(lambda a: 0),
    ),
    _plant(
        "keys_start_where_queries_do",
        "lightllm #743",
        "The start of the queries is used for the start of the keys too.",
        lookup=_start_of_queries,
    ),
    _plant(
        "rows_of_longest",
        "lightllm #743",
        "Rows of the query are at sequence * longest, as if the batch were padded.",
        rows=_rows_of_longest,
    ),
    _plant(
        "rows_of_equal_lengths",
        "TGI #3324",
        "All sequences are taken to have the same number of queries.",
        rows=_uniform_lengths,
    ),
    _plant(
        "rows_without_empty_sequences",
        "flashinfer #353",
        "A sequence without keys takes no rows, so those behind it move up.",
        work=_no_row_of_empty,
    ),
)
