"""Gives the names of kernel text the meaning that they have for one compiler; compiles nothing."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from numbers import Number
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from minipaged_cuda.errors import KernelError
from minipaged_cuda.kernel import Parameter, Specialisation
from minipaged_cuda.primitives import python as primitives
from minipaged_cuda.specialise import specialise


class Compiler(NamedTuple):
    """The modules of a compiler: numba-cuda's, or numba-cuda-mlir's."""

    cuda: Any
    types: Any
    primitives: Any


def bind(specialisation: Specialisation, compiler: Compiler, function: Any = None) -> FunctionType:
    """The specialised kernel, every name of its text standing for what the compiler knows.

    The functions that it calls become device functions, specialised with the same constants.

    Raises:
        KernelError: The text cannot be specialised, or a constant names nothing.
    """
    function = function or specialisation.kernel
    source = specialise(function, specialisation.numbers)
    scope = {
        name: _meaning(specialisation, compiler, name, value)
        for name, value in _used_globals(source, function).items()
    }
    file = f"<{function.__name__} of {specialisation.name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), scope)
    return scope[function.__name__]


def signature(specialisation: Specialisation, compiler: Compiler) -> Any:
    """The types of the kernel's parameters as the compiler wants them."""

    def kind(parameter: Parameter) -> Any:
        element = getattr(compiler.types, parameter.type_name)
        return compiler.types.CPointer(element) if parameter.is_pointer else element

    return compiler.types.void(*map(kind, specialisation.parameters))


def ingredients(kernel: FunctionType) -> Iterator[str]:
    """The texts that a kernel and the functions it calls come from, and the numbers they name."""
    seen: set[Any] = set()
    waiting: list[Any] = [kernel]
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        yield function.__qualname__ + "".join(linecache.getlines(function.__code__.co_filename))
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if _is_helper(value):
                waiting.append(value)
            elif isinstance(value, Number | FunctionType | type):
                yield f"{name} = {getattr(value, '__name__', repr(value))}"


def _meaning(specialisation: Specialisation, compiler: Compiler, name: str, value: Any) -> Any:
    if name in specialisation.names:
        return _chosen(specialisation, compiler, name)
    if value is primitives.cuda:
        return compiler.cuda
    if isinstance(value, type) and issubclass(value, np.generic):
        return getattr(compiler.types, value.__name__)
    if _is_helper(value):
        helper = bind(specialisation, compiler, value)
        return compiler.cuda.jit(device=True, fastmath=True)(helper)
    return (
        getattr(compiler.primitives, value.__name__) if isinstance(value, FunctionType) else value
    )


def _chosen(specialisation: Specialisation, compiler: Compiler, name: str) -> Any:
    """The primitive or type that a constant names."""
    word = specialisation.names[name]
    found = getattr(compiler.primitives, word, None) or getattr(compiler.types, word, None)
    if found is None:
        where = f"{specialisation.kernel.__name__}: constant {name}"
        raise KernelError(f"{where} is {word!r}, which is neither a primitive nor a type")
    return found


def _used_globals(source: str, function: FunctionType) -> dict[str, Any]:
    """The globals of a function's module that its specialised text names."""
    names = (node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    scope = function.__globals__
    return {name: scope[name] for name in sorted(set(names)) if name in scope}


def _is_helper(value: Any) -> bool:
    """Whether a global is a device function: kernel text as well, and no primitive."""
    return isinstance(value, FunctionType) and value.__module__ != primitives.__name__
