"""Makes the comments `# [num_tokens, head_dim] int32` beside parameters true: tests run them.

``checked(function)`` checks each call's tensors against the comments of its signature: the number
of dimensions, the dtype, and that one name means one size in all of them, the result included.
``checking(module, ...)`` does so for all functions that the modules use, calls among them too.

A dimension is a name, a number, or a name plus a number; `...` stands for any leading ones. A
parameter that is not given a tensor is not checked.
"""

from __future__ import annotations

import functools
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch

_COMMENT = re.compile(r"#\s*\[(?P<dims>[^\]]*)\](?:\s+(?P<dtype>bool|(?:u?int|float|bfloat)\d+))?")


class WrongShape(AssertionError):
    """A call did not keep what a comment of its signature says."""


class Said:
    """What one comment says of one tensor."""

    def __init__(self, text: str):
        found = _COMMENT.match(text)
        assert found, text
        self.dims = [dim.strip() for dim in found["dims"].split(",") if dim.strip()]
        self.dtype = getattr(torch, found["dtype"]) if found["dtype"] else None

    def check(self, where: str, tensor: torch.Tensor, sizes: dict[str, int]) -> None:
        """Compare a tensor, and note the sizes of names that are new."""
        said = f"{where} is {list(tensor.shape)} {tensor.dtype}, its comment says {self.dims}"
        dims, shape = self.dims, list(tensor.shape)
        if dims[:1] == ["..."]:
            dims = dims[1:]
            shape = shape[max(0, len(shape) - len(dims)) :]
        if len(shape) != len(dims):
            raise WrongShape(said)
        if self.dtype not in (None, tensor.dtype):
            raise WrongShape(f"{said} {self.dtype}")
        for size, dim in zip(shape, dims):
            name, _, plus = (part.strip() for part in dim.partition("+"))
            wanted = int(name) if name.isdigit() else sizes.setdefault(name, size - int(plus or 0))
            if size != wanted + int(plus or 0):
                raise WrongShape(f"{said}, and {name} is {wanted} elsewhere")


def comments_of(function: Callable[..., Any]) -> dict[str, Said]:
    """The comments of a signature by parameter; the one behind the arrow is called `return`."""
    source = inspect.cleandoc(inspect.getsource(function))
    parameters = inspect.signature(function).parameters
    found: dict[str, Said] = {}
    depth, name = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth += (
            (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        )
        if token.type == tokenize.NAME and depth == 1 and token.string in parameters:
            name = token.string
        elif token.string == "->" and depth == 0:
            name = "return"
        elif token.type == tokenize.COMMENT and _COMMENT.match(token.string):
            found.setdefault(name, Said(token.string))
        elif (
            token.type == tokenize.NEWLINE and "def " in token.line
        ) or token.type == tokenize.INDENT:
            break  # the body begins
    return found


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its comments checked at each call."""
    said, signature = comments_of(function), inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        sizes: dict[str, int] = {}
        given = signature.bind(*args, **kwargs).arguments
        for name in said.keys() & given.keys():
            if isinstance(given[name], torch.Tensor):
                said[name].check(f"{function.__name__}: {name}", given[name], sizes)
        result = function(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else result
        if "return" in said and isinstance(first, torch.Tensor):
            said["return"].check(f"{function.__name__}: the result", first, sizes)
        return result

    return call


@contextmanager
def checking(*modules: ModuleType) -> Iterator[set[str]]:
    """Check all calls of commented functions that go through these modules' names.

    Gives the set of functions that were called, which fills up inside the `with` block.
    """
    called: set[str] = set()
    replaced: list[tuple[ModuleType, str, FunctionType]] = []
    try:
        for module in modules:
            for name, function in list(vars(module).items()):
                ours = isinstance(function, FunctionType) and "minipaged" in function.__module__
                if ours and comments_of(function):
                    replaced.append((module, name, function))
                    setattr(module, name, _noting(checked(function), called))
        yield called
    finally:
        for module, name, function in replaced:
            setattr(module, name, function)


def _noting(function: Callable[..., Any], called: set[str]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args, **kwargs):
        called.add(function.__name__)
        return function(*args, **kwargs)

    return call


def uncommented(function: Callable[..., Any]) -> list[str]:
    """Parameters whose annotation begins with Tensor but which have no comment."""
    said = comments_of(function)
    parameters = inspect.signature(function).parameters.values()
    return [
        p.name for p in parameters if str(p.annotation).startswith("Tensor") and p.name not in said
    ]
