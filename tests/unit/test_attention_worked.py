"""Attention on examples small enough to do by hand; every form of it must agree with the paper."""

from __future__ import annotations

from math import log

import pytest
import torch

from minipaged.attention import dense_attention, paged_attention, paged_attention_blockwise
from minipaged.attention.cpu import cpu_paged_attention
from support.attention_examples import HAND, PICTURES, ints, picture, two_keys
from support.attention_oracle import Rules, attend

FORMS = {
    "gather": paged_attention,
    "blockwise": paged_attention_blockwise,
    "cpu": cpu_paged_attention,
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
@pytest.mark.parametrize("name", HAND)
def test_by_hand(form, name):
    options, first, second, sink = HAND[name]
    total = first + second + sink
    out, lse = two_keys(form, **options)
    assert out == pytest.approx(4 * second / total, rel=1e-6)
    assert lse == pytest.approx(log(total), rel=1e-6)


@pytest.mark.parametrize("name", HAND)
def test_the_oracle_by_hand(name):
    options, first, second, sink = HAND[name]
    names = {"alibi_slopes": "slope", "sinks": "sink"}
    options = {names.get(k, k): x for k, x in options.items()}
    row = attend([1.0], [[0.0], [log(3)]], [[0.0], [4.0]], 1, 1, Rules(**({"scale": 1} | options)))
    total = first + second + sink
    assert row.out == [pytest.approx(4 * second / total, rel=1e-14)]
    assert row.lse == pytest.approx(log(total), rel=1e-14)
    assert 0 < row.out_budget[0] < 1e-13


@each_form
def test_scales_of_keys_and_values(form):
    assert two_keys(form, v_scale=0.5) == pytest.approx((1.5, log(4)))
    assert two_keys(form, v_scale=torch.tensor([10.0]))[0] == pytest.approx(30)
    assert two_keys(form, k_scale=torch.tensor([2.0])) == pytest.approx((3.6, log(10)))


@each_form
@pytest.mark.parametrize(("lengths", "options", "expected"), PICTURES)
def test_who_sees_what(form, lengths, options, expected):
    assert picture(form, *lengths, **options) == expected


@each_form
def test_a_query_that_sees_nothing_returns_zero(form):
    empty = (torch.ones(2, 1, 1), torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 3))
    batch = (ints([-1]), ints(0), ints(0, 2))
    out, lse = form(*empty, *batch, scale=1.0, return_lse=True)
    assert out.tolist() == [[[0, 0, 0]]] * 2
    assert lse.tolist() == [[-torch.inf]] * 2
    out, lse = form(*empty, *batch, scale=1.0, sinks=torch.tensor([1.5]), return_lse=True)
    assert out.tolist() == [[[0, 0, 0]]] * 2
    assert lse.tolist() == [[1.5]] * 2


@each_form
def test_a_step_without_sequences_or_tokens(form):
    caches = (torch.zeros(1, 4, 2, 8), torch.zeros(1, 4, 2, 8))
    nothing = torch.zeros(0, 1, dtype=torch.int32)
    out = form(torch.zeros(0, 4, 8), *caches, nothing, ints(), ints(0), scale=1.0)
    assert out.shape == (0, 4, 8)
    out = form(torch.ones(3, 4, 8), *caches, nothing, ints(), ints(0), scale=1.0)
    assert out.tolist() == torch.zeros(3, 4, 8).tolist()
    idle = (torch.zeros(1, 1, dtype=torch.int32), ints(2), ints(0, 0))
    assert form(torch.zeros(0, 4, 8), *caches, *idle, scale=1.0).shape == (0, 4, 8)


@each_form
def test_nan_that_is_seen_is_not_hidden(form):
    key, value = torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4)
    key[0, 1, 0, 2] = torch.nan
    out = form(torch.ones(1, 1, 4), key, value, ints([0]), ints(2), ints(0, 1), scale=1.0)
    assert out.isnan().all()


def test_dense_is_one_sequence():
    query, key = torch.tensor([[[1.0]]]), torch.tensor([[[0.0]], [[log(3)]]])
    out, lse = dense_attention(query, key, 4 * key / log(3), scale=1.0, return_lse=True)
    assert (out.item(), lse.item()) == pytest.approx((3, log(4)))
    assert dense_attention(query, key, 4 * key / log(3), scale=1.0).item() == pytest.approx(3)
