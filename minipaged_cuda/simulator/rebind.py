"""Copies a kernel so that its names mean the simulator's things; knows functions, runs none.

What a global of the kernel's text, or a variable of the function that made it, becomes:

    numba.cuda, or whatever is called `cuda`   the simulated module
    syncthreads, shared, ... of it             the same of the simulated module
    float32, types, numba                      casts that wrap as a GPU does
    math                                       functions that return inf and NaN, and keep float32
    a name in `bindings`                       what it is bound to
    a device function                          a copy of it, if it uses any of these itself

The kernel itself stays as it is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from . import cuda, scalars
from .places import MARK

_REAL = ("numba.cuda", "numba_cuda_mlir.cuda")
_TYPES = ("numba.types", "numba.core.types", "numba.cuda.types", "numba_cuda_mlir.types")
_NUMBA = SimpleNamespace(cuda=cuda, types=scalars, **scalars.TYPES)
_MATH = scalars.Math()
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
        self.bindings = {name: cuda if x is None else x for name, x in bindings.items()}
        self.copies: dict[FunctionType, FunctionType] = {}
        self.twins = _device_functions()
        self.starts: dict[int, list[int]] = {}  # of instructions, by the code's id

    def copy(self, function: FunctionType) -> FunctionType:
        """The function with all its names rebound; the same copy for the same function."""
        if function in self.copies:
            return self.copies[function]
        cells = {name: CellType() for name in function.__code__.co_freevars}
        namespace: dict[str, Any] = {**function.__globals__, **self.bindings, MARK: self.starts}
        closure = tuple(cells.values())
        twin = FunctionType(
            function.__code__, namespace, function.__name__, function.__defaults__, closure
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        self.copies[function] = twin  # before what it calls: that may call it
        for name, value in _names(function):
            new = self._replacement(name, value)
            value = _MATH if value is math else value if new is _KEEP else new
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
        if isinstance(function, FunctionType):
            is_device_function = function is not value or self._uses_us(function, set())
            return self.copy(function) if is_device_function else _KEEP
        return _KEEP

    def _uses_us(self, function: FunctionType, seen: set[FunctionType]) -> bool:
        """Whether a function, or one that it calls, uses a name that has another meaning here."""
        if function in seen:
            return False
        seen.add(function)
        for name, value in _names(function):
            if isinstance(value, FunctionType) and name not in self.bindings:
                if self._uses_us(value, seen):
                    return True
            elif self._replacement(name, value) is not _KEEP:
                return True
        return False


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


def _module(module: ModuleType) -> Any:
    if module is cuda or module.__name__ in _REAL:
        return cuda
    if module.__name__ in _TYPES:
        return scalars
    return _NUMBA if module.__name__ == "numba" else _KEEP


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
