"""Runs the package with a fault planted in its source, without touching a file.

Inside ``with planted(fault)`` the modules of the manager, and the test support that uses them, are
imported afresh, one of them with changed text; afterwards everything is as it was. Whoever wants
the changed package must import it inside the block, by name: ``fresh("support.world")``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]

ANEW = (
    "minipaged.core",
    "minipaged.cache",
    "support.books",
    "support.fingerprint",
    "support.programs",
    "support.world",
)


@dataclass(frozen=True)
class Fault:
    """A few characters of one module, and what is wrong with their replacement."""

    name: str  # what is wrong, in a few words
    kind: str  # the class of fault
    like: str  # the public report it is modelled on
    module: str  # ``block_pool``, or ``cache.batch``
    right: str  # stands in the source exactly once
    wrong: str
    also: tuple[tuple[str, str], ...] = ()  # further replacements in the same module

    @property
    def full_module(self) -> str:
        return f"minipaged.{self.module if '.' in self.module else f'core.{self.module}'}"

    def source(self) -> str:
        """The module's text with the fault in it."""
        path = ROOT.joinpath(*self.full_module.split(".")).with_suffix(".py")
        text = path.read_text(encoding="utf-8")
        for right, wrong in ((self.right, self.wrong), *self.also):
            times = text.count(right)
            if times != 1:
                raise LookupError(f"{self.name}: {right!r} stands {times} times in {path.name}")
            text = text.replace(right, wrong)
        return text


@contextmanager
def planted(fault: Fault | None) -> Iterator[None]:
    """The package with ``fault`` in it; with None, a second copy of the right one."""
    finder = _Finder(fault.full_module, fault.source()) if fault else _Finder("", "")
    before = {name: module for name, module in sys.modules.items() if _is_anew(name)}
    attributes = [(*_parent(name), vars(_parent(name)[0]).get(_parent(name)[1])) for name in before]
    _forget_modules()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget_modules()
        sys.modules.update(before)
        for parent, child, attribute in attributes:
            setattr(parent, child, attribute)  # a function may have the name of its module


def fresh(name: str) -> ModuleType:
    """Import inside ``planted``."""
    return importlib.import_module(name)


def fresh_tests(path: Path) -> ModuleType:
    """The tests of one file, bound to the package as it is inside ``planted``."""
    spec = importlib.util.spec_from_file_location(f"planted_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _forget_modules() -> None:
    """Also as attributes of their parents, or ``from . import books`` would find the old one."""
    for name in [name for name in sys.modules if _is_anew(name)]:
        parent, child = _parent(name)
        vars(parent).pop(child, None)
    for name in [name for name in sys.modules if _is_anew(name)]:
        del sys.modules[name]


def _parent(name: str) -> tuple[ModuleType, str]:
    parent, _, child = name.rpartition(".")
    return sys.modules[parent], child


def _is_anew(name: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in ANEW)


class _Finder(MetaPathFinder):
    """Serves one module from changed text, and leaves all others alone."""

    def __init__(self, module: str, text: str):
        self.module, self.text = module, text

    def find_spec(self, name, path, target=None) -> ModuleSpec | None:
        if name != self.module:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = _Loader(name, str(spec.origin), self.text)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str):
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)
