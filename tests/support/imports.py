"""Reads who imports whom out of the source text; nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One import statement, wherever it stands: at the top, in a function, under TYPE_CHECKING."""

    importer: str
    imported: str  # the module, as far as it can be told from a name inside one
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.importer} imports {self.imported}"


def find_modules(root: Path, *packages: str) -> dict[str, Path]:
    """Dotted name -> file, for every Python file of ``packages`` below ``root``."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def find_imports(modules: dict[str, Path]) -> list[Import]:
    """Every import in ``modules``, lazy ones and ``import_module("...")`` included."""
    found = []
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            for target in _targets(node, package):
                where = f"{path.name}:{node.lineno}"  # type: ignore[attr-defined]
                found.append(Import(name, _as_module(target, modules), where))
    return found


def find_cycle(imports: list[Import]) -> list[str]:
    """Modules that import each other in a circle, or an empty list."""
    graph: dict[str, list[str]] = {}
    for edge in imports:
        graph.setdefault(edge.importer, []).append(edge.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def is_inside(module: str, package: str) -> bool:
    """True for ``package`` itself and for everything below it."""
    return module == package or module.startswith(package + ".")


def _targets(node: ast.AST, package: str) -> Iterator[str]:
    """The dotted names that one statement brings in; ``from a import b`` gives ``a.b``."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _resolve("." * node.level + (node.module or ""), package)
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        name = node.args[0] if node.args else None
        if called in ("import_module", "__import__") and isinstance(name, ast.Constant):
            yield _resolve(str(name.value), package)


def _resolve(name: str, package: str) -> str:
    """``..x`` seen from ``a.b.c`` is ``a.b.x``; an absolute name is itself."""
    level = len(name) - len(name.lstrip("."))
    if level == 0:
        return name
    parents = package.split(".")
    base = ".".join(parents[: len(parents) - (level - 1)])
    return f"{base}.{name[level:]}".rstrip(".")


def _as_module(target: str, modules: dict[str, Path]) -> str:
    """Drop what is not a module: ``minipaged.core.BlockPool`` becomes ``minipaged.core``."""
    name = target
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or target
