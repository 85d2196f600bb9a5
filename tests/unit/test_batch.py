"""One step as five small tensors, worked out by hand."""

import dataclasses

import pytest
import torch

from minipaged.cache import PagedBatch
from minipaged.cache.batch import pad_tables
from minipaged.core import BlockPool, BlockTable, Copy, InvalidBatch, reserve


def table_of(block_ids: list[int], num_tokens: int, num_reserved: int, size: int = 4) -> BlockTable:
    """A table as a picture would show it; only read, so its pool does not matter."""
    table = BlockTable(BlockPool(1), size)
    table.block_ids, table.num_tokens, table.num_reserved = block_ids, num_tokens, num_reserved
    return table


def as_lists(batch: PagedBatch) -> dict[str, list]:
    return {f.name: getattr(batch, f.name).tolist() for f in dataclasses.fields(batch)}


def test_a_decode_step_after_a_fork():
    # A has 9 tokens in blocks 5 2 7; B is its fork. Both decode one token.
    pool = BlockPool(8)
    pool.allocate(8)
    for block in (3, 7, 2, 5):
        pool.release(block)  # so that 5 2 7 3 come next
    a = BlockTable(pool, block_size=4)
    a.reserve(9)
    a.commit([0] * 9)
    b = a.fork()
    assert a.block_ids == [5, 2, 7]
    assert reserve([a, b], [1, 1]) == [Copy(source=7, destination=3)]
    assert as_lists(PagedBatch.build([a, b])) == {
        "positions": [9, 9],
        "slot_mapping": [13, 29],  # 3 * 4 + 1, and in place: 7 * 4 + 1
        "block_tables": [[5, 2, 3], [5, 2, 7]],
        "seq_lens": [10, 10],
        "query_start_loc": [0, 1, 2],
    }


def test_prefill_a_chunk_and_decode_are_one_thing():
    tables = [
        table_of([0, 4], 0, 6),  # a whole prompt of 6
        table_of([3, 1, 6], 4, 9),  # a chunk of 5 behind 4 known tokens
        table_of([2], 3, 4),  # a decode
        table_of([5], 2, 2),  # nothing this time
    ]
    assert as_lists(PagedBatch.build(tables)) == {
        "positions": [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 3],
        "slot_mapping": [0, 1, 2, 3, 16, 17, 4, 5, 6, 7, 24, 11],
        "block_tables": [[0, 4, -1], [3, 1, 6], [2, -1, -1], [5, -1, -1]],
        "seq_lens": [6, 9, 4, 2],
        "query_start_loc": [0, 6, 11, 12, 12],
    }


@pytest.mark.invariant(9)
def test_blocks_behind_a_window_are_minus_one():
    batch = PagedBatch.build([table_of([-1, -1, 3], 9, 10)])
    assert batch.block_tables.tolist() == [[-1, -1, 3]]
    assert batch.slot_mapping.tolist() == [13]


def test_dtypes_are_those_of_the_convention():
    batch = PagedBatch.build([table_of([0], 0, 1)])
    dtypes = {f.name: getattr(batch, f.name).dtype for f in dataclasses.fields(batch)}
    assert dtypes == {
        "positions": torch.int64,
        "slot_mapping": torch.int64,
        "block_tables": torch.int32,
        "seq_lens": torch.int32,
        "query_start_loc": torch.int32,
    }


def test_slots_beyond_32_bits_do_not_overflow():
    block = 2**30  # times 4 tokens: slot 2**32
    batch = PagedBatch.build([table_of([block], 0, 2)])
    assert batch.slot_mapping.tolist() == [2**32, 2**32 + 1]


def test_tables_are_padded_with_no_block():
    assert pad_tables([[1], [], [4, 5]]).tolist() == [[1, -1], [-1, -1], [4, 5]]
    assert pad_tables([[], []]).tolist() == [[-1], [-1]]
    assert pad_tables([]).shape == (0, 1)


# --- what validate complains about ---------------------------------------------------------------


def good_batch() -> PagedBatch:
    """Sequence 0: 2 new tokens behind 3, in blocks 1 2. Sequence 1: 1 new token in block 0."""
    return PagedBatch.build([table_of([1, 2], 3, 5), table_of([0], 0, 1)])


def test_a_good_batch_is_good():
    good_batch().validate(num_blocks=3, block_size=4)


@pytest.mark.invariant(9)
def test_tokens_may_be_skipped():
    batch = dataclasses.replace(good_batch(), slot_mapping=torch.tensor([-1, 8, -1]))
    batch.validate(num_blocks=3, block_size=4)


def test_entries_behind_a_window_are_not_looked_at():
    PagedBatch.build([table_of([-1, 2], 6, 7)]).validate(num_blocks=3, block_size=4)


def test_columns_past_the_end_may_hold_anything():
    batch = dataclasses.replace(good_batch(), block_tables=torch.tensor([[1, 2], [0, 99]]))
    batch.validate(num_blocks=3, block_size=4)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"query_start_loc": [1, 2, 3]}, r"query_start_loc \[1, 2, 3\] must rise from 0"),
        ({"query_start_loc": [0, 4, 3]}, r"query_start_loc \[0, 4, 3\] must rise from 0"),
        ({"query_start_loc": [0, 2, 4]}, r"number of positions \(3\) and of slots \(3\)"),
        ({"slot_mapping": [7, 8]}, r"number of positions \(3\) and of slots \(2\)"),
        ({"positions": [3, 4, 0, 0]}, r"number of positions \(4\) and of slots \(3\)"),
        ({"slot_mapping": [7, 7, 0]}, "two tokens of this step write the same slot"),
        ({"seq_lens": [9, 1]}, "covers 8 tokens of sequence 0, seq_lens asks for 9, 2 of them new"),
        ({"seq_lens": [5, 0]}, "of sequence 1, seq_lens asks for 0, 1 of them new"),
        ({"block_tables": [[1, 3], [0, -1]]}, "sequence 0 has block 3 of 3 blocks"),
        ({"block_tables": [[1, 2], [-2, -1]]}, "sequence 1 has block -2 of 3 blocks"),
        ({"positions": [4, 5, 0]}, r"positions \[4, 5\] to .* says positions \[3, 4\]"),
        ({"slot_mapping": [7, 9, 0]}, r"to slots \[7, 9\]; .* and slots \[7, 8\]"),
        ({"slot_mapping": [7, 12, 0]}, r"to slots \[7, 12\]; .* and slots \[7, 8\]"),
        ({"block_tables": [[1, -1], [0, -1]]}, r"to slots \[7, 8\]; .* and slots \[7, -4\]"),
    ],
)
def test_a_contradiction_is_told_with_its_numbers(wrong, complaint):
    changed = {name: torch.tensor(numbers) for name, numbers in wrong.items()}
    batch = dataclasses.replace(good_batch(), **changed)
    with pytest.raises(InvalidBatch, match=complaint):
        batch.validate(num_blocks=3, block_size=4)
