"""Counts lines of the package, as the README prints them and the budget limits them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Part:
    """Directories read as one thing. Code, comments and docstrings count; blank lines do not."""

    name: str
    directories: tuple[str, ...]
    budget: int
    skip: tuple[str, ...] = ()  # file name prefixes

    def files(self, root: Path = ROOT) -> list[Path]:
        """The Python files directly in the directories; subdirectories are parts of their own."""
        paths = (path for d in self.directories for path in sorted((root / d).glob("*.py")))
        return [path for path in paths if not path.name.startswith(self.skip)]

    def num_lines(self, root: Path = ROOT) -> int:
        """Their lines together."""
        return sum(num_lines(path) for path in self.files(root))


PARTS = (
    Part(
        "core + reference attention + cache",
        ("minipaged/core", "minipaged/attention", "minipaged/cache"),
        budget=1200,
        skip=("cpu",),  # the compiled path is fast, not a reference
    ),
    Part("engine", ("minipaged/engine",), budget=2000),
    Part("models", ("minipaged/models",), budget=2000, skip=("cpu",)),
)


def num_lines(path: Path) -> int:
    """Lines of one file that say something."""
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())


def round_up(lines: int, step: int = 50) -> int:
    """Rounded so that the README need not change with every commit, and never flatters."""
    return -(-lines // step) * step


def function_lengths(files: list[Path]) -> list[int]:
    """Lines of every function and method, ``def`` and docstring included."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds))
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes]


def report(root: Path = ROOT) -> str:
    """A table for people: sizes, the longest file, and how long functions are."""
    rows = []
    for part in PARTS:
        files = part.files(root)
        longest = max(files, key=num_lines)
        lengths = function_lengths(files) or [0]
        rows.append(
            f"{part.name}: {part.num_lines(root)} of {part.budget} lines in {len(files)} files; "
            f"longest {longest.relative_to(root)} ({num_lines(longest)}); "
            f"functions: median {median(lengths):g}, longest {max(lengths)}"
        )
    return "\n".join(rows)


def sizes_table(root: Path = ROOT) -> str:
    """The README's table of sizes."""
    rows = [f"| {p.name} | {round_up(p.num_lines(root)):,} | {p.budget:,} |" for p in PARTS]
    head = ["| part | lines, rounded up to 50 | budget |", "|---|---:|---:|"]
    return "\n".join(head + rows)


if __name__ == "__main__":
    print(report())
