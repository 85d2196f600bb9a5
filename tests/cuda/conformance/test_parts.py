"""The judges of a cache's parts on our own: write, quantise, copy, swap, merge."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from minipaged.oracle.parts import (
    CopyContract,
    WriterContract,
    check_copy,
    check_merge,
    check_writer,
)
from minipaged_cuda import copy_blocks, merge_states, swap_blocks, write_kv
from support.cuda_operations import simulated_launcher

# Directed cases come first, so in two seconds the faults of others are seen; the rest is slow.
# The simulator keeps a note of every byte: no caches of 2**31 elements.
SECONDS = pytest.mark.parametrize(
    "deadline_s", [2.0, pytest.param(300.0, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
LIMITS = {"call_s": 300.0}
WRITER = WriterContract(address_space=False, longer_keys="refused", conversion="done")
COPY = CopyContract(address_space=False, caches=2, any_rank=False, negative_pairs="skipped")
FLOAT8 = replace(WRITER, cache_dtypes=(torch.float8_e4m3fn,))


def simulated(operation, **options):
    return partial(operation, launcher=simulated_launcher(), **options)


@SECONDS
def test_write_kv_stores_every_token_in_its_slot_and_nothing_else(deadline_s):
    report = check_writer(simulated(write_kv), contract=WRITER, deadline_s=deadline_s, **LIMITS)
    report.raise_if_failed()
    assert report.judged["stores each token"] >= 3


@SECONDS
def test_write_kv_stores_the_nearest_float8(deadline_s):
    scales = {"k_scale": torch.tensor([0.5, 0.1]), "v_scale": 0.03}
    limits = {"deadline_s": deadline_s, **LIMITS}
    report = check_writer(simulated(write_kv), **scales, contract=FLOAT8, **limits)
    report.raise_if_failed()
    assert report.judged["stores the nearest"] >= 3


@SECONDS
def test_copy_blocks_reads_every_source_first(deadline_s):
    report = check_copy(simulated(copy_blocks), contract=COPY, deadline_s=deadline_s, **LIMITS)
    report.raise_if_failed()
    assert report.judged["copies each block"] >= 3


@SECONDS
def test_merge_states_is_attention_over_both_sets_of_keys(deadline_s):
    report = check_merge(simulated(merge_states), deadline_s=deadline_s, **LIMITS)
    report.raise_if_failed()
    assert report.judged["weighted mean: out"] >= 3


@pytest.mark.parametrize("layers", [(), (2,)], ids=["one layer", "layers"])
def test_swapped_blocks_come_back_the_same(layers):
    """Out into a host's cache of another order, over other blocks, and back."""
    card = torch.randn(*layers, 6, 4, 2, 8)
    host = torch.full((*layers, 3, 2, 4, 8), torch.nan).transpose(-3, -2)
    before = card.clone()
    swap = simulated(swap_blocks)
    swap(card, host, [(4, 0), (1, 2)])
    card[..., (1, 4), :, :, :] = torch.nan
    swap(host, card, [(0, 4), (2, 1)])
    assert torch.equal(card, before)
    assert host[..., 1, :, :, :].isnan().all()
