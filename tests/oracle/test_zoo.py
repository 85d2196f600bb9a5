"""The zoo: what is known to be wrong with other people's kernels is all that is, and still is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from minipaged.attention import paged_attention
from minipaged.oracle import Contract, Features
from minipaged.oracle.checks import CHECKS, FORM
from minipaged.oracle.zoo import Animal, Finding, NotHere, Row, animals, to_markdown, visit
from minipaged.oracle.zoo.arithmetic import hidden_roundings
from minipaged.oracle.zoo.triton_cpu import standing_in

EVERYONE = animals()
SMALL = Features(
    dtypes=("float32",),
    head_dims=(4,),
    block_sizes=(4,),
    num_seqs=(1, 2),
    kv_len=(0, 12),
    groups=(1, 2),
    num_kv_heads=(1, 2),
    right_window=False,
    lse=False,
)


def ids(animal: Animal) -> str:
    return animal.name


@pytest.mark.zoo
@pytest.mark.parametrize("animal", animals("fast"), ids=ids)
def test_what_is_known_of_a_fast_kernel_is_all_that_is_wrong_with_it(animal):
    stroll(animal)


@pytest.mark.slow_zoo
@pytest.mark.parametrize("animal", animals("slow"), ids=ids)
def test_what_is_known_of_a_slow_kernel_is_all_that_is_wrong_with_it(animal):
    stroll(animal)


def stroll(animal: Animal) -> None:
    row = visit(animal)
    if row.absent:
        pytest.skip(row.absent)
    assert not row.surprises, str(row)


@pytest.mark.zoo
def test_the_cast_that_jax_hides_in_its_tpu_kernel_is_named():
    [animal] = [animal for animal in EVERYONE if animal.name == "JAX TPU paged_attention"]
    try:
        kernel = animal.load()
    except NotHere as reason:
        pytest.skip(str(reason))
    declared, best = hidden_roundings(kernel, "jax_tpu")
    assert declared.ratio > 100
    assert (best.inputs, best.form) == (("key", "value"), "bfloat16")
    assert best.ratio < 0.1


# --- the ledger is read strictly, which needs no foreign kernel --------------------------------


def drops_window(*args: Any, window: int | None = None, **options: Any) -> Any:
    return paged_attention(*args, **options)


def drops_both(*args: Any, sinks: Any = None, window: int | None = None, **options: Any) -> Any:
    return paged_attention(*args, **options)


WINDOW = Finding("window", ("bound", "statistic"), "ignores it", {"left_window": False})
SINKS = Finding("sinks", ("bound", "statistic"), "ignores them", {"sinks": False})


def animal_of(kernel: Any, *expected: Finding) -> Animal:
    return Animal(
        kernel.__name__,
        "fast",
        "torch",
        lambda: kernel,
        "native",
        SMALL,
        expected=expected,
        level=1,
        examples=8,
        deadline_s=20,
    )


def glance(animal: Animal) -> Row:
    return visit(animal, explain=False)


def test_a_right_kernel_with_an_empty_ledger_is_clean():
    row = glance(animal_of(paged_attention))
    assert (row.verdict, row.found, row.surprises) == ("clean", [], [])


def test_a_failure_that_is_in_the_ledger_is_expected():
    row = glance(animal_of(drops_window, WINDOW))
    assert row.verdict == "as expected"
    assert [finding.name for finding, _ in row.found] == ["window"]


def test_a_failure_that_is_not_in_the_ledger_is_a_surprise():
    row = glance(animal_of(drops_window))
    assert row.verdict == "SURPRISE"
    assert "not in the ledger" in row.surprises[0]


def test_a_finding_that_no_longer_shows_is_a_surprise():
    row = glance(animal_of(paged_attention, WINDOW))
    assert row.surprises == ["in the ledger, but did not show: window"]


def test_a_finding_that_did_not_show_before_time_was_up_is_no_surprise():
    row = glance(replace(animal_of(paged_attention, WINDOW), deadline_s=0.01))
    assert row.unreached == ["in the ledger, but did not show: window"]
    assert not any("did not show" in text for text in row.surprises)


def test_nothing_hides_behind_a_known_failure():
    row = glance(animal_of(drops_both, WINDOW, SINKS))
    assert [finding.name for finding, _ in row.found] == ["window", "sinks"]
    assert glance(animal_of(drops_both, WINDOW)).surprises


def test_a_finding_that_fails_another_check_than_it_says_is_a_surprise():
    wrong = replace(WINDOW, checks=("empty rows",))
    assert glance(animal_of(drops_window, wrong)).verdict == "SURPRISE"


def test_a_kernel_that_cannot_be_had_is_not_here_and_says_why():
    def load():
        raise NotHere("no such package")

    row = glance(replace(animal_of(paged_attention), load=load))
    assert (row.verdict, row.absent) == ("not here", "no such package")


def test_the_table_says_who_what_verdict_and_what_is_wrong():
    def load():
        raise NotHere("no such package")

    known, absent = animal_of(drops_window, WINDOW), replace(animal_of(paged_attention), load=load)
    table = to_markdown([glance(known), glance(absent)])
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in lines}) == 1
    assert "| drops_window | torch" in table
    assert "| as expected |" in table
    assert "- window: ignores it." in table
    assert "| not here |" in table


@pytest.mark.parametrize("animal", EVERYONE, ids=ids)
def test_a_ledger_names_checks_promises_and_features_that_exist(animal):
    checks = {*FORM, *(check.name for check in CHECKS)}
    names = {field.name for kind in (Features, Contract) for field in fields(kind)}
    for finding in animal.expected:
        assert set(finding.checks) <= checks
        assert set(finding.without) | set(finding.where) <= names
        assert finding.without, "there would be no way to look past it"


def test_every_animal_has_a_name_of_its_own():
    assert len({animal.name for animal in EVERYONE}) == len(EVERYONE)


def test_the_list_of_animals_imports_no_foreign_package():
    code = (
        "import sys; from minipaged.oracle.zoo import animals; animals();"
        "print({'jax', 'openvino', 'transformers', 'triton', 'vllm', 'sglang'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- what the loaders stand on -----------------------------------------------------------------


def test_stand_ins_are_gone_after_the_block():
    sys.modules["made_up"] = before = type(sys)("made_up")
    try:
        with standing_in({"made_up": {}, "made_up.inner": {"answer": 42}}):
            from made_up.inner import answer  # pyright: ignore[reportMissingImports]
        assert answer == 42
        assert sys.modules["made_up"] is before
        assert "made_up.inner" not in sys.modules
    finally:
        del sys.modules["made_up"]


def test_a_hidden_rounding_of_one_input_is_told_from_that_of_another():
    def casts_keys(query, key_cache, *rest, **options):
        return paged_attention(query, key_cache.bfloat16().float(), *rest, **options)

    declared, best = hidden_roundings(casts_keys, "native")
    assert declared.ratio > 1 > best.ratio
    assert (best.inputs, best.form) == (("key",), "bfloat16")


def test_no_rounding_is_found_where_there_is_none():
    declared, best = hidden_roundings(paged_attention, "native")
    assert best == declared
    assert declared.ratio < 1
