"""Partial states: absorb, merge, finish."""

from __future__ import annotations

from math import log

import pytest
import torch

from minipaged.attention import AttentionState, merge_states

LIKE = torch.zeros(1, dtype=torch.float64)


def state(*pairs: tuple[float, float]) -> AttentionState:
    """One row that has seen keys of these (weight, value)."""
    scores = torch.tensor([log(weight) for weight, _ in pairs], dtype=torch.float64)
    values = torch.tensor([[value] for _, value in pairs], dtype=torch.float64)
    return AttentionState.empty(1, like=LIKE).update(scores, values)


def finished(some: AttentionState) -> tuple[float, float]:
    out, lse = some.finish()
    return out.item(), lse.item()


def test_empty_is_zero_and_minus_infinity():
    out, lse = AttentionState.empty(2, 3, like=LIKE).finish()
    assert out.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert lse.tolist() == [-torch.inf, -torch.inf]


def test_update_is_the_weighted_mean():
    assert finished(state((1, 0), (3, 4))) == pytest.approx((3, log(4)))


def test_updates_add_up():
    two = state((1, 0)).update(torch.tensor([log(3)]).double(), torch.tensor([[4.0]]).double())
    assert finished(two) == pytest.approx((3, log(4)))


def test_scores_far_apart_do_not_overflow():
    huge = AttentionState.empty(1, like=LIKE)
    for score, value in ((-2000.0, 1.0), (2000.0, 2.0), (0.0, 3.0)):
        huge = huge.update(torch.tensor([score]).double(), torch.tensor([[value]]).double())
    assert finished(huge) == (2.0, 2000.0)


def test_hidden_keys_weigh_nothing():
    scores = torch.tensor([-torch.inf, 0.0]).double()
    seen = AttentionState.empty(1, like=LIKE).update(scores, torch.tensor([[9.0], [5.0]]).double())
    assert finished(seen) == (5.0, 0.0)
    hidden = AttentionState.empty(1, like=LIKE).update(scores[:1], torch.tensor([[9.0]]).double())
    assert finished(hidden) == (0.0, -torch.inf)


def test_an_output_is_a_state_again():
    out, lse = state((1, 0), (3, 4)).finish()
    assert finished(AttentionState.from_output(out, lse)) == pytest.approx((3, log(4)))


def test_merge_states_by_hand():
    a, b = state((1, 2)).finish(), state((3, 6)).finish()
    out, lse = merge_states(*a, *b)
    assert (out.item(), lse.item()) == pytest.approx((5, log(4)))


def test_merge_states_keeps_the_dtype_of_the_output():
    out, lse = torch.ones(2, 4, dtype=torch.bfloat16), torch.zeros(2)
    merged, merged_lse = merge_states(out, lse, out, lse)
    assert merged.dtype == torch.bfloat16
    assert merged_lse.tolist() == [pytest.approx(log(2))] * 2


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, 1e30])
def test_what_an_empty_side_holds_does_not_matter(garbage):
    nothing = torch.full((1, 2), garbage), torch.tensor([-torch.inf])
    something = torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])
    for sides in ((*nothing, *something), (*something, *nothing)):
        out, lse = merge_states(*sides)
        assert out.tolist() == [[1, 2]]
        assert lse.tolist() == [3]
    out, lse = merge_states(*nothing, *nothing)
    assert out.tolist() == [[0, 0]]
    assert lse.tolist() == [-torch.inf]
