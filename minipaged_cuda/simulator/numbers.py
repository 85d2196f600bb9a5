"""Numbers of the types that a kernel has; knows what they are, not how they are added.

NumPy's int64 and floats already are what a kernel's numbers are, among each other and with literals
of 64 bits. The other types are subclasses of NumPy's, and get their operators in `operators`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

int64, uint64, float64 = np.int64, np.uint64, np.float64

_LIMIT = 1 << 16  # numbers of a type that are kept
_MASK = 0xFFFFFFFFFFFFFFFF


class Bool(np.int8):
    """A truth value."""


class Int8(np.int8):
    """A whole number of 8 bits."""


class Int16(np.int16):
    """A whole number of 16 bits."""


class Int32(np.int32):
    """A whole number of 32 bits."""


class UInt8(np.uint8):
    """A whole number of 8 bits without a sign."""


class UInt16(np.uint16):
    """A whole number of 16 bits without a sign."""


class UInt32(np.uint32):
    """A whole number of 32 bits without a sign."""


class UInt64(np.uint64):
    """A whole number of 64 bits without a sign."""


SIGNED: tuple[Any, ...] = (Bool, Int8, Int16, Int32)
UNSIGNED: tuple[Any, ...] = (UInt8, UInt16, UInt32, UInt64)
_OF_NUMPY: dict[Any, type] = {x.__base__: x for x in (*SIGNED[1:], *UNSIGNED)}
_OF_NUMPY |= {np.bool_: Bool, bool: Bool, int64: int64}


class Known(dict[int, Any]):
    """The numbers of a type by their values: making one takes longer than finding it."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __missing__(self, value: int) -> Any:
        number = self.kind(value)
        if len(self) < _LIMIT:
            self[value] = number
        return number


KNOWN: dict[type, Known] = {kind: Known(kind) for kind in {*_OF_NUMPY.values()}}
INT64, INT32 = KNOWN[int64], KNOWN[Int32]


WHOLE = frozenset(KNOWN)


def known(dtype: np.dtype) -> Known | None:
    """The numbers of a dtype; None for those that NumPy's own are."""
    return KNOWN.get(_OF_NUMPY.get(dtype.type, float))


def truth(value: Any) -> Bool:
    """A truth value that counts as a number."""
    return KNOWN[Bool][1 if value else 0]


def number(value: Any) -> Any:
    """A number with the type that Numba gives it, and these operators; all else as it is."""
    kind = value.__class__
    if kind is int:
        return INT64[value] if -(2**63) <= value < 2**63 else KNOWN[UInt64][value]
    if kind in _OF_NUMPY:
        return KNOWN[_OF_NUMPY[kind]][int(value)]
    if kind is float:
        return float64(value)
    return tuple(map(number, value)) if kind is tuple else value


def to_int64(value: Any) -> np.int64:
    """The lower 64 bits of a whole number."""
    value = int(value) & _MASK
    return INT64[value - (value >> 63 << 64)]


def to_uint64(value: Any) -> np.uint64:
    """The same without a sign."""
    return uint64(int(value) & _MASK)
