"""A learner's file is judged whatever it does: it is told what is wrong, in his own lines."""

from __future__ import annotations

import os

import pytest

from minipaged.learn import judging
from minipaged.learn.judging import judge, judge_apart
from minipaged.learn.verdict import Verdict


def filled(task, body: str) -> str:
    """The starter, with this instead of the hole."""
    return task.starter.replace("raise NotImplementedError", body)


def test_a_right_answer_has_figures(double, answer):
    verdict = judge(double, answer(double.solution))
    assert (verdict.outcome, verdict.figures) == ("accepted", "4 numbers")


def test_the_untouched_starter_is_unwritten(double, answer):
    verdict = judge(double, answer(double.starter))
    assert verdict.outcome == "unwritten"
    assert "line 10, in double" in verdict.headline


def test_a_wrong_answer_tells_the_smallest_story(double, answer):
    verdict = judge(double, answer(filled(double, "return number * number")))
    assert verdict.text.splitlines() == ["the double is wrong", "double(1)", "got 1, expected 2"]


def test_no_answer_at_all_is_no_number(double, answer):
    verdict = judge(double, answer(filled(double, "number + number")))
    assert verdict.headline == "double(0) returned None"
    assert "return" in verdict.text


def test_a_bool_is_not_an_int(double, answer):
    verdict = judge(double, answer(filled(double, "return False")))
    assert "returned a bool" in verdict.headline


def test_what_is_no_python_is_shown_with_its_line(double, answer):
    verdict = judge(double, answer(filled(double, "return 2 number")))
    assert verdict.outcome == "unreadable"
    assert "line 10 of answer.py" in verdict.headline
    assert verdict.story[-1].strip() == "^"


def test_a_missing_name_is_named(double, answer):
    verdict = judge(double, answer(double.solution.replace("def double", "def duble")))
    assert verdict.headline == "double is not there"
    assert "the file defines: duble" in verdict.story


def test_a_wrong_signature_is_seen_before_anything_is_judged(double, answer):
    text = double.solution.replace("number: int", "n: int").replace("2 * number", "2 * n")
    verdict = judge(double, answer(text))
    assert "takes other arguments" in verdict.headline
    assert "expected: double(number)" in verdict.story


def test_a_further_argument_with_a_default_is_allowed(double, answer):
    text = double.solution.replace("number: int", "number: int, twice=2")
    assert judge(double, answer(text)).is_accepted


def test_an_error_is_shown_with_the_learners_lines_and_no_others(double, answer):
    body = "return helper(number)\n\n\ndef helper(x):\n    return 6 // (x - 2)"
    verdict = judge(double, answer(filled(double, body)))
    assert verdict.outcome == "rejected", "6 // -2 is an answer, and a wrong one"
    verdict = judge(double, answer(filled(double, body.replace("(x - 2)", "x"))))
    assert verdict.headline.startswith("ZeroDivisionError")
    assert verdict.story == (
        "line 10, in double:  return helper(number)",
        "line 14, in helper:  return 6 // x",
        "double(0)",
    )


def test_a_deep_recursion_is_cut(double, answer):
    verdict = judge(double, answer(filled(double, "return double(number)")))
    assert verdict.headline.startswith("RecursionError")
    assert len(verdict.story) <= 5


def test_an_error_while_importing_is_shown(double, answer):
    verdict = judge(double, answer("import nothing_like_this\n" + double.solution))
    assert "ModuleNotFoundError" in verdict.headline
    assert "line 1:  import nothing_like_this" in verdict.story


def test_leaving_is_not_an_answer(double, answer):
    verdict = judge(double, answer(filled(double, "exit(0)")))
    assert verdict.outcome == "raised"
    assert "ended the program" in verdict.headline


def test_prints_of_the_failing_program_are_kept(double, answer):
    verdict = judge(double, answer(filled(double, "print('at', number); return number * number")))
    assert verdict.printed == "at 1", "what was printed before, in programs that passed, is noise"


def test_endless_prints_are_cut(double, answer):
    verdict = judge(double, answer(filled(double, "print('x' * 10_000)")))
    assert len(verdict.printed) < 3000
    assert "characters more" in verdict.printed


# --- what does not end --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    ["while True: pass", "while True:\n        try: number\n        except BaseException: pass"],
    ids=["endless", "deaf"],
)
def test_an_endless_loop_ends_and_says_where(double, answer, body):
    verdict = judge(double, answer(filled(double, body)))
    assert verdict.outcome == "endless"
    assert "double(0)" in verdict.story
    assert any(line.startswith("line 1") and "in double" in line for line in verdict.story)


def test_who_waits_for_ever_is_not_waited_for(double, answer, monkeypatch):
    monkeypatch.setattr(judging, "STARTING_S", 1.0)
    verdict = judge_apart(double, answer(filled(double, "import time; time.sleep(1000)")))
    assert verdict.outcome == "endless"  # and it is here, long before the 1000 s are over


# --- in another process -------------------------------------------------------------------------


def test_apart_says_the_same(double, answer):
    for body in ("return 2 * number", "return number * number", "raise NotImplementedError"):
        path = answer(filled(double, body))
        here, there = judge(double, path), judge_apart(double, path)
        assert (here.outcome, here.text) == (there.outcome, there.text)


def test_a_dead_process_is_a_verdict(double, answer):
    verdict = judge_apart(double, answer(filled(double, "import os; os._exit(3)")))
    assert verdict.outcome == "died"
    assert "3" in verdict.headline


def test_asking_the_keyboard_does_not_hang(double, answer, monkeypatch):
    monkeypatch.setattr(judging, "STARTING_S", 3.0)
    keyboard, typing = os.pipe()  # somebody could type, and does not
    before = os.dup(0)
    os.dup2(keyboard, 0)
    try:
        verdict = judge_apart(double, answer(filled(double, "return int(input())")))
    finally:
        os.dup2(before, 0)
        for number in (keyboard, typing, before):
            os.close(number)
    assert "EOFError" in verdict.headline


def test_what_is_not_installed_is_not_the_learners_fault(double, answer):
    path = double.folder / "check.py"
    path.write_text("import hypothesis_of_old\n" + path.read_text())
    verdict = judge(double, answer(double.solution))
    assert verdict.outcome == "unavailable"
    assert "hypothesis_of_old" in verdict.headline


def test_a_verdict_survives_the_way():
    verdict = Verdict("rejected", "no", ("a", "b"), printed="ä", seconds=0.5)
    assert Verdict.load(verdict.dump()) == verdict
