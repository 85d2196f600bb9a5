"""Merging: the weights are those of float64, empty parts are not read, and the laws of a merge."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from minipaged.attention.online_softmax import merge_states as merge_reference
from support.cuda_kernels import CONVERTERS, LAUNCHERS, element, launch

NUM_TOKENS, NUM_HEADS, DIM, NUM_SPLITS = 3, 2, 5, 4
EMPTY = -1e30


def merge_states(launcher: Any, *states: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel on ``out_a, lse_a, out_b, lse_b``."""
    out, lse = (torch.full_like(x, torch.nan) for x in states[:2])
    names = ("out_a", "lse_a", "out_b", "lse_b")
    arguments = dict(zip(names, states), out=out, lse=lse, num_heads=NUM_HEADS)
    kind = CONVERTERS[out.dtype]
    constants = {"D": DIM, "OUT": element(out), "load_state": f"load_{kind}"}
    constants["store_out"] = f"store_{kind}"
    launch(launcher, "merge_states", (NUM_TOKENS, NUM_HEADS), DIM, arguments, constants)
    return out, lse


def state(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    out = torch.randn(NUM_TOKENS, NUM_HEADS, DIM).to(dtype)
    return out, torch.randn(NUM_TOKENS, NUM_HEADS) * 5


def empty(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """No key; what the output holds then does not matter."""
    out = torch.full((NUM_TOKENS, NUM_HEADS, DIM), torch.nan, dtype=dtype)
    return out, torch.full((NUM_TOKENS, NUM_HEADS), -torch.inf)


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_states_merge_as_in_float64(launcher, dtype):
    torch.manual_seed(1)
    a, b = state(dtype), state(dtype)
    want = merge_reference(*(x.double() for x in (*a, *b)))
    out, lse = merge_states(launcher, *a, *b)
    torch.testing.assert_close(lse.double(), want[1], rtol=1e-6, atol=1e-6)
    error = torch.finfo(dtype).eps / 2 + 1e-6
    torch.testing.assert_close(out.double(), want[0], rtol=error, atol=1e-6)


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_the_laws_of_a_merge(launcher):
    torch.manual_seed(2)
    a, b, nothing = state(), state(), empty()
    zero = torch.zeros_like(a[0]), nothing[1]
    for x, y in zip(merge_states(launcher, *a, *b), merge_states(launcher, *b, *a)):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)  # commutative, but for a rounding
    for merged in (merge_states(launcher, *a, *nothing), merge_states(launcher, *nothing, *a)):
        assert all(map(torch.equal, merged, a))  # (anything, -inf) is the identity
    assert all(map(torch.equal, merge_states(launcher, *nothing, *nothing), zero))


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_far_apart_states_do_not_overflow(launcher):
    torch.manual_seed(3)
    a, b = state(), state()
    a[1][:], b[1][:] = 3e4, -3e4
    assert all(map(torch.equal, merge_states(launcher, *a, *b), a))


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
@pytest.mark.parametrize("with_sinks", [False, True])
def test_splits_merge_to_what_one_split_would_give(launcher, with_sinks):
    torch.manual_seed(4)
    out = torch.randn(NUM_TOKENS, NUM_HEADS, NUM_SPLITS, DIM)
    lse = torch.randn(NUM_TOKENS, NUM_HEADS, NUM_SPLITS) * 5
    lse[:, :, 1], out[:, :, 1] = EMPTY, torch.nan  # nobody reads the output of an empty split
    lse[1], out[1] = EMPTY, torch.nan  # a row that sees no key at all
    lse[2], out[2] = EMPTY, torch.nan  # a row of no sequence
    sinks = torch.tensor([0.5, -torch.inf])
    got = torch.full((NUM_TOKENS, NUM_HEADS, DIM), torch.nan), torch.full((3, 2), torch.nan)
    arguments = {
        **dict(zip(("out", "lse"), got)),
        **{"partial_out": out, "partial_lse": lse, "sinks": sinks if with_sinks else None},
        **{"query_start_loc": torch.tensor([0, 2], dtype=torch.int32), "num_seqs": 1},
        **{"num_heads": NUM_HEADS, "num_splits": NUM_SPLITS},
    }
    constants = {"D": DIM, "SINKS": int(with_sinks), "OUT": "float32"}
    constants |= {"store_out": "store_float32"}
    launch(launcher, "merge", (NUM_TOKENS, NUM_HEADS), 32, arguments, constants)
    natural = torch.where(lse > EMPTY, lse.double() * math.log(2), -torch.inf)
    logits = torch.full((3, 2, 1), -torch.inf, dtype=torch.float64)
    if with_sinks:
        logits[:2, :, 0] = sinks.double()
    all_logits = torch.cat([natural, logits], -1)
    want_lse = torch.logsumexp(all_logits, -1)
    weights = torch.exp(natural - torch.where(want_lse == -torch.inf, 0.0, want_lse)[..., None])
    want = (weights[..., None] * out.double().nan_to_num()).sum(2)
    torch.testing.assert_close(got[0].double(), want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got[1].double(), want_lse, rtol=1e-6, atol=1e-6)
