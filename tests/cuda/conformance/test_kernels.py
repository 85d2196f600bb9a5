"""The judge of strangers on our own kernels: text in the simulator, PTX in the emulator.

Cases are chosen by number, not by time, so that the same ones are judged everywhere. Whoever has
minutes runs the whole judge: `-m slow`.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.oracle import check_kernel
from minipaged.oracle.recipes import Recipe
from support.cuda_conformance import (
    FLOAT8,
    INVARIANT,
    PLAIN,
    SMALL,
    TILES,
    answer,
    broken_laws,
    every_option,
    kernel,
    small_cases,
)
from support.cuda_operations import batch, emulated_launcher, simulated_launcher

LADDER = ("decode_v0", "decode_v1", "decode_v2")


@pytest.fixture(scope="module")
def emulated():
    """One launcher for all, which keeps what is compiled."""
    return emulated_launcher()


def judged(attend, features, count, most_work=200):
    """What is wrong with any of the first cases."""
    cases = small_cases(features, count, most_work)
    return [law for recipe in cases for law in broken_laws(attend, recipe)]


# --- truth and edges ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", LADDER)
def test_a_rung_of_the_ladder_is_right(name):
    features = PLAIN.only(groups=(1, 3), block_sizes=(1, 3, 16), head_dims=(5, 8))
    assert judged(kernel(name, simulated_launcher()), features, count=3) == []


def test_plain_arithmetic_is_right_with_every_option(emulated):
    assert judged(every_option(kernel("decode_v3", emulated)), SMALL, count=5) == []


def test_plain_arithmetic_is_right_as_it_was_written():
    features = SMALL.only(dtypes=("bfloat16",), groups=(1, 2), num_kv_heads=(1, 1))
    assert judged(kernel("decode_v3", simulated_launcher()), features, 1, most_work=40) == []


def test_tensor_cores_are_right_with_every_option(emulated):
    """Weights are rounded to 16 bits, which is what the judge allows for 16-bit values."""
    features = TILES.only(causal=(True,))
    assert judged(every_option(kernel("attention", emulated)), features, count=6) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensor_cores_are_right_as_they_were_written(dtype):
    features = TILES.only(dtypes=(dtype,), groups=(1, 8), num_kv_heads=(1, 1))
    assert judged(kernel("attention", simulated_launcher()), features, count=2) == []


def test_tensor_cores_are_right_over_a_float8_cache():
    quantised = [r for r in small_cases(FLOAT8.only(num_kv_heads=(1, 2)), 12) if r.kv_form]
    attend = kernel("attention", simulated_launcher())
    assert [law for recipe in quantised[:3] for law in broken_laws(attend, recipe)] == []


# --- lengths, splits, schedules ----------------------------------------------------------------

EVERY_LENGTH = tuple((1, n) for n in range(66))


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("decode_v3", Recipe(EVERY_LENGTH, 1, 3, 8)),
        ("attention", Recipe(EVERY_LENGTH, 1, 3, 32, block_size=16, dtype="float16")),
    ],
)
def test_every_length_round_a_block_and_a_tile_in_one_launch(name, recipe, emulated):
    assert broken_laws(every_option(kernel(name, emulated)), recipe) == []


@pytest.mark.parametrize("name", ["decode_v3", "attention"])
def test_splits_change_nothing_but_bits(name):
    lengths = ((1, 70), (1, 0), (2, 1))
    recipe = Recipe(lengths, 1, 1, 32, block_size=16, dtype="float16", sinks=True)
    attend = kernel(name, simulated_launcher(), num_splits=3)
    assert broken_laws(attend, recipe) == []


@pytest.mark.parametrize("name", ["decode_v3", "attention"])
def test_a_row_for_every_sequence_need_not_be_searched_for(name):
    recipe = Recipe(((1, 9), (1, 0), (1, 17)), 1, 2, 32, block_size=16, dtype="float16")
    attend = kernel(name, simulated_launcher(), max_query_len=1)
    assert broken_laws(attend, recipe) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("decode_v0", {}),
        ("decode_v3", {"num_splits": 1, "sinks": torch.ones(2)}),
        ("attention", {"num_splits": 1, "sinks": torch.ones(2)}),
        ("attention", {"num_splits": 2, "sinks": torch.ones(2)}),
    ],
)
def test_rows_of_no_sequence_return_nothing_though_they_hold_numbers(name, options):
    """Numbers, because NaN would hide a kernel that takes them for somebody's."""
    sizes = {"num_heads": 2, "num_kv_heads": 1, "dtype": torch.float16}
    tensors = batch((1, 5), (1, 3), spare_rows=2, **sizes)
    attend = kernel(name, simulated_launcher(), return_lse=True, scale=0.2, **options)
    out, lse = attend(*tensors)
    assert not out[2:].any()
    assert lse[2:].isneginf().all()
    assert lse[:2].isfinite().all()


@settings(max_examples=3)
@given(seed=st.integers(0, 1000))
def test_the_order_in_which_threads_run_changes_no_bit(seed):
    recipe = Recipe(((1, 20), (2, 5)), 1, 2, 32, block_size=16, dtype="float16", alibi=True)
    answers = [
        answer(kernel("attention", launcher), recipe)
        for launcher in (simulated_launcher(), simulated_launcher(schedule="random", seed=seed))
    ]
    assert answers[0].same_bits(answers[1])


# --- isolation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        pytest.param(
            *("decode_v3", Recipe(((1, 5), (1, 2)), 2, 3, 8, sinks=True)), marks=pytest.mark.slow
        ),
        ("attention", Recipe(((1, 5), (2, 3)), 2, 3, 32, block_size=16, dtype="float16")),
    ],
)
def test_what_does_not_belong_to_a_sequence_changes_none_of_its_bits(name, recipe, emulated):
    attend = every_option(kernel(name, emulated, num_splits=1))
    assert broken_laws(attend, recipe, INVARIANT, levels=(2,)) == []


# --- everything --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["decode_v2", "decode_v3", "attention"])
def test_the_whole_judge_finds_nothing(name, emulated):
    features = {"decode_v2": PLAIN, "decode_v3": SMALL, "attention": TILES}[name]
    attend = kernel(name, emulated, num_splits=1)
    report = check_kernel(
        attend if name == "decode_v2" else every_option(attend),
        features=features,
        contract=INVARIANT,
        level=4,
        deadline_s=600,
        call_limit_s=120,
    )
    report.raise_if_failed()
