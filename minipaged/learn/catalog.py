"""Which exercises there are, and where their files lie; imports a judge only when asked for it.

An exercise is a folder ``exercises/eNN_name`` (or ``eNNa_name``, where a step has several).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .exercise import Exercise

FOLDER = Path(__file__).parent / "exercises"


class UnknownExercise(LookupError):
    """No exercise has this number or name."""


@dataclass(frozen=True)
class Task:
    """One exercise of the course, found on disk.

    ``key`` is what a learner types: ``6``, or ``10a`` where a step has several.
    """

    folder: Path
    step: int
    letter: str

    @property
    def key(self) -> str:
        """``6``, ``10a``."""
        return f"{self.step}{self.letter}"

    @property
    def name(self) -> str:
        """``fork`` of ``e06_fork``."""
        return self.folder.name.partition("_")[2]

    @property
    def file_name(self) -> str:
        """What the learner's copy is called: ``06_fork.py``."""
        return f"{self.folder.name[1:]}.py"

    @property
    def starter(self) -> str:
        """The text with the hole, or with what is to be mended."""
        return (self.folder / "starter.py").read_text(encoding="utf-8")

    @property
    def has_hole(self) -> bool:
        """Something is to be written; if not, code that runs is to be mended."""
        return "raise NotImplementedError" in self.starter

    @property
    def solution(self) -> str:
        """The text with the hole filled."""
        return (self.folder / "solution.py").read_text(encoding="utf-8")

    @property
    def statement(self) -> str:
        """What is to be written, what holds, and an example: the starter's docstring."""
        return ast.get_docstring(ast.parse(self.starter)) or ""

    @cached_property
    def exercise(self) -> Exercise:
        """All of it, the judge included; importing that may take a while."""
        name = f"{__package__}.exercises.{self.folder.name}.check"
        spec = importlib.util.spec_from_file_location(name, self.folder / "check.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.EXERCISE

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What ``check.py`` says of the exercise in plain words, read without importing it."""
        tree = ast.parse((self.folder / "check.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Exercise":
                return dict(_literals(node))
        return {}

    @property
    def title(self) -> str:
        """What is to be written, in one line."""
        return self.facts.get("title", self.name)

    @property
    def hints(self) -> tuple[str, ...]:
        """From a nudge to almost the answer."""
        return tuple(self.facts.get("hints", ()))


def _literals(call: ast.Call) -> list[tuple[str, Any]]:
    found = []
    for keyword in call.keywords:
        try:
            found.append((str(keyword.arg), ast.literal_eval(keyword.value)))
        except ValueError:
            continue  # a function, or the wrong solutions
    return found


def at(folder: Path) -> Task:
    """The exercise in this folder.

    Raises:
        UnknownExercise: the folder is not called like one.
    """
    match = re.fullmatch(r"e(\d\d)([a-z]?)_\w+", folder.name)
    if not match:
        raise UnknownExercise(f"{folder} is not called eNN_name")
    return Task(folder, int(match[1]), match[2])


def tasks() -> list[Task]:
    """Every exercise, in the order of the course."""
    found = [at(path.parent) for path in FOLDER.glob("e*/check.py")]
    return sorted(found, key=lambda task: (task.step, task.letter))


def find(word: str) -> list[Task]:
    """The exercises that a word means: a name, ``10a``, or all those of step ``10``.

    Raises:
        UnknownExercise: there is none; the message says which there are.
    """
    word = word.lower().removesuffix(".py")
    known = tasks()
    exact = [task for task in known if word in (task.name, task.key, task.file_name[:-3])]
    found = exact or [task for task in known if word.lstrip("0") == str(task.step)]
    if not found:
        names = ", ".join(f"{task.key} {task.name}" for task in known)
        raise UnknownExercise(f"there is no exercise {word!r}; there are: {names}")
    return found


def command(task: Task) -> str:
    """What to type for this exercise."""
    return f"minipaged learn {task.key}"
