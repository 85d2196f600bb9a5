"""Floating point that numpy lacks: one rounding for three operands, directions, narrow formats.

Sums are computed with their exact error, and then rounded to odd: an inexact result takes the
neighbour whose last bit is 1. A later rounding to a narrower format then cannot be misled by a tie
that the first rounding made (Boldo and Melquiond 2008).
"""

from __future__ import annotations

import numpy as np


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str = "rn") -> np.ndarray:
    """The sum a * b + c in the format of all three, rounded once.

    float64 products beyond 2^996, where splitting overflows, are rounded twice.
    """
    if a.dtype == np.float64:
        return _fma64(a, b, c, mode)
    product = np.multiply(a, b, dtype=np.float64)  # exact: 2 * 24 bits
    total = product + c
    if mode == "rn" and a.dtype == np.float32 and not _may_mislead(total):
        return total.astype(np.float32)
    return narrow(_to_odd(*_exact_sum(product, c.astype(np.float64))), a.dtype, mode)


def add(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """The sum rounded in that direction."""
    return directed(*_exact_sum(a, b), mode)


def multiply(a: np.ndarray, b: np.ndarray, mode: str) -> np.ndarray:
    """The product rounded in that direction."""
    if a.dtype == np.float64:
        return directed(*_exact_product(a, b), mode)
    return narrow(np.multiply(a, b, dtype=np.float64), a.dtype, mode)


_NO_NUMBER = np.uint16(0x7FFF).view(np.float16)


def narrow(x: np.ndarray, dtype: np.dtype, mode: str) -> np.ndarray:
    """A float64 in a narrower format; a float16 that is no number has the one pattern 0x7fff."""
    value = x.astype(dtype)
    if dtype == np.float16:
        value[np.isnan(x)] = _NO_NUMBER
    return value if mode == "rn" else directed(value, x - value, mode)


def directed(value: np.ndarray, error: np.ndarray, mode: str) -> np.ndarray:
    """The nearest value, whose error is known, as rounding towards 0, -inf or +inf gives it."""
    if mode == "rn":
        return value
    down = {"rz": value > 0, "rm": True, "rp": False}[mode]
    up = {"rz": value < 0, "rm": False, "rp": True}[mode]
    below, above = value.dtype.type(-np.inf), value.dtype.type(np.inf)
    value = np.where((error < 0) & down, np.nextafter(value, below), value)
    return np.where((error > 0) & up, np.nextafter(value, above), value)


def _may_mislead(total: np.ndarray) -> bool:
    """Whether a float64 looks like a tie between two float32, or is tiny, where ties differ."""
    tie = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == 0x10000000
    tiny = (np.abs(total) < 2.0**-125) & (total != 0)
    return bool((tie | tiny).any())


def _fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    high, low = _exact_product(a, b)
    middle, tail = _exact_sum(c, low)
    top, rest = _exact_sum(high, middle)
    value, error = _exact_sum(top, _to_odd(*_exact_sum(tail, rest)))
    plain = a * b + c
    return np.where(np.isfinite(value), directed(value, error, mode), plain)


def _exact_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and what rounding took away."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _exact_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded product of float64 and what rounding took away."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def _to_odd(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The sum of a value and its error, rounded to odd."""
    bits = np.ascontiguousarray(value).view(np.int64)
    inexact = np.isfinite(value) & np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (value > 0)
    return (bits + np.where(inexact, np.where(away, 1, -1), 0)).view(np.float64)


def flush(x: np.ndarray) -> np.ndarray:
    """Subnormal float32 as zeros of their sign; other formats keep theirs."""
    return x * (np.abs(x) >= np.float32(2.0**-126)) if x.dtype == np.float32 else x


def saturate(x: np.ndarray) -> np.ndarray:
    """Between 0 and 1; NaN is 0."""
    return np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1))


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """bfloat16, uint16, as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float32 or float64 as bfloat16, uint16: to nearest even, or towards 0."""
    if x.dtype == np.float64:
        near = x.astype(np.float32)
        odd = _odd_float32(near, x - near)
    else:
        odd = np.ascontiguousarray(x, np.float32)
    bits = odd.view(np.uint32)
    if mode == "rn":
        bits = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
    return np.where(np.isnan(x), 0x7FFF, bits >> np.uint32(16)).astype(np.uint16)


def _odd_float32(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(value).view(np.int32)
    inexact = np.isfinite(value) & (error != 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (value > 0), 1, -1).astype(np.int32)
    return (bits + np.where(inexact, step, np.int32(0))).view(np.float32)


def _fp8_values(mantissa_bits: int, bias: int) -> np.ndarray:
    """[128] float64: the values of an eight-bit format's patterns without sign."""
    pattern = np.arange(128)
    exponent, mantissa = pattern >> mantissa_bits, pattern & (1 << mantissa_bits) - 1
    fraction = mantissa / (1 << mantissa_bits)
    return np.where(
        exponent == 0,
        fraction * 2.0 ** (1 - bias),
        (1 + fraction) * 2.0 ** (exponent.astype(float) - bias),
    )


_FINITE = {"e4m3x2": _fp8_values(3, 7)[:0x7F], "e5m2x2": _fp8_values(2, 15)[:0x7C]}


def to_fp8(x: np.ndarray, form: str) -> np.ndarray:
    """A float as the nearest finite pattern (uint8) of `e4m3x2` or `e5m2x2`; NaN is 0x7f."""
    values = _FINITE[form]
    middles, size = (values[1:] + values[:-1]) / 2, np.abs(x.astype(np.float64))
    low, high = (np.searchsorted(middles, size, side=side) for side in ("left", "right"))
    nearest = np.where(low % 2 == 0, low, high)  # they differ at ties only
    signed = nearest | np.where(np.signbit(x), 0x80, 0)
    return np.where(np.isnan(x), 0x7F, signed).astype(np.uint8)


def from_fp8(bits: np.ndarray, form: str) -> np.ndarray:
    """Patterns (uint8) as float16, which holds all their values."""
    if form == "e5m2x2":
        return (bits.astype(np.uint16) << np.uint16(8)).view(np.float16)
    values = np.append(_FINITE[form], np.nan).astype(np.float16)
    return np.where(bits & 0x80, -values[bits & 0x7F], values[bits & 0x7F])
