"""Every exercise: its judge knows right from wrong, and its texts are true.

An exercise that accepts a wrong solution teaches it, so the list of wrong ones is what is tested.
"""

from __future__ import annotations

import ast
import difflib
import doctest
import inspect

import pytest

from minipaged.learn import catalog
from minipaged.learn.exercise import Wrong
from minipaged.learn.judging import judge
from minipaged.learn.loading import load

TASKS = catalog.tasks()
every_exercise = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.folder.name)


@every_exercise
def test_the_solution_is_accepted(task):
    verdict = judge(task, task.folder / "solution.py")
    assert verdict.is_accepted, verdict.text
    assert "\n" not in verdict.figures


@every_exercise
def test_the_untouched_starter_is_not(task):
    verdict = judge(task, task.folder / "starter.py")
    assert not verdict.is_accepted
    assert verdict.headline


@every_exercise
def test_every_wrong_solution_is_rejected_with_its_story(task, answer):
    for wrong in task.exercise.wrong:
        verdict = judge(task, answer(wrong.apply(task.solution)))
        assert not verdict.is_accepted, f"{wrong.name}: accepted"
        assert wrong.says in verdict.text, f"{wrong.name}: {verdict.text}"
        assert verdict.seconds < 60


@every_exercise
def test_it_has_enough_wrong_solutions_and_each_says_something(task):
    wrongs = task.exercise.wrong
    assert len({wrong.name for wrong in wrongs}) == len(wrongs) >= 4
    assert all(len(wrong.says) >= 3 for wrong in wrongs)


@every_exercise
def test_the_examples_of_the_statement_are_true_of_the_solution(task):
    module = load(task.folder / "solution.py", f"examples_of_{task.name}")
    text = inspect.getdoc(module) or ""
    assert text == task.statement, "starter and solution state different things"
    test = doctest.DocTestParser().get_doctest(text, vars(module), task.name, None, 0)
    assert test.examples, "a statement needs a worked example"
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not failed, "".join(said)


@every_exercise
def test_solution_and_starter_differ_only_in_the_hole(task):
    assert outline(task.starter) == outline(task.solution)
    assert task.starter != task.solution


@every_exercise
def test_a_solution_is_about_as_long_as_is_said(task):
    written = len(new_lines(task.starter, task.solution))
    said = task.exercise.lines
    assert said / 2 <= written <= 1.5 * said + 1, f"{written} lines, {said} announced"


@every_exercise
def test_its_words_can_be_read_without_its_judge(task):
    exercise = task.exercise
    assert exercise.name == task.name
    for name in ("title", "hints", "learnt", "lines", "function"):
        assert task.facts[name] == getattr(exercise, name), f"{name} must be a literal"
    assert task.facts.get("seconds", 10.0) == exercise.seconds
    assert exercise.title[0].isupper()
    assert not exercise.title.endswith(".")
    assert exercise.learnt.endswith(".")
    assert 2 <= len(exercise.hints) <= 5


def outline(text: str) -> list[str]:
    """All that a learner gets: everything but the bodies of functions."""
    return [line for node in ast.parse(text).body for line in _outline(node)]


def _outline(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in [*node.decorator_list, *node.bases]]
        return [f"class {node.name}{bases}", *(o for item in node.body for o in _outline(item))]
    if isinstance(node, ast.FunctionDef):
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        return [f"{marks} {node.name}({ast.unparse(node.args)})"]
    return [ast.unparse(node)]


def code_lines(text: str) -> list[str]:
    """Lines with code in them: neither blank, nor comment, nor docstring."""
    return [line for line in ast.unparse(_bare(ast.parse(text))).splitlines() if line.strip()]


def new_lines(starter: str, solution: str) -> list[str]:
    """Lines of code that the solution has and the starter has not."""
    return [d for d in difflib.ndiff(code_lines(starter), code_lines(solution)) if d[:2] == "+ "]


def _bare(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


# --- the tests are themselves tested -------------------------------------------------------------


def test_there_are_exercises():
    assert "fork" in {task.name for task in TASKS}
    assert len({task.key for task in TASKS}) == len(TASKS)


def test_an_edit_that_fits_nowhere_is_refused(double):
    with pytest.raises(ValueError, match="occurs 0 times"):
        Wrong("nowhere", "no such text", "x").apply(double.solution)
    with pytest.raises(ValueError, match="occurs 2 times"):
        Wrong("twice", "double(", "x").apply(double.solution)


def test_a_changed_signature_is_seen(double):
    other = double.solution.replace("number: int", "x: int", 1)
    assert outline(other) != outline(double.starter)
    assert outline(double.solution) == outline(double.starter)


def test_lines_of_code_are_counted_without_words(double):
    assert len(code_lines(double.starter)) == len(code_lines(double.solution)) == 2
    assert new_lines(double.starter, double.solution) == ["+     return 2 * number"]
