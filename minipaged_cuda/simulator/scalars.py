"""Numbers as a GPU has them: types that cast by wrapping, and the functions on single numbers."""

from __future__ import annotations

import math as _math
from fractions import Fraction
from typing import Any

import numpy as np


def cast(value: Any, dtype: np.dtype) -> Any:
    """`value` as a scalar of `dtype`; integers that do not fit lose their upper bits."""
    try:
        return dtype.type(value)
    except OverflowError:
        return np.array(int(value) & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(dtype)[()]


class ScalarType:
    """A type of the kernel's language: call it to cast, or give it where a dtype is asked for."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype(name)  # what np.dtype(self) returns

    def __call__(self, value: Any) -> Any:
        """`value` in this type."""
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
    """An integer's bits, and how many there are; a Python integer has 64, as in Numba."""
    width = 8 * getattr(value, "itemsize", 8)
    return int(value) & ((1 << width) - 1), width


def popc(value: Any) -> int:
    """How many bits are 1."""
    return _bits(value)[0].bit_count()


def brev(value: Any) -> Any:
    """The bits in reverse order."""
    bits, width = _bits(value)
    dtype = getattr(value, "dtype", np.dtype(np.uint64))
    return cast(int(f"{bits:0{width}b}"[::-1], 2), dtype)


def clz(value: Any) -> int:
    """How many bits above the highest 1 are 0."""
    bits, width = _bits(value)
    return width - bits.bit_length()


def ffs(value: Any) -> int:
    """The place of the lowest 1, counted from 1; 0 where there is none."""
    bits, _ = _bits(value)
    return (bits & -bits).bit_length()


def cbrt(value: Any) -> Any:
    """The cube root."""
    return np.cbrt(value)


def selp(predicate: Any, a: Any, b: Any) -> Any:
    """`a` where the predicate is true, else `b`."""
    return a if predicate else b


def fma(a: Any, b: Any, c: Any) -> Any:
    """The sum a * b + c, rounded once.

    In float32 the sum is rounded to float64 before, which changes the last bit in rare cases.
    """
    dtype = np.result_type(a, b, c)
    if dtype != np.float64 or not all(_math.isfinite(x) for x in (a, b, c)):
        return dtype.type(np.float64(a) * np.float64(b) + np.float64(c))
    try:
        return np.float64(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))
    except OverflowError:
        return np.float64(a) * np.float64(b) + np.float64(c)


class Math:
    """`math` as compiled: float32 stays float32, and what has no value is inf or NaN."""

    _NUMPY = (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(np if name in self._NUMPY else _math, name)
