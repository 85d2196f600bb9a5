"""Finds which tests say they hold down which decision: ``@pytest.mark.invariant(1)``.

Read from the source, so that the table of the docs can be computed without running anything. The
mark may stand on a test, on a class, or on a module (``pytestmark = pytest.mark.invariant(1)``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pages" / "explanation" / "invariants.md"


def decisions(page: Path = PAGE) -> list[int]:
    """The numbers of the page's headings."""
    text = page.read_text(encoding="utf-8")
    return [int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)]


def marked_tests(root: Path = ROOT) -> dict[int, Counter[str]]:
    """Decision -> file -> number of marks in it."""
    found: dict[int, Counter[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for number in _marks(ast.parse(path.read_text(encoding="utf-8"))):
            name = path.relative_to(root).as_posix()
            found.setdefault(number, Counter())[name] += 1
    return found


def tests_table() -> str:
    """The table at the end of the page."""
    found = marked_tests()
    rows = ["| rule | held down by |", "|---:|---|"]
    for number in decisions():
        files = ", ".join(f"`{name}`" for name in found.get(number, ()))
        rows.append(f"| {number} | {files or 'nothing yet'} |")
    return "\n".join(rows)


def _marks(tree: ast.AST) -> list[int]:
    """Every number given to ``pytest.mark.invariant`` in decorators and ``pytestmark``."""
    numbers = []
    for node in ast.walk(tree):
        marks = list(getattr(node, "decorator_list", []))
        if isinstance(node, ast.Assign) and "pytestmark" in map(ast.unparse, node.targets):
            marks.append(node.value)
        calls = (call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call))
        for call in calls:
            if ast.unparse(call.func) == "pytest.mark.invariant":
                numbers += [ast.literal_eval(argument) for argument in call.args]
    return numbers
