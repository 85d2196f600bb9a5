"""Turns a learner's file into a module, or says calmly why it cannot; judges nothing."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

MAX_FRAMES = 3


class Unreadable(Exception):
    """The file is no Python, or it does not define what it should; says where."""

    def __init__(self, headline: str, *lines: str):
        super().__init__(headline)
        self.headline, self.lines = headline, lines


def load(path: Path, name: str) -> ModuleType:
    """The module that a file defines; it is registered, as dataclasses need it to be.

    Raises:
        Unreadable: it is not Python.
        BaseException: whatever its own lines raise.
    """
    try:
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").rstrip("\n")
        caret = " " * max(0, (error.offset or 1) - 1) + "^"
        where = f"line {error.lineno} of {path.name} is not Python: {error.msg}"
        raise Unreadable(where, line, caret) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise Unreadable(f"{path.name} cannot be read: {error}") from None
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module


def require(module: ModuleType, reference: ModuleType, names: tuple[str, ...]) -> None:
    """Every name is there, can be called if it should be, and takes what the exercise passes.

    Raises:
        Unreadable: it says what is missing, and what would be right.
    """
    for name in names:
        wanted, given = getattr(reference, name), getattr(module, name, None)
        head = f"def {name}{_signature(wanted)}"
        if given is None:
            own = [
                n
                for n, v in vars(module).items()
                if getattr(v, "__module__", "") == module.__name__
            ]
            raise Unreadable(
                f"{name} is not there",
                f"the file defines: {', '.join(own) or 'nothing'}",
                f"it should define: {head}",
            )
        if callable(wanted) and not callable(given):
            raise Unreadable(f"{name} is {given!r}, not a function", f"expected: {head}")
        if not _takes(given, wanted):
            raise Unreadable(
                f"{name} takes other arguments than it gets",
                f"yours:    {name}{_signature(given)}",
                f"expected: {name}{_signature(wanted)}",
            )


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # compiled
        return None


def _signature(function: Any) -> str:
    parameters = _parameters(function)
    return "(...)" if parameters is None else f"({', '.join(p.name for p in parameters)})"


def _takes(given: Any, wanted: Any) -> bool:
    """The same names in the same order; further ones only with a default."""
    ours, theirs = _parameters(wanted), _parameters(given)
    if ours is None or theirs is None:
        return True
    begin, rest = theirs[: len(ours)], theirs[len(ours) :]
    return [p.name for p in begin] == [p.name for p in ours] and all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in rest
    )


def own_lines(trace: TracebackType | None, path: Path) -> list[str]:
    """The learner's own lines in a traceback, the innermost last; none of ours."""
    text, found = path.read_text(encoding="utf-8", errors="replace").splitlines(), []
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            number, where = trace.tb_lineno, trace.tb_frame.f_code.co_name
            line = text[number - 1].strip() if number <= len(text) else ""
            place = "" if where == "<module>" else f", in {where}"
            found.append(f"line {number}{place}:  {line}")
        trace = trace.tb_next
    if len(found) > MAX_FRAMES:
        found = [found[0], f"... {len(found) - 2} calls more ...", found[-1]]
    return found
