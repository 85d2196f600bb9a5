"""Laws of partial attention: any split of the keys, merged in any order, is one pass over them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged.attention import AttentionState, merge_states, paged_attention
from minipaged.attention.cpu import cpu_paged_attention
from support.events import count, must_happen

U = 2.0**-53
NUM_ROWS, NUM_KEYS, DIM = 3, 9, 2


@st.composite
def scored_values(draw):
    """Scores of 3 rows for 9 keys, many of them -inf, and the values."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    scores = torch.randn(NUM_ROWS, NUM_KEYS, generator=generator).double() * 20
    hidden = draw(st.sets(st.integers(0, NUM_ROWS * NUM_KEYS - 1)))
    for cell in [*hidden, *draw(st.sampled_from([(), range(NUM_KEYS)]))]:
        scores[divmod(cell, NUM_KEYS)] = -torch.inf
    return scores, torch.randn(NUM_KEYS, DIM, generator=generator).double()


def absorbed(scores, values, keys) -> AttentionState:
    """The state of some of the keys."""
    keys = list(keys)
    state = AttentionState.empty(NUM_ROWS, DIM, like=values)
    return state.update(scores[:, keys], values[keys]) if keys else state


def assert_equal(one: AttentionState, other: AttentionState, values) -> None:
    """The same output and lse, up to a few roundings of sums of at most nine numbers."""
    (out, lse), (out_2, lse_2) = one.finish(), other.finish()
    assert ((out - out_2).abs() <= 64 * U * values.abs().max()).all()
    same_lse = (lse == lse_2) | ((lse - lse_2).abs() <= 64 * U * (1 + lse.abs()))
    assert same_lse.all(), (lse, lse_2)


@given(scored_values(), st.lists(st.integers(0, 3), min_size=NUM_KEYS, max_size=NUM_KEYS))
def test_splitting_the_keys_and_merging_is_one_pass(problem, parts):
    scores, values = problem
    whole = absorbed(scores, values, range(NUM_KEYS))
    pieces = [
        absorbed(scores, values, [k for k in range(NUM_KEYS) if parts[k] == part])
        for part in range(4)
    ]
    a, b, c, d = pieces
    assert_equal(a.merge(b).merge(c).merge(d), whole, values)
    assert_equal(a.merge(b.merge(c.merge(d))), whole, values)  # associative
    assert_equal(d.merge(b).merge(a).merge(c), whole, values)  # commutative
    (out_a, lse_a), (out_b, lse_b) = a.merge(c).finish(), b.merge(d).finish()
    out, lse = merge_states(out_a, lse_a, out_b, lse_b)
    assert_equal(AttentionState.from_output(out, lse), whole, values)


def test_commutative_to_the_last_bit_and_empty_is_the_identity():
    @given(scored_values(), st.integers(0, NUM_KEYS))
    def search(problem, cut):
        scores, values = problem
        a, b = (absorbed(scores, values, ks) for ks in (range(cut), range(cut, NUM_KEYS)))
        empty = AttentionState.empty(NUM_ROWS, DIM, like=values)
        for one, other in (
            (a.merge(b), b.merge(a)),
            (a.merge(empty), a),
            (empty.merge(a), a),
            (empty.merge(empty), empty),
        ):
            assert all(map(torch.equal, one, other))
        count("an empty row", int((a.m == -torch.inf).sum()))
        count("both sides empty", int(((a.m == -torch.inf) & (b.m == -torch.inf)).sum()))

    with must_happen("an empty row", "both sides empty", at_least=10):
        search()


@given(st.integers(1, 12), st.integers(0, 2**20), st.sampled_from([None, 2, 5]))
def test_a_context_may_be_attended_in_two_calls(cut, seed, window):
    """Prefix and suffix by themselves, merged by their lse: so a shared prefix is computed once."""
    generator = torch.Generator().manual_seed(seed)
    seq_len, block_size = 13, 1
    query = torch.randn(1, 4, 8, generator=generator).double() * 2
    key, value = torch.randn(2, seq_len, block_size, 2, 8, generator=generator).double()
    table = torch.arange(seq_len, dtype=torch.int32)[None]
    start = torch.tensor([0, 1], dtype=torch.int32)

    def attend(form, first, last):
        lens = torch.tensor([last - first], dtype=torch.int32)
        # the query stands at the end of the whole: what its window leaves of this part
        left = None if window is None else max(1, window - (seq_len - last))
        hidden = window is not None and window <= seq_len - last
        part = form(
            query,
            key,
            value,
            table[:, first:last],
            lens * (not hidden),
            start,
            scale=8**-0.5,
            window=left,
            return_lse=True,
        )
        return part

    for form in (paged_attention, cpu_paged_attention):
        out, lse = attend(form, 0, seq_len)
        merged, merged_lse = merge_states(*attend(form, 0, cut), *attend(form, cut, seq_len))
        assert ((merged - out).abs() <= 256 * U * value.abs().max()).all()
        assert ((merged_lse - lse).abs() <= 256 * U * (1 + lse.abs())).all()
