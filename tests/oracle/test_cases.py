"""Cases: where content lies and what lies beside it; recipes and strategies that make them."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from minipaged.oracle import Case, Contract, Features, Placement, Recipe, edits
from minipaged.oracle.conventions import Native
from minipaged.oracle.directed import directed
from minipaged.oracle.drawing import Generator, draw_recipe
from minipaged.oracle.strategies import cases, recipes


@given(cases(Native.features))
def test_every_slot_is_a_position_of_some_sequence_or_poison(case):
    pool, owned = case.pool("key"), case.owned()
    poison = case.poison(pool.shape, case.stored_dtype("key"), "key")
    np.testing.assert_array_equal(pool[~owned], poison[~owned])
    codes = case.problem.key_codes
    for s, tokens in enumerate(codes.numbers if codes else case.problem.key):
        flat = pool.reshape(-1, *pool.shape[2:])
        np.testing.assert_array_equal(flat[case.slots(s)], tokens)


@given(cases(Native.features))
def test_two_sequences_share_a_slot_only_where_they_agree_so_far(case):
    owners: dict[int, tuple[int, int]] = {}
    for s in range(case.problem.num_seqs):
        for position, slot in enumerate(case.slots(s).tolist()):
            other, there = owners.setdefault(slot, (s, position))
            assert there == position
            for tokens in (case.problem.key, case.problem.value):
                np.testing.assert_array_equal(tokens[s][: position + 1], tokens[other][: there + 1])


def test_a_pool_by_hand():
    recipe = Recipe(lengths=((1, 3),), head_dim=1, block_size=2, extra_blocks=1, values="integer")
    case = recipe.build().placed(block_ids=((2, 0),), poison="nan")
    a, b, c = case.problem.key[0][:, 0, 0]
    expected = [[c, np.nan], [np.nan, np.nan], [a, b]]
    np.testing.assert_array_equal(case.pool("key")[:, :, 0, 0], expected)
    assert case.placed(extra_columns=1, padding=9).table.tolist() == [[2, 0, 9]]


def test_a_hole_is_where_no_query_sees():
    recipe = Recipe(lengths=((1, 6),), block_size=2, window=(1, None), order="consecutive")
    case = recipe.build().placed(holes=True)
    assert case.table.tolist() == [[-1, -1, 2]]
    assert np.isnan(case.pool("key")[:2]).all()


def test_blocks_that_do_not_fit_the_length_are_named():
    problem = Recipe(lengths=((1, 5),)).build().problem
    with pytest.raises(ValueError, match="5 keys and 1 blocks of 4; 2 would be right"):
        Case(problem, Placement(4, 2, ((0,),)))


@given(recipes())
def test_a_recipe_always_makes_the_same_case_and_survives_json(recipe):
    again = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    one, two = recipe.build(), again.build()
    np.testing.assert_array_equal(one.flat_query, two.flat_query)
    np.testing.assert_array_equal(one.pool("value"), two.pool("value"))
    assert eval(str(recipe), {"Recipe": Recipe}) == recipe


@given(cases(Native.features), st.randoms(use_true_random=False))
def test_edits_undo_themselves(case, random):
    order = list(range(case.problem.num_seqs))
    random.shuffle(order)
    back = [order.index(s) for s in range(len(order))]
    there = edits.take_sequences(edits.take_sequences(case, order), back)
    heads = list(range(case.problem.num_kv_heads))[::-1]
    there = edits.permute_kv_heads(edits.permute_kv_heads(there, heads), heads)
    there = edits.scale_values(edits.scale_values(there, 4.0), 0.25)
    there = edits.scale_query(edits.scale_query(there, 2.0), 0.5)
    np.testing.assert_array_equal(there.flat_query, case.flat_query)
    np.testing.assert_array_equal(there.pool("key"), case.pool("key"))
    np.testing.assert_array_equal(there.pool("value"), case.pool("value"))
    assert there.problem.spec.scale == case.problem.spec.scale


@given(cases(Native.features))
def test_moved_and_split_blocks_hold_the_same_content(case):
    for other in (edits.move_blocks(case, seed=3), edits.split_blocks(case)):
        for s in range(case.problem.num_seqs):
            pool = other.pool("value").reshape(-1, *case.problem.value[0].shape[1:])
            codes = case.problem.value_codes
            tokens = codes.numbers if codes else case.problem.value
            np.testing.assert_array_equal(pool[other.slots(s)], tokens[s])
    split = edits.split_blocks(case)
    ids = [b for row in split.placement.block_ids for b in row]
    assert len(ids) == len(set(ids))


EVENTS = {
    "an empty sequence": lambda r: any(k == 0 for _, k in r.lengths),
    "a sequence without queries": lambda r: any(q == 0 for q, _ in r.lengths),
    "more queries than keys": lambda r: any(q > k for q, k in r.lengths),
    "prefill, chunk and decode together": lambda r: len({q for q, _ in r.lengths}) > 2,
    "a length at the rim of a block": lambda r: any(
        k > 1 and (k % r.block_size in (0, 1)) for _, k in r.lengths
    ),
    "a window that binds": lambda r: (
        r.window[0] is not None and any(k > r.window[0] + 1 for q, k in r.lengths if q)
    ),
    "window 0": lambda r: r.window[0] == 0,
    "a small softcap": lambda r: r.softcap is not None and r.softcap <= 1,
    "sinks and slopes together": lambda r: r.sinks and r.alibi,
    "shared blocks": lambda r: (
        r.share > 0 and len(r.lengths) > 1 and min(r.lengths[0][1], r.lengths[1][1]) >= r.block_size
    ),
    "values of another size": lambda r: r.value_head_dim not in (0, r.head_dim),
    "an odd head dim": lambda r: r.head_dim % 2 == 1,
    "groups and kv heads": lambda r: r.group > 1 and r.num_kv_heads > 1,
    "a quantised cache": lambda r: bool(r.kv_form),
    "not causal": lambda r: not r.causal,
    "plausible garbage": lambda r: r.poison == "stale",
    "padding past the pool": lambda r: r.padding == 2**31 - 1,
    "strides": lambda r: r.storage not in ("", "NHD"),
    "extreme scores": lambda r: r.values == "extreme",
    "no option at all": lambda r: r.softcap is None and not r.alibi and not r.sinks,
}


def drawn_by_the_judge(count, take):
    dice = Generator(0)
    for _ in range(count):
        take(draw_recipe(dice, Native.features, Contract(), level=3))


def drawn_by_hypothesis(count, take):
    @settings(max_examples=count, database=None, deadline=None, derandomize=True)
    @given(recipes(Native.features, Contract()))
    def draw(recipe):
        take(recipe)

    draw()


@pytest.mark.parametrize(("draw", "least"), [(drawn_by_the_judge, 3), (drawn_by_hypothesis, 1)])
def test_two_hundred_drawn_cases_meet_every_event_that_matters(draw, least):
    seen: Counter[str] = Counter()

    def count(recipe):
        seen.update(name for name, happened in EVENTS.items() if happened(recipe))

    draw(200, count)
    assert {name: seen[name] for name in EVENTS if seen[name] < least} == {}


def test_the_directed_cases_meet_them_too():
    many = list(directed(Native.features, Contract(), 3))
    assert [name for name, happened in EVENTS.items() if not any(map(happened, many))] == []
    assert len(many) == len(set(many))


def test_strategies_shrink_to_two_queries_and_two_keys():
    def a_query_has_a_past(recipe):
        return any(q >= 2 and k >= 2 for q, k in recipe.lengths)

    small = find(recipes(), a_query_has_a_past, settings=settings(database=None, derandomize=True))
    assert small.lengths == ((2, 2),)
    assert (small.num_kv_heads, small.group, small.head_dim, small.block_size) == (1, 1, 1, 1)
    assert small.softcap is None
    assert not small.alibi


NARROW = Features(
    dtypes=("bfloat16",),
    block_sizes=(16,),
    head_dims=(64,),
    groups=(4, 4),
    num_kv_heads=(2, 2),
    query_len=(1, 1),
    kv_len=(1, 40),
    num_seqs=(2, 3),
    causal=(True,),
    left_window=False,
    right_window=False,
    softcap=False,
    alibi=False,
    sinks=False,
    scales=False,
    shared_blocks=False,
    queries_beyond_keys=False,
)
MODEST = Contract(poison="finite", padding="valid")


def within(recipe: Recipe, features: Features, contract: Contract) -> bool:
    """Whether a kernel of these features and this contract may be given the case."""
    return (
        recipe.dtype in features.dtypes
        and recipe.block_size in features.block_sizes
        and recipe.head_dim in features.head_dims
        and features.groups[0] <= recipe.group <= features.groups[1]
        and features.num_kv_heads[0] <= recipe.num_kv_heads <= features.num_kv_heads[1]
        and features.num_seqs[0] <= len(recipe.lengths) <= features.num_seqs[1]
        and all(q == 1 and k >= 1 for q, k in recipe.lengths)
        and recipe.causal
        and recipe.window == (None, None)
        and recipe.softcap is None
        and not (recipe.alibi or recipe.sinks or recipe.share or recipe.scale)
        and recipe.poison in ("big", "stale")
        and recipe.padding == 0
    )


@given(recipes(NARROW, MODEST))
def test_what_a_kernel_does_not_take_is_never_drawn(recipe):
    assert within(recipe, NARROW, MODEST), recipe


@pytest.mark.parametrize("level", range(7))
def test_nor_is_it_directed(level):
    many = list(directed(NARROW, MODEST, level))
    assert len(many) > 5
    assert [r for r in many if not within(r, NARROW, MODEST)] == []
