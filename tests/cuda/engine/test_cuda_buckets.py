"""Which recorded step serves a batch, and what its inputs hold where the batch is smaller."""

from __future__ import annotations

import pytest
import torch

from minipaged.cache import PagedBatch
from minipaged_cuda.buckets import Bucket, Inputs, bucket_for
from support.cuda_engine import Cpu

MOST = Bucket(300, 2000)


def test_a_bucket_has_room_and_wastes_little():
    for num in range(1, MOST.num_rows + 1):
        rows, blocks = bucket_for(num, num, MOST)
        assert num <= rows <= MOST.num_rows
        assert num > rows * 2 / 3
        assert num <= blocks <= MOST.max_blocks
        assert blocks <= max(16, 4 * num)


def test_there_are_few_buckets_and_each_serves_itself():
    found = {bucket_for(rows, 16, MOST) for rows in range(1, MOST.num_rows + 1)}
    assert sorted(b.num_rows for b in found) == [
        *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 300)
    ]
    assert all(bucket_for(*bucket, MOST) == bucket for bucket in found)
    assert bucket_for(1, 1, Bucket(1, 3)) == Bucket(1, 3)


def batch_of(*lens: int) -> PagedBatch:
    """One new token of each sequence, in blocks of 4."""
    num, blocks = len(lens), max(-(-n // 4) for n in lens)
    positions = torch.tensor(lens) - 1
    return PagedBatch(
        positions,
        positions + 100,
        torch.arange(num * blocks, dtype=torch.int32).view(num, blocks),
        torch.tensor(lens, dtype=torch.int32),
        torch.arange(num + 1, dtype=torch.int32),
    )


def test_a_padding_row_is_a_token_that_goes_nowhere_and_sees_nothing():
    inputs = Inputs(4, 4, 3, Cpu())
    inputs.fill([17, 4], batch_of(5, 7))
    batch = inputs.batch
    assert inputs.token_ids.tolist() == [17, 4, 0, 0]
    assert batch.positions.tolist() == [4, 6, 0, 0]
    assert batch.slot_mapping.tolist() == [104, 106, -1, -1]
    assert batch.block_tables.tolist() == [[0, 1, -1], [2, 3, -1], [-1] * 3, [-1] * 3]
    assert batch.seq_lens.tolist() == [5, 7, 0, 0]
    assert batch.query_start_loc.tolist() == [0, 1, 2, 3, 4]


def test_a_smaller_batch_leaves_nothing_of_the_larger_one_before():
    inputs, fresh = Inputs(4, 4, 3, Cpu()), Inputs(4, 4, 3, Cpu())
    inputs.fill([1, 2, 3, 4], batch_of(9, 9, 9, 9))
    inputs.fill([8], batch_of(2))
    fresh.fill([8], batch_of(2))
    assert torch.equal(inputs._buffer, fresh._buffer)


def test_addresses_stay_and_all_is_one_aligned_piece():
    inputs = Inputs(3, 3, 5, Cpu())

    def addresses() -> list[int]:
        batch = inputs.batch
        tensors = batch.positions, batch.slot_mapping, batch.block_tables, batch.seq_lens
        return [x.data_ptr() for x in (inputs.token_ids, *tensors, batch.query_start_loc)]

    before = addresses()
    inputs.fill([1, 2, 3], batch_of(9, 2, 17))
    inputs.fill([1], batch_of(9))
    assert addresses() == before
    sizes = [24, 24, 24, 60, 12, 16]
    assert before == [before[0] + sum(sizes[:i]) for i in range(6)]


def test_a_batch_with_prompts_is_filled_as_it_is():
    batch = PagedBatch(
        torch.tensor([0, 1, 4]),
        torch.tensor([8, 9, 2]),
        torch.tensor([[2, -1], [7, 0]], dtype=torch.int32),
        torch.tensor([2, 5], dtype=torch.int32),
        torch.tensor([0, 2, 3], dtype=torch.int32),
    )
    inputs = Inputs(3, 2, 2, Cpu())
    inputs.fill([5, 6, 7], batch)
    assert inputs.token_ids.tolist() == [5, 6, 7]
    for name in PagedBatch.__slots__:
        assert torch.equal(getattr(inputs.batch, name), getattr(batch, name))


def test_a_batch_that_does_not_fit_is_refused():
    with pytest.raises(RuntimeError):
        Inputs(1, 1, 3, Cpu()).fill([1, 2], batch_of(2, 2))
