"""Numbers as a GPU has them: types that cast by wrapping, and the functions on single numbers."""

from __future__ import annotations

import math as _math
from fractions import Fraction
from typing import Any

import numpy as np

from . import numbers


def cast(value: Any, dtype: np.dtype) -> Any:
    """`value` as a number of `dtype`.

    Integers that do not fit lose their upper bits; a float becomes the nearest integer that there
    is, towards zero, and NaN becomes 0.
    """
    known = numbers.known(dtype)
    if known is None:
        return dtype.type(value)
    if dtype.kind == "b":
        return numbers.truth(value)
    if isinstance(value, (float, np.floating)):
        value = _truncated(value, dtype)
    bits = 8 * dtype.itemsize
    value = int(value) & ((1 << bits) - 1)
    return known[value - (value >> bits - 1 << bits) if dtype.kind == "i" else value]


def _truncated(value: Any, dtype: np.dtype) -> int:
    """What a card's conversion makes of a float: it knows 16, 32 and 64 bits."""
    bits = max(16, 8 * dtype.itemsize)
    low, high = 0, (1 << bits) - 1
    if dtype.kind == "i":
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if value != value:
        return 0
    return high if value >= high else low if value <= low else int(value)


class ScalarType:
    """A type of the kernel's language: call it to cast, or give it where a dtype is asked for."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype(name)  # what np.dtype(self) returns
        known = numbers.known(self.dtype)
        self.known = {} if known is None else known

    def __call__(self, value: Any) -> Any:
        """`value` in this type."""
        if value.__class__ in numbers.WHOLE:
            number = self.known.get(int(value))
            if number is not None:
                return number
        return cast(value, self.dtype)

    def __repr__(self) -> str:
        return self.dtype.name


_NAMES = ["float16", "float32", "float64", "complex64", "complex128"]
_NAMES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = {name: ScalarType(name) for name in _NAMES}
TYPES |= {"boolean": ScalarType("bool"), "bool": ScalarType("bool"), "intp": TYPES["int64"]}
TYPES |= {"uintp": TYPES["uint64"], "bool_": TYPES["boolean"]}
for _kind, _letter in (("float", "f"), ("int", "i"), ("uint", "u")):
    TYPES |= {
        f"{_letter}{size}": TYPES[name]
        for size in (1, 2, 4, 8)
        if (name := f"{_kind}{8 * size}") in TYPES
    }


def __getattr__(name: str) -> ScalarType:
    """`int32` and the like, as attributes of this module: it stands for `numba.types`."""
    try:
        return TYPES[name]
    except KeyError:
        raise AttributeError(f"the simulator has no type {name!r}") from None


def as_dtype(kind: Any) -> np.dtype:
    """The dtype that a kernel means by a Numba type, one of ours, or anything NumPy knows."""
    name = getattr(kind, "name", None)
    return TYPES[name].dtype if isinstance(name, str) and name in TYPES else np.dtype(kind)


# -- the functions of `cuda` on single numbers -----------------------------------------------------


def _bits(value: Any) -> tuple[int, int]:
    """A whole number's bits, and how many there are; a Python integer has 64, as in Numba."""
    width = 8 * getattr(value, "itemsize", 8)
    return int(value) & ((1 << width) - 1), width


def _like(value: Any, result: int) -> Any:
    return cast(result, getattr(value, "dtype", np.dtype(np.int64)))


def popc(value: Any) -> Any:
    """How many bits are 1."""
    return _like(value, _bits(value)[0].bit_count())


def brev(value: Any) -> Any:
    """The bits in reverse order: of a uint64, or else of the lower 32."""
    width = 64 if value.__class__ is numbers.UInt64 else 32
    bits = int(value) & ((1 << width) - 1)
    return cast(int(f"{bits:0{width}b}"[::-1], 2), np.dtype(f"u{width // 8}"))


def clz(value: Any) -> Any:
    """How many bits above the highest 1 are 0."""
    bits, width = _bits(value)
    return _like(value, width - bits.bit_length())


def ffs(value: Any) -> Any:
    """The place of the lowest 1, counted from 1; 0 where there is none."""
    bits, _ = _bits(value)
    return cast((bits & -bits).bit_length(), np.dtype(np.uint32))


def cbrt(value: Any) -> Any:
    """The cube root."""
    return np.cbrt(value if isinstance(value, np.floating) else np.float64(value))


def selp(predicate: Any, a: Any, b: Any) -> Any:
    """`a` where the predicate is true, else `b`."""
    return a if predicate else b


def fma(a: Any, b: Any, c: Any) -> Any:
    """The sum a * b + c, rounded once.

    In float32 the sum is rounded to float64 before, which changes the last bit in rare cases.
    """
    if {x.__class__ for x in (a, b, c)} <= {np.float16, np.float32}:
        return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    if not all(_math.isfinite(x) for x in (a, b, c)):
        return np.float64(a) * np.float64(b) + np.float64(c)
    try:
        return np.float64(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))
    except OverflowError:
        return np.float64(a) * np.float64(b) + np.float64(c)
