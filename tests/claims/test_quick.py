"""Every claim, quickly: what holds for all rows and notes, and what a look may say of them."""

from __future__ import annotations

import re

import pytest

from minipaged.claims import real
from minipaged.claims.claim import Claim, Context
from minipaged.claims.report import rows_of, shown
from minipaged.claims.roster import CLAIMS, measure_of
from support.claims_page import PAGE


@pytest.fixture(scope="module")
def loads() -> list[str]:
    """What was loaded as a model while all claims were measured."""
    return []


@pytest.fixture(scope="module")
def quick(loads) -> dict[str, Claim]:
    load = real.load_model

    def counting(name, **options):
        loads.append(name)
        return load(name, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "load_model", counting)
        patch.setattr("minipaged.engine.llm.load_model", counting)
        real.bundled.cache_clear()
        return {key: measure_of(key)(Context(quick=True)) for key in CLAIMS}


def on_the_page(key: str) -> list[list[str]]:
    """The rows of the whole measurement, as cells."""
    parts = PAGE.read_text(encoding="utf-8").split("claims:begin")[1].split("\n## ")
    lines = re.findall(r"^\| (.+) \|$", parts[1 + list(CLAIMS).index(key)], re.MULTILINE)
    return [line.split(" | ") for line in lines[1:]]


def test_the_model_is_loaded_once(quick, loads):
    assert loads == ["bundled"]


@pytest.mark.parametrize("key", CLAIMS)
def test_a_look_judges_nothing_that_the_measurement_judges_otherwise(quick, key):
    """What hangs on how much was drawn gets no verdict; what is left, the same one."""
    whole = {what: verdict.partition(" [")[0] for what, *_, verdict in on_the_page(key)}
    for row, (what, *_, verdict) in zip(quick[key].rows, rows_of(quick[key]), strict=True):
        if row.verdict not in ("measured", "unjudged") and what in whole:
            assert whole[what] == verdict.partition(" [")[0], what


@pytest.mark.parametrize("key", CLAIMS)
def test_what_a_look_leaves_out_is_said(quick, key):
    assert quick[key].left_out
    assert len(quick[key].rows) <= len(on_the_page(key))


@pytest.mark.parametrize("key", CLAIMS)
def test_who_is_compared_is_compared_with_something_that_is_said(quick, key):
    for row in quick[key].rows:
        assert row.said or row.tolerance is None, row.what
        assert row.tolerance or row.basis == "said", row.what


@pytest.mark.parametrize("key", CLAIMS)
def test_a_share_tolerates_nothing_that_no_share_can_be(quick, key):
    for row in quick[key].rows:
        if row.unit == "%" and row.tolerance and not row.wall:
            low, high = row.tolerance.low, row.tolerance.high
            assert low == float("-inf") or 0 <= low <= 100, row.what
            assert high == float("inf") or 0 <= high <= 100, row.what
            assert low > 0 or high < 100, f"{row.what}: cannot fail"


@pytest.mark.parametrize("key", CLAIMS)
def test_rows_have_one_name_each_and_no_name_is_one_of_code(quick, key):
    """Whoever reads a table has not read the program."""
    claim = quick[key]
    names = [row.what for row in claim.rows]
    assert len(set(names)) == len(names)
    texts = [*names, *(row.said for row in claim.rows), *(row.note for row in claim.rows)]
    texts += [claim.title, claim.said, claim.left_out, *claim.notes]
    for text in texts:
        assert not re.search(r"[a-z]_[a-z]", text), text
        assert not re.search(r"(^|[^.,\d])1 (request|token|claim|sequence|step)s\b", text), text


def test_a_letter_of_a_law_is_explained(quick):
    assert any(re.search(r"\bB = \d+, L = \d+", row.said) for row in quick["waste"].rows)
    assert "B tokens per block and L tokens per sequence" in " ".join(quick["waste"].notes)
    assert "The law stands there" in " ".join(quick["block_size"].notes)
    assert "(n-1) floor(prompt/B)" in " ".join(quick["sharing"].notes)


@pytest.mark.parametrize("key", ["waste", "throughput", "chat"])
def test_the_ways_to_keep_memory_are_explained_where_they_are_named(quick, key):
    text = " ".join(quick[key].notes)
    for name in ("max", "pow2", "oracle", "paged"):
        assert re.search(rf"\b{name}\b", text), name


def test_what_has_one_name_has_one_value(quick):
    """Two claims may not print two numbers under one label."""
    seen: dict[str, str] = {}
    for claim in quick.values():
        for row in claim.rows:
            if not row.wall:
                value = shown(row.measured, row.unit)
                assert seen.setdefault(row.what, value) == value, row.what
