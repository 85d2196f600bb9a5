"""The scripts of the course, cut into cells; runs none of them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MARK = re.compile(r"^# %%(?P<markdown>\s*\[markdown\])?(?:\s+tags=\[(?P<tags>[^\]]*)\])?\s*$")
SILENT = ("exercise", "source")  # a cell of nothing else need not show its own text


@dataclass(frozen=True)
class Cell:
    """One cell of a page, as it stands in the file.

    ``line`` is where its text begins; ``number`` counts from 1, as an editor shows cells.
    """

    number: int
    line: int
    kind: str  # "markdown" or "code"
    tags: tuple[str, ...]
    text: str

    @property
    def is_approx(self) -> bool:
        """Its output differs by machine and time: shown, and never compared."""
        return "approx" in self.tags

    @property
    def is_silent(self) -> bool:
        """It only asks for a text of the package or an exercise; its own says nothing more."""
        calls = [getattr(node, "value", None) for node in ast.parse(self.text).body]
        names = [getattr(call.func, "id", "") for call in calls if isinstance(call, ast.Call)]
        return len(names) == len(calls) > 0 and set(names) <= set(SILENT)

    @property
    def markdown(self) -> str:
        """The prose of a Markdown cell, without the comment signs."""
        return "\n".join(re.sub(r"^# ?", "", line) for line in self.text.splitlines())


def cells(text: str) -> list[Cell]:
    """The cells of a percent script, in order. What stands before the first mark is none."""
    lines, found = text.splitlines(), []
    marks = [(i, match) for i, line in enumerate(lines) if (match := MARK.match(line))]
    for (i, match), end in zip(marks, [*(i for i, _ in marks[1:]), len(lines)]):
        body = lines[i + 1 : end]
        blank = next((n for n, line in enumerate(body) if line.strip()), len(body))
        tags = tuple(re.findall(r"[\w-]+", match["tags"] or ""))
        kind = "markdown" if match["markdown"] else "code"
        content = "\n".join(body[blank:]).rstrip()
        if content:
            found.append(Cell(len(found) + 1, i + 2 + blank, kind, tags, content))
    return found


@dataclass(frozen=True)
class Page:
    """One step of the course: its script, its number, what it asks."""

    path: Path

    @property
    def number(self) -> int:
        """Its place in the course, from 1."""
        return int(self.path.stem.split("_")[0])

    @property
    def name(self) -> str:
        """``fork`` of ``06_fork.py``."""
        return self.path.stem.partition("_")[2]

    @cached_property
    def cells(self) -> list[Cell]:
        """Its cells, in order."""
        return cells(self.path.read_text(encoding="utf-8"))

    @cached_property
    def prose(self) -> str:
        """All Markdown cells, one after another."""
        return "\n\n".join(cell.markdown for cell in self.cells if cell.kind == "markdown")

    @property
    def title(self) -> str:
        """The heading of the page, without its number."""
        match = re.search(r"^# (?:\d+[.:]? *)?(.+)$", self.prose, re.MULTILINE)
        return match[1].strip() if match else self.name

    @property
    def question(self) -> str:
        """What the page answers, on one line."""
        match = re.search(
            r"^\*\*Question[.:]?\*\*[.:]?\s*(.+?)(?:\n\s*\n|\Z)", self.prose, re.M | re.S
        )
        return " ".join(match[1].split()) if match else ""


def folder() -> Path:
    """Where the scripts lie: in the installed package, or beside it in a working tree."""
    here = Path(__file__).parent
    inside = here / "tutorials"
    return inside if inside.is_dir() else here.parents[1] / "tutorials"


def pages() -> list[Page]:
    """Every page there is, in the order of the course."""
    found = (Page(path) for path in folder().glob("[0-9]*_*.py"))
    return sorted(found, key=lambda page: page.number)
