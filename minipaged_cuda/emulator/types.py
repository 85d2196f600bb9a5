"""PTX types as numpy sees them, and literals of them; knows no registers.

A register is bits. Types that numpy does not have (pairs of halves, bfloat16, eight-bit floats)
stay bits here, and the instructions that compute with them take them apart.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}

_BITS = {"bf16": 2, "f16x2": 4, "bf16x2": 4, "f32x2": 8, "e4m3x2": 2, "e5m2x2": 2, "tf32": 4}
DTYPES: dict[str, np.dtype[Any]] = (
    {f"{kind}{8 * size}": np.dtype(UNSIGNED[size]) for kind in "ub" for size in UNSIGNED}
    | {f"s{8 * size}": np.dtype(SIGNED[size]) for size in SIGNED}
    | {name: np.dtype(UNSIGNED[size]) for name, size in _BITS.items()}
    | {"f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
    | {"pred": np.dtype(np.bool_)}
)


def literal(text: str, dtype: np.dtype) -> np.ndarray:
    """A number as PTX writes it: `12`, `-0x1fU`, `0f3F800000` (the bits of 1.0), `2.5`.

    Returns an array of one element, which meets registers of any number of threads.
    """
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("-")
    if body[:2] in ("0f", "0F"):
        return _float(sign * struct.unpack(">f", bytes.fromhex(body[2:]))[0], np.float32, dtype)
    if body[:2] in ("0d", "0D"):
        return _float(sign * struct.unpack(">d", bytes.fromhex(body[2:]))[0], np.float64, dtype)
    if "." in body:
        return _float(sign * float(body), np.float64, dtype)
    value = sign * integer(body)
    if dtype.kind in "fb":
        return np.array([value], dtype)
    bits = 8 * dtype.itemsize
    return np.array([value % (1 << bits)], UNSIGNED[dtype.itemsize]).view(dtype)


def integer(text: str) -> int:
    """An integer literal without sign, in base 2, 8, 10 or 16."""
    digits = text.rstrip("U")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    return int(digits, 8) if octal else int(digits, 0)


def _float(value: float, own: type, dtype: np.dtype) -> np.ndarray:
    """The value where a float is wanted, its bits where bits are."""
    if dtype.kind == "f":
        return np.array([value], dtype)
    return np.array([value], own).view(UNSIGNED[np.dtype(own).itemsize]).astype(dtype)
