"""Explanations: which known fault, which arithmetic, which keys; each as a person would see it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from minipaged.attention import paged_attention
from minipaged.oracle.attention_map import attended, attention_map, right_weights
from minipaged.oracle.check import check_kernel
from minipaged.oracle.conventions import find_convention
from minipaged.oracle.explain import diagnose, explain, numeric_fit
from minipaged.oracle.museum.kernels import KERNELS
from minipaged.oracle.museum.specimen import Specimen
from minipaged.oracle.recipes import Recipe
from minipaged.oracle.subject import Subject
from minipaged.oracle.trial import Trial

BASE = Recipe(lengths=((3, 10), (2, 7)), num_kv_heads=2, group=2, head_dim=8, value_head_dim=5)
EXHIBITS = {exhibit.name: exhibit for exhibit in KERNELS}
NATIVE = find_convention("native")


def _subject(kernel) -> Subject:
    return Subject(kernel, NATIVE, NATIVE.features, NATIVE.contract)


def _wrong(name: str) -> Subject:
    return _subject(EXHIBITS[name].make())


def _drawn(subject: Subject, recipe: Recipe, head: int = 1) -> list[str]:
    return attention_map(subject, recipe.build(), 0, head).splitlines()


# --- the picture ---------------------------------------------------------------------------------


def test_a_right_kernel_attends_to_the_right_keys():
    expected = "sequence 0, head 1: the right keys with the right weights"
    assert _drawn(_subject(paged_attention), BASE) == [expected]
    assert _drawn(_subject(Specimen()), replace(BASE, window=(2, None), sinks=True)) == [expected]


@pytest.mark.parametrize("kv_form", ["", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_weights_recovered_are_the_weights(kv_form, dtype):
    recipe = replace(BASE, dtype=dtype, kv_form=kv_form, kv_scales="head" if kv_form else "tensor")
    subject, case = _subject(paged_attention), recipe.build()
    got = attended(subject, case, 1, 3)
    right = right_weights(subject, case, 1, 3)
    assert got is not None
    assert (np.abs(got - right.out[0][:, 0]) <= 2 * right.out_bound[0][:, 0]).all()


def test_a_window_too_large_is_seen_as_one_key_more():
    head, *rows = _drawn(_wrong("window_one_too_large"), replace(BASE, window=(2, None)))
    assert head == (
        "sequence 0, head 1; rows: queries at 7..9, columns: keys 0..9; "
        "█ right, ! must not be seen, · rightly unseen"
    )
    assert rows == ["····!███··", "·····!███·", "······!███"]


def test_a_key_too_few_is_seen_as_missing_and_the_others_share_a_factor():
    _, *rows = _drawn(_wrong("last_key_dropped"), BASE)
    assert rows == ["████████··", "█████████·", "█████████x"]


def test_values_cut_without_their_weights_show_in_the_sums():
    recipe = replace(BASE, lengths=((3, 6),), causal=False, window=(0, None), values="counting")
    _, *rows = _drawn(_wrong("values_masked_by_first_query"), recipe)
    assert rows == [
        "···█xx  weights sum to 0.333, not 1",
        "····xx  weights sum to 0, not 1",
        "·····x  weights sum to 0, not 1",
    ]


def test_a_sink_left_out_shows_in_the_sums_only():
    _, *rows = _drawn(_wrong("sink_ignored"), replace(BASE, sinks=True))
    assert {mark for row in rows for mark in row.split()[0]} == {"█", "·"}
    assert all("weights sum to 1, not 0." in row for row in rows)


def test_a_foreign_block_shows_as_missing_keys():
    recipe = replace(BASE, lengths=((1, 12), (1, 9)), block_size=4)
    _, row = attention_map(_wrong("table_of_first_sequence"), recipe.build(), 1, 0).splitlines()
    assert row == "xxxxxxxxx  weights sum to 0, not 1"


def test_a_picture_is_no_larger_than_a_screen():
    recipe = replace(BASE, lengths=((40, 200),), value_head_dim=64, window=(100, None))
    lines = _drawn(_wrong("window_one_too_large"), recipe)
    assert len(lines) == 17
    assert {len(line) for line in lines[1:]} == {64}
    assert any("!" in line for line in lines[1:])


def test_what_cannot_be_asked_gives_no_picture():
    def refuses(*args, **kwargs):
        raise RuntimeError

    assert attention_map(_subject(refuses), BASE.build(), 0, 0) == ""
    assert attention_map(_subject(Specimen()), replace(BASE, lengths=((1, 0),)).build(), 0, 0) == ""
    assert attention_map(_subject(Specimen()), BASE.build(), 0, 0, seconds=0) == ""


# --- the known fault -----------------------------------------------------------------------------

SHOWN_BY = {
    "gqa_modulo": BASE,
    "window_one_too_small": replace(BASE, window=(2, None)),
    "lse_in_base_2": BASE,
    "sink_twice": replace(BASE, sinks=True),
    "packed_blocks_assumed": replace(BASE, storage="padded"),
    "alibi_one_off": replace(BASE, alibi=True),
    "scales_swapped": replace(BASE, kv_form="int8"),
    "weights_in_fp8": BASE,
}


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_known_fault_is_named(name):
    trial = Trial(_wrong(name), SHOWN_BY[name].build())
    assert diagnose(trial.case, trial.result, trial.truth, seconds=60)[0] == name


def test_a_right_answer_and_an_unknown_fault_are_no_known_fault():
    trial = Trial(_subject(paged_attention), BASE.build())
    assert diagnose(trial.case, trial.result, trial.truth, seconds=60) == []

    def unheard_of(*args, **kwargs):
        out, lse = paged_attention(*args, **kwargs)
        return out * 0.875 + 1, lse

    trial = Trial(_subject(unheard_of), BASE.build())
    assert diagnose(trial.case, trial.result, trial.truth, seconds=60) == []


def test_what_the_native_convention_lacks_is_not_diagnosed():
    case = replace(BASE, mask="tree", causal=False).build()
    trial = Trial(_wrong("gqa_modulo"), case)
    assert diagnose(case, trial.result, trial.truth) == []


# --- the arithmetic ------------------------------------------------------------------------------


def _through(name: str):
    """The kernel with its inputs rounded to a dtype first."""
    dtype = getattr(torch, name)

    def kernel(query, key_cache, value_cache, *rest, **options):
        lower = (x.to(dtype).to(x.dtype) for x in (query, key_cache, value_cache))
        return paged_attention(*lower, *rest, **options)

    return kernel


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (paged_attention, "float32 throughout"),
        (_through("bfloat16"), "inputs rounded to bfloat16 on loading"),
        (_through("float16"), "inputs rounded to float16 on loading"),
        (EXHIBITS["weights_in_bf16"].make(), "weights rounded to bfloat16"),
        (EXHIBITS["output_through_bf16"].make(), "output rounded through bfloat16"),
        (EXHIBITS["gqa_modulo"].make(), ""),
    ],
)
def test_the_arithmetic_is_recognised(kernel, words):
    recipe = replace(BASE, lengths=((6, 30), (1, 41)), value_head_dim=16, poison="stale")
    assert numeric_fit(Trial(_subject(kernel), recipe.build())) == words


# --- all of it, in a report ----------------------------------------------------------------------


def test_a_report_has_the_picture_and_the_name():
    report = check_kernel(EXHIBITS["window_one_too_large"].make(), level=1, max_failures=1)
    (failure,) = report.failures
    assert failure.diagnosis == "window_one_too_large"
    assert "!███" in failure.picture
    assert "drawn in a larger case: Recipe(" in failure.picture
    assert failure.picture.splitlines()[0] in str(report)


def test_a_right_answer_is_not_explained():
    assert explain(_subject(paged_attention), BASE) == ("", None)


def test_without_explanation_the_case_stays_as_it_was_found():
    kernel = EXHIBITS["gqa_modulo"].make()
    report = check_kernel(kernel, level=1, max_failures=1, explain=False)
    (failure,) = report.failures
    assert (failure.picture, failure.diagnosis) == ("", None)
    assert failure.case.lengths == ((3, 10),)
