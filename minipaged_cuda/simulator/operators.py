"""What the operators of numbers give: as Numba types them; knows no literal and no cast.

int32 + int32            int64      whole numbers count in 64 bits at least,
uint32 + uint32          uint64     without a sign if neither has one,
uint64 + int64           int64      and with one else
int32 / int32            float64
float32 + int16          float32    a float that holds all numbers of the other type,
float32 + int32          float64    or float64
uint8 << int64           uint64     the left one decides
bool + bool              int64      a truth value counts,
bool & bool              bool       and stays one
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from .numbers import (
    KNOWN,
    SIGNED,
    UNSIGNED,
    Bool,
    Int8,
    Int16,
    UInt8,
    UInt64,
    float64,
    int64,
    to_int64,
    to_uint64,
    truth,
    uint64,
)

_FLOATS = (np.float16, np.float32, float64)
_HELD_BY = {Bool: 0, Int8: 0, UInt8: 1, Int16: 1}  # the narrowest of _FLOATS with all its numbers


def _commons(kind: Any, whole: Any = None) -> dict[type, Callable[[Any], Any]]:
    """What two operands become, one of this `kind`, by the type of the other.

    Two whole numbers become `whole`, or what has both their signs.
    """
    unsigned = to_uint64 if kind in UNSIGNED else to_int64
    signed = dict.fromkeys((*SIGNED, int64, int, bool, np.bool_), whole or to_int64)
    floats = {x: _FLOATS[max(i, _HELD_BY.get(kind, 2))] for i, x in enumerate(_FLOATS)}
    others = dict.fromkeys((*UNSIGNED, uint64), whole or unsigned)
    return {**signed, **others, **floats, float: float64}


def _plain(value: Any) -> Any:
    return KNOWN[UInt64][int(value)] if value.__class__ is uint64 else value


def _arithmetic(kind: Any, op: Callable[[Any, Any], Any], name: str) -> None:
    commons = _commons(kind, float64 if op is operator.truediv else None)
    wide = frozenset(x for x in (*SIGNED, *UNSIGNED) if commons[x] is to_int64)
    plain = int64 if commons[int64] is to_int64 else None

    def forward(self: Any, other: Any) -> Any:
        if other.__class__ in wide:
            return op(self.wide, other.wide)
        if other.__class__ is plain:
            return op(self.wide, other)
        common = commons.get(other.__class__)
        return NotImplemented if common is None else _plain(op(common(self), common(other)))

    def backward(self: Any, other: Any) -> Any:
        if other.__class__ is plain:
            return op(other, self.wide)
        common = commons.get(other.__class__)
        return NotImplemented if common is None else _plain(op(common(other), common(self)))

    setattr(kind, f"__{name}__", forward)
    setattr(kind, f"__r{name}__", backward)


def _shift(kind: Any, op: Callable[[Any, Any], Any], name: str) -> None:
    widened = to_uint64 if kind in UNSIGNED else to_int64

    def forward(self: Any, other: Any) -> Any:
        return _plain(op(widened(self), widened(other)))

    def backward(self: Any, other: Any) -> Any:
        return op(to_int64(other), self.wide)

    setattr(kind, f"__{name}__", forward)
    setattr(kind, f"__r{name}__", backward)


def _comparison(kind: Any, op: Callable[[Any, Any], Any], name: str) -> None:
    wide = frozenset((*SIGNED, *UNSIGNED)) - {UInt64}
    is_unsigned = kind in UNSIGNED

    def compare(self: Any, other: Any) -> Any:
        if other.__class__ in wide and kind is not UInt64:
            return op(self.wide, other.wide)
        if is_unsigned and other.__class__ in UNSIGNED:
            return op(int(self), int(other))
        if UInt64 in (kind, other.__class__):  # with a sign on the other side
            return op(float64(self), float64(other))
        return op(self.wide, other)

    setattr(kind, f"__{name}__", compare)


def _sign(kind: Any, name: str) -> None:
    native = getattr(kind.__base__, f"__{name}__")  # in the number's own width
    widened = (lambda x: KNOWN[UInt64][int(x)]) if kind in UNSIGNED else to_int64
    setattr(kind, f"__{name}__", lambda self: widened(native(self)))


def _of_truths(op: Callable[[Any, Any], Any], otherwise: Any) -> Callable[[Any, Any], Any]:
    return lambda a, b: truth(op(int(a), int(b))) if b.__class__ is Bool else otherwise(a, b)


def _give_operators(kind: Any) -> None:
    kind.__array_priority__ = 1.0  # NumPy's own numbers leave operators to these
    kind.wide = cached_property(to_int64)  # what it is in a sum with a number that has a sign
    kind.wide.__set_name__(kind, "wide")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and_", "or_", "xor"):
        _arithmetic(kind, getattr(operator, name), name.rstrip("_"))
    _arithmetic(kind, divmod, "divmod")
    for name in ("lshift", "rshift"):
        _shift(kind, getattr(operator, name), name)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        _comparison(kind, getattr(operator, name), name)
    for name in ("neg", "pos", "invert"):
        _sign(kind, name)
    kind.__hash__ = kind.__base__.__hash__  # which a class with an __eq__ of its own loses


for _kind in (*SIGNED, *UNSIGNED):
    _give_operators(_kind)
for _name in ("__and__", "__or__", "__xor__"):
    setattr(Bool, _name, _of_truths(getattr(operator, _name), getattr(Bool, _name)))
Bool.__invert__ = lambda self: truth(not self)  # type: ignore[method-assign, assignment]


def absolute(value: Any) -> Any:
    """The size of a number, in its own type, where the lowest number has none."""
    if value.__class__ in SIGNED:
        native = abs(value.__class__.__base__(value))
        return KNOWN[Int8 if value.__class__ is Bool else value.__class__][int(native)]
    return value if value.__class__ in UNSIGNED else abs(value)
