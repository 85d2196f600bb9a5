"""`name=value` words as changes of a dataclass: how a contract is written on a command line.

It knows the types of fields, not what they mean.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from .targets import nearest, resolve

Settings = TypeVar("Settings")
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class SettingError(ValueError):
    """A setting that does not exist or cannot have this value; the message says what could be."""


def changed(base: Settings, words: Iterable[str]) -> Settings:
    """`base` with these of its fields set.

    A word of the form `package.module:NAME` is a ready-made object to start from instead.

    Raises:
        SettingError: No such field, or no such value.
        TargetError: No such object.

    Examples:
        >>> from minipaged.oracle import Contract, Features
        >>> changed(Contract(), ["poison=finite", "batch_invariant=yes"]).poison
        'finite'
        >>> changed(Features(), ["head_dims=64,128", "kv_len=1-100"]).kv_len
        (1, 100)
        >>> changed(Contract(), ["numeric=p:float16"]).numeric.p
        'float16'
        >>> changed(Contract(), ["padding=1"])
        Traceback (most recent call last):
        minipaged.oracle.settings.SettingError: padding=1: it can be any, valid, -1, 0
    """
    hints = typing.get_type_hints(type(base))
    changes = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals and ":" in word:
            base = resolve(word)
            continue
        if not equals:
            raise SettingError(f"{word!r} is not name=value")
        if name not in hints:
            near = nearest(name, hints) or f"; there are {', '.join(hints)}"
            raise SettingError(f"{type(base).__name__} has no {name!r}{near}")
        try:
            changes[name] = _value(text, hints[name])
        except ValueError as error:
            raise SettingError(f"{word}: it can be {error}") from None
    return dataclasses.replace(base, **changes)  # pyright: ignore[reportArgumentType]


def _value(text: str, hint: Any) -> Any:
    """The text as a value of this type; a `ValueError` says what it could be."""
    origin, choices = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if text not in choices:
            raise ValueError(", ".join(choices))
        return text
    if origin in (typing.Union, types.UnionType):
        if text.lower() == "none":
            return None
        return _value(text, next(c for c in choices if c is not type(None)))
    if origin is tuple:
        return _tuple(text, choices)
    if hint is bool:
        if text.lower() not in TRUTHS:
            raise ValueError("true or false")
        return TRUTHS[text.lower()]
    if dataclasses.is_dataclass(hint):
        parts = [part.replace(":", "=", 1) for part in text.split(",")]
        return changed(hint(), parts)  # pyright: ignore[reportCallIssue]
    try:
        return hint(text)
    except ValueError:
        raise ValueError("a number") from None


def _tuple(text: str, choices: tuple[Any, ...]) -> tuple[Any, ...]:
    is_range = len(choices) == 2 and choices[1] is not Ellipsis
    parts = [part for part in text.replace("-", ",").split(",") if part] if is_range else []
    parts = parts or [part.strip() for part in text.split(",") if part.strip()]
    if is_range and len(parts) == 1:
        parts *= 2
    if is_range and len(parts) != 2:
        raise ValueError("least-most")
    return tuple(_value(part, choices[0]) for part in parts)
