"""What the judges stand on: memory that tells, address space for nothing, merging in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minipaged.oracle.address_space import NoAddressSpace, sparse_cache
from minipaged.oracle.parts.memory import INPUT_LAYOUTS, LAYOUTS, Pool, bits, laid_out, same_bits
from minipaged.oracle.parts.merge_truth import attention, merged
from minipaged.oracle.parts.quantizer_cases import group_ids

SIZES = (4, 3, 2, 5, 7)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_has_the_logical_shape(layout):
    key, value = Pool.build(layout, SIZES, torch.float32, 0).views()
    assert (key.shape, value.shape) == ((4, 3, 2, 5), (4, 3, 2, 7))
    assert key.stride(-1) == value.stride(-1) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_number_of_a_layout_has_a_place_of_its_own(layout):
    pool = Pool.build(layout, SIZES, torch.float32, 0)
    before, (key, value) = pool.clone(), pool.views()
    key.fill_(torch.pi)
    value.fill_(-torch.pi)
    changed = sum(
        int((a.view(torch.int32) != b.view(torch.int32)).sum())
        for a, b in zip(pool.pieces, before.pieces)
    )
    assert changed == key.numel() + value.numel()
    assert bool((key == torch.pi).all())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_is_memory_before_and_after_a_pool(layout):
    pool = Pool.build(layout, SIZES, torch.float32, 0)
    for view in pool.views():
        piece = next(
            p for p in pool.pieces if p.data_ptr() <= view.data_ptr() < p.data_ptr() + p.nbytes
        )
        block = view.stride(0) * 4
        assert view.data_ptr() - piece.data_ptr() >= block
        assert piece.data_ptr() + piece.nbytes - view[-1].data_ptr() >= block


def test_nan_of_another_payload_is_another_number():
    one = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert one.isnan().all()
    assert not same_bits(one[:1], one[1:])
    assert same_bits(one, one.clone())
    assert bits(torch.zeros(2, 3, dtype=torch.float16)).shape == (2, 3, 2)


@pytest.mark.parametrize("layout", INPUT_LAYOUTS)
def test_inputs_keep_their_numbers_in_every_layout(layout):
    rows = torch.randn(4, 3, 5)
    assert torch.equal(laid_out(rows, layout), rows)


def test_a_sparse_cache_reaches_beyond_32_bits_and_costs_pages():
    pool = sparse_cache(40, (16, 2, 8), torch.float32, block_stride=2**27)
    pool.cache[39, 15, 1] = 1.0
    assert pool.cache.stride(0) * 39 > 2**32
    assert float(pool.cache[39].sum()) == 8.0
    assert float(pool.cache[38].sum()) == 0.0


def test_a_wrapped_offset_lands_in_the_mapping_and_is_found():
    pool = sparse_cache(20, (2, 1, 4), torch.int8, block_stride=2**27)
    wrong = (19 * 2**27 + 2**31) % 2**32 - 2**31
    assert pool.base + wrong in pool.wrapped(19)
    assert pool.base + 19 * 2**27 not in pool.wrapped(19)
    assert pool.wrapped(3) == []


def test_more_than_there_is_is_refused():
    with pytest.raises(NoAddressSpace, match="GiB of address space"):
        sparse_cache(2**20, (1,), torch.float32, block_stride=2**40)


def test_the_truth_of_merging_is_attention_over_the_union():
    rng = np.random.default_rng(0)
    scores, values = rng.normal(0, 3, (2, 3, 11)), rng.standard_normal((2, 3, 11, 4))
    parts = [attention(scores[..., i::3], values[..., i::3, :]) for i in range(3)]
    out, lse = attention(scores, values)
    truth = merged(parts, 1.0, torch.float32)
    assert np.allclose(truth.out, out, rtol=1e-13, atol=1e-13)
    assert np.allclose(truth.lse, lse, rtol=1e-13)
    assert (truth.out_bound < 1e-4).all()


def test_the_truth_uses_nothing_of_an_empty_state():
    out, lse = np.full((1, 1, 2), np.nan), np.full((1, 1), -np.inf)
    some = np.ones((1, 1, 2)), np.zeros((1, 1))
    assert merged([(out, lse), some], 1.0, torch.float32).out.tolist() == [[[1, 1]]]
    both = merged([(out, lse), (out, lse)], 1.0, torch.float32)
    assert (both.out.tolist(), both.lse.tolist()) == ([[[0, 0]]], [[-np.inf]])


@pytest.mark.parametrize(
    ("granularity", "count"),
    [("tensor", 1), ("head", 3), ("token", 2), ("token, head", 6), ("channel", 12)],
)
def test_groups_share_a_scale(granularity, count):
    assert len(np.unique(group_ids((2, 3, 4), granularity))) == count
