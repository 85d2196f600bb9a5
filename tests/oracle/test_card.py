"""The card says what was judged, what was not and what is wrong, in three forms that agree."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from minipaged.attention import paged_attention
from minipaged.oracle import Failure, Recipe, Report, check_kernel
from minipaged.oracle.card import (
    story,
    to_json,
    to_junit,
    to_markdown,
    verdicts,
    write,
)

WRONG = Failure(
    "bound",
    1,
    "element 0 is <nan>, should be 1 +- 1e-07 | see *there*",
    Recipe(((1, 3),)),
    "x.#\n.x#",
    diagnosis="last_key_dropped",
    path=Path("kept/bound_0123.npz"),
)


def failed(**more) -> Report:
    judged = {"answers": 5, "finite": 5, "bound": 3}
    figures = {"error budget used": 4.5, "error statistic T": float("inf")}
    return Report(
        "mine:kernel", level=2, failures=[WRONG], judged=judged, figures=figures,
        not_judged=["softcap: no argument"], calls=20, cases=5, seconds=1.25, **more,
    )  # fmt: skip


def outcomes(report: Report) -> dict[str, str]:
    return {v.check: v.outcome for v in verdicts(report)}


def test_every_check_up_to_the_level_has_a_verdict():
    found = outcomes(failed())
    assert found["answers"] == "passed"
    assert found["bound"] == "failed"
    assert found["lse bound"] == found["placement"] == "not judged"
    assert "empty rows" not in found  # of level 3


@pytest.mark.parametrize("check", ["raised", "died", "hung", "shape"])
def test_a_kernel_that_did_not_answer_fails_the_first_check_and_the_rest_is_not_judged(check):
    report = Report("k", level=1, failures=[Failure(check, 0, "oh")], judged={"bound": 3})
    assert outcomes(report) == {
        "answers": "failed",
        "finite": "not judged",
        "bound": "not judged",
        "lse bound": "not judged",
    }


def test_other_subjects_have_the_laws_that_they_were_held_to():
    report = Report("w", "writer", failures=[Failure("skips -1", 0, "oh")], judged={"in place": 4})
    assert outcomes(report) == {"skips -1": "failed", "in place": "passed"}
    assert "**skips" in to_markdown(report)


def test_the_card_tells_everything():
    text = to_markdown(failed(), seed=7)
    for line in (
        "# `mine:kernel`: FAILED",
        "| 1 truth<br>every element within its error bound, lse too | ❌ failed |",
        "answers\u00a05",
        "element 0 is \\<nan\\>, should be 1 +- 1e-07 \\| see \\*there\\*",
        "Recipe(lengths=((1, 3),))",
        "```text\nx.#\n.x#\n```",
        "last\\_key\\_dropped",
        "minipaged replay kept/bound_0123.npz",
        "error budget used: 450 %",
        "- softcap: no argument",
        "| seed | 7 |",
        "| torch | ",
    ):
        assert line in text, line


def test_only_the_line_with_the_date_differs_between_two_runs():
    one, other = (
        to_markdown(check_kernel(paged_attention, level=1, max_examples=3)) for _ in range(2)
    )
    different = [(a, b) for a, b in zip(one.splitlines(), other.splitlines()) if a != b]
    assert all(a.startswith("| date |") for a, _ in different)
    assert "`paged_attention`: passed" in one


def test_json_is_json_and_says_the_same():
    found = json.loads(to_json(failed(), seed=7), parse_constant=pytest.fail)
    assert found["passed"] is False
    assert found["figures"]["error statistic T"] == "inf"
    assert found["failures"][0]["case"]["lengths"] == [[1, 3]]
    assert found["made_with"]["seed"] == 7
    told = {row["check"]: row["outcome"] for row in found["checks"]}
    assert told == outcomes(failed())


def test_junit_is_what_a_ci_server_reads():
    suite = ElementTree.fromstring(to_junit(failed()))
    assert suite.get("failures") == "1"
    cases = {case.get("name"): case for case in suite}
    assert "last_key_dropped" in (cases["L1 bound"].find("failure").text or "")  # pyright: ignore
    assert cases["L2 placement"].find("skipped") is not None
    assert len(cases["L0 answers"]) == 0
    assert suite.get("tests") == str(len(cases))


def test_the_ending_of_the_file_says_the_form(tmp_path):
    for name, begin in (("a.md", "# `mine"), ("b.json", "{"), ("c.xml", "<?xml")):
        write(failed(), tmp_path / "new" / name, device="cpu")
        assert (tmp_path / "new" / name).read_text(encoding="utf-8").startswith(begin)


def test_a_story_is_all_that_is_known_of_a_failure():
    assert story(WRONG).splitlines() == [
        "bound (level 1): element 0 is <nan>, should be 1 +- 1e-07 | see *there*",
        "Recipe(lengths=((1, 3),))",
        "x.#",
        ".x#",
        "same output as the known fault: last_key_dropped",
        "again: minipaged replay kept/bound_0123.npz",
    ]
