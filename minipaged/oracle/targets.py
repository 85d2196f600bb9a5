"""Functions by their address, `package.module:function` or `path/to/file.py:function`.

It knows importing and spelling, no kernel.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any


class TargetError(LookupError):
    """A target cannot be had; the message is one sentence, with the nearest names."""


def resolve(target: str) -> Any:
    """What stands at `package.module:function` or `path/to/file.py:function`.

    Modules in the working directory are found too. The function may be an attribute of an
    attribute: `module:Class.method`.

    Raises:
        TargetError: There is no such module or function, or importing it raises.

    Examples:
        >>> resolve("math:floor")(2.5)
        2
        >>> resolve("math:flor")
        Traceback (most recent call last):
        minipaged.oracle.targets.TargetError: math has no 'flor'; the nearest: floor
    """
    place, _, names = target.rpartition(":")
    if not place or not names:
        raise TargetError(f"{target!r} is not package.module:function or path/to/file.py:function")
    found: Any = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    for name in names.split("."):
        if not hasattr(found, name):
            near = nearest(name, (n for n in dir(found) if not n.startswith("_")))
            raise TargetError(f"{place} has no {name!r}{near}")
        found = getattr(found, name)
    return found


def resolve_function(target: str) -> Callable[..., Any]:
    """The same, and it can be called.

    Raises:
        TargetError: As `resolve`, or it is not a function.
    """
    found = resolve(target)
    if not callable(found):
        raise TargetError(f"{target} is not a function but {type(found).__name__}")
    return found


def target_of(function: Any) -> str:
    """The address under which another process finds this function, or "" if there is none."""
    name = getattr(function, "__qualname__", "")
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    if home is None or not name or "<" in name:
        return ""
    found: Any = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        return ""
    file = getattr(home, "__file__", None)
    if home.__name__ == "__main__" or _cannot_be_imported(home.__name__):
        return f"{_from_here(Path(file))}:{name}" if file and file.endswith(".py") else ""
    return f"{home.__name__}:{name}"


def nearest(name: str, names: Iterable[str]) -> str:
    """`; the nearest: a, b`, or "" if nothing is near."""
    near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.6)
    return f"; the nearest: {', '.join(near)}" if near else ""


def _cannot_be_imported(module: str) -> bool:
    """True of modules that only this process has: read from a file, or made up."""
    try:
        return importlib.util.find_spec(module) is None or module in _FROM_FILES
    except (ImportError, ValueError):
        return True


def _from_here(path: Path) -> Path:
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _load_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not f"{name}.".startswith(f"{missing}."):  # the module is there and lacks another
            raise TargetError(f"importing {name} raised {_told(error)}") from error
        parent, _, last = missing.rpartition(".")
        paths = sys.modules[parent].__path__ if parent else None
        near = nearest(last, (m.name for m in pkgutil.iter_modules(paths)))
        raise TargetError(f"no module {missing!r}{near}") from error
    except (Exception, SystemExit) as error:
        raise TargetError(f"importing {name} raised {_told(error)}") from error


_FROM_FILES: dict[str, Path] = {}  # name: the file that a module was read from


def _load_file(path: Path) -> ModuleType:
    """The module that a file is; read once, and able to import its neighbours."""
    if not path.is_file():
        near = nearest(path.name, (p.name for p in path.parent.glob("*.py")))
        raise TargetError(f"no file {str(path)!r}{near}")
    path = path.resolve()
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_{abs(hash(path)):x}"
    known = next((n for n, p in _FROM_FILES.items() if p == path), None)
    if known:
        return sys.modules[known]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import does: dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise TargetError(f"importing {path} raised {_told(error)}") from error
    _FROM_FILES[name] = path
    return module


def _told(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
