"""A number that is not finite is no missing key: what a query sees of it shows in its output."""

from __future__ import annotations

import math

import pytest
import torch

from minipaged_cuda import merge_states, paged_attention
from minipaged_cuda.plan import KERNELS
from support.cuda_conformance import every_option, kernel
from support.cuda_operations import batch, emulated_launcher, simulated_launcher

FORMS = [(name, 1) for name in KERNELS] + [("attention", 2), ("decode_v3", 2)]


@pytest.mark.parametrize(("name", "num_splits"), FORMS)
def test_a_key_that_is_seen_is_not_forgotten(name: str, num_splits: int):
    tensors = batch((1, 35), (1, 35), (1, 35), num_heads=2, num_kv_heads=1, dtype=torch.float16)
    query, key_cache, _, block_tables, *_ = tensors
    query.fill_(1)  # so that an infinite key has an infinite score
    key_cache[block_tables[1, 1], 5] = math.nan  # position 21
    key_cache[block_tables[2, 1], 5] = math.inf
    splits = {} if num_splits == 1 else {"num_splits": num_splits}
    out, lse = paged_attention(
        *tensors,
        scale=0.1,
        kernel=name,
        return_lse=True,
        launcher=simulated_launcher(),
        **splits,
    )
    assert out[0].isfinite().all()
    assert lse[0].isfinite().all()
    assert out[1:].isnan().all()
    assert not lse[1:].isfinite().any()


@pytest.mark.parametrize("num_splits", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_nor_by_the_compiler(num_splits: int):
    """Fast arithmetic may take a comparison with NaN for one without."""
    tensors = batch((1, 70), num_heads=3, num_kv_heads=1, dtype=torch.float16)
    tensors[1][tensors[3][0, 3], 5] = math.nan
    attend = every_option(kernel("attention", emulated_launcher(), num_splits=num_splits))
    out, lse = attend(*tensors, scale=0.1, return_lse=True)
    assert out.isnan().all()
    assert lse.isnan().all()


def test_a_state_that_is_no_number_does_not_vanish_in_a_merge():
    out, lse = torch.ones(3, 8), torch.tensor([math.nan, 0.0, -math.inf])
    other = torch.ones(3, 8), torch.zeros(3)
    merged, sums = merge_states(out, lse, *other, launcher=simulated_launcher())
    assert merged.isnan().any(1).tolist() == [True, False, False]
    assert sums.isnan().tolist() == [True, False, False]
