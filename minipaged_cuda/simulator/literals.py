"""A kernel's text with typed numbers for its literals; knows code objects only."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any


def with_numbers(code: CodeType, number: Callable[[Any], Any]) -> CodeType:
    """The same with `number(x)` for every constant `x` that is a number, in tuples too."""

    def replaced(constant: Any) -> Any:
        if isinstance(constant, tuple):
            return tuple(map(replaced, constant))
        if isinstance(constant, CodeType):
            return with_numbers(constant, number)
        return number(constant) if isinstance(constant, (bool, int, float)) else constant

    return code.replace(co_consts=tuple(map(replaced, code.co_consts)))
