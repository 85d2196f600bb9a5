"""What the tests of the course share: a folder for answers, and a small exercise of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from minipaged.learn.catalog import Task, at

STARTER = '''"""Double a number.

    >>> double(2)
    4
"""


def double(number: int) -> int:
    """Twice the number."""
    raise NotImplementedError
'''

CHECK = """
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying


def check(module):
    for number in range(4):
        trying(f"double({number})")
        got = module.double(number)
        same_form(got, 2 * number, f"double({number})")
        if got != 2 * number:
            reject("the double is wrong", f"got {got}, expected {2 * number}")
    return "4 numbers"


EXERCISE = Exercise(
    name="double",
    title="Double a number",
    function="double",
    lines=1,
    hints=("Two of them.", "number + number"),
    learnt="Twice is once and once more.",
    check=check,
    wrong=(Wrong("the square", "2 * number", "number * number", says="is wrong"),),
    seconds=0.5,
)
"""


@pytest.fixture
def double(tmp_path) -> Task:
    """An exercise that is not in the course."""
    folder = tmp_path / "e99_double"
    folder.mkdir()
    (folder / "starter.py").write_text(STARTER)
    solution = STARTER.replace("raise NotImplementedError", "return 2 * number")
    (folder / "solution.py").write_text(solution)
    (folder / "check.py").write_text(CHECK)
    return at(folder)


@pytest.fixture
def answer(tmp_path):
    """Write a text into a learner's file."""

    def write(text: str) -> Path:
        path = tmp_path / "answer.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write
