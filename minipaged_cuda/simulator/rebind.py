"""Copies a kernel so that its names mean the simulator's things; knows functions, runs none.

What a global of the kernel's text, or a variable of the function that made it, becomes:

    numba.cuda, or whatever is called `cuda`   the simulated module
    syncthreads, shared, ... of it             the same of the simulated module
    float32, types, numba, numpy               casts that wrap as a GPU does
    math, and range, min, int, ...             functions whose results have Numba's types
    a number, in the text too                  the same with Numba's type and its operators
    a name in `bindings`                       what it is bound to
    a device function                          a copy of it
    an instruction that is defined in Python   the same, with a number for a result

The kernel itself stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CellType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from . import cuda, scalars
from .literals import with_numbers
from .mathematics import BUILTINS, MATH
from .numbers import number
from .places import MARK

_REAL = ("numba.cuda", "numba_cuda_mlir.cuda")
_TYPES = ("numba.types", "numba.core.types", "numba.cuda.types", "numba_cuda_mlir.types")
_NUMBA = SimpleNamespace(cuda=cuda, types=scalars, **scalars.TYPES)
_DEFINITIONS = "minipaged_cuda.primitives."  # of instructions, in NumPy: no text of a kernel
_AS_THEY_ARE = (_DEFINITIONS, __name__.removesuffix("rebind"))
_KEEP = object()


def rebind(kernel: Any, bindings: Mapping[str, Any]) -> FunctionType:
    """A copy of a kernel, given as a plain function or a Numba dispatcher, to be run by lanes.

    Raises:
        TypeError: It is neither.
    """
    function = getattr(kernel, "py_func", kernel)
    if not isinstance(function, FunctionType):
        raise TypeError(f"a kernel is a Python function or a Numba dispatcher, not {kernel!r}")
    return _Rebinder(bindings).copy(function)


class _Rebinder:
    def __init__(self, bindings: Mapping[str, Any]) -> None:
        self.bindings = {name: cuda if x is None else _bound(x) for name, x in bindings.items()}
        self.copies: dict[FunctionType, FunctionType] = {}
        self.twins = _device_functions()
        self.starts: dict[int, list[int]] = {}  # of instructions, by the code's id

    def copy(self, function: FunctionType) -> FunctionType:
        """The function with all its names rebound; the same copy for the same function."""
        if function in self.copies:
            return self.copies[function]
        cells = {name: CellType() for name in function.__code__.co_freevars}
        namespace: dict[str, Any] = {**BUILTINS, **function.__globals__, **self.bindings}
        namespace[MARK] = self.starts
        code, defaults = _with_types(function.__code__), number(function.__defaults__)
        twin = FunctionType(code, namespace, function.__name__, defaults, tuple(cells.values()))
        twin.__kwdefaults__ = {k: number(x) for k, x in (function.__kwdefaults__ or {}).items()}
        self.copies[function] = twin  # before what it calls: that may call it
        for name, value in _names(function):
            new = self._replacement(name, value)
            value = value if new is _KEEP else new
            if name in cells:
                cells[name].cell_contents = value
            else:
                namespace[name] = value
        return twin

    def _replacement(self, name: str, value: Any) -> Any:
        """What a name means in the simulator; `_KEEP` where it means the same."""
        if name in self.bindings:
            return self.bindings[name]
        if isinstance(value, ModuleType):
            return _module(value)
        if name == "cuda":
            return cuda
        if (twin := self.twins.get(id(value))) is not None:
            return twin
        if _is_numba_type(value):
            return scalars.TYPES[value.name]
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType) and not _module_of(function).startswith(_AS_THEY_ARE):
            return self.copy(function)
        return _bound(value)


def _names(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The names of a function's text that stand for something outside of it, and what for."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet, as a function that a factory defines later
            continue
    for name in dict.fromkeys(_global_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _bound(value: Any) -> Any:
    """What somebody chose for a name; a number, and what an instruction returns, get types."""
    if isinstance(value, FunctionType) and _module_of(value).startswith(_DEFINITIONS):
        return _typed(value)
    if isinstance(value, type) and issubclass(value, (np.integer, np.bool_)):
        return scalars.TYPES[value.__name__]
    return number(value)


def _module_of(function: FunctionType) -> str:
    return f"{function.__module__}."


@lru_cache(maxsize=256)
def _typed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        result = function(*arguments)
        return result if result.__class__ is np.float32 else number(result)

    return call


@lru_cache(maxsize=1024)
def _with_types(code: CodeType) -> CodeType:
    return with_numbers(code, number)


class _NumPy:
    """`numpy` as a kernel knows it."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        return _typed(value) if isinstance(value, np.ufunc) else _bound(value)


_NUMPY = _NumPy()


def _module(module: ModuleType) -> Any:
    if module is cuda or module.__name__ in _REAL:
        return cuda
    if module.__name__ in _TYPES:
        return scalars
    known = {"numba": _NUMBA, "math": MATH, "numpy": _NUMPY}
    return known.get(module.__name__, _KEEP)


def _is_numba_type(value: Any) -> bool:
    is_numba = type(value).__module__.startswith("numba")
    return is_numba and getattr(value, "name", None) in scalars.TYPES


def _device_functions() -> dict[int, Any]:
    """The simulated twin of each real function, by the real one's id."""
    twins = {}
    for real in filter(None, map(sys.modules.get, _REAL)):
        for name in dir(cuda):
            if not name.startswith("_") and hasattr(real, name):
                twins[id(getattr(real, name))] = getattr(cuda, name)
    return twins
