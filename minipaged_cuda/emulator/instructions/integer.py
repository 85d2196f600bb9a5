"""Integer arithmetic: what each opcode computes from arrays of its type; touches no memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import Frame, Operation, write
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

_WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


def _binary(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    return f.elementwise(i, compute, [i.type] * 2, i.type)


def _unary(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    return f.elementwise(i, compute, [i.type], i.type)


def _add(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    if i.name.endswith("c") or i.has("cc"):
        return _with_carry(i, f)
    return _binary(_clipped(compute, i.type) if i.has("sat") else compute, i, f)


def _clipped(compute: Callable[..., np.ndarray], type: str) -> Callable[..., np.ndarray]:
    """With 32-bit operands, saturating."""
    bounds = np.iinfo(DTYPES[type])
    wide = np.int64

    def clipped(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        exact = compute(a.astype(wide), b.astype(wide))
        return np.clip(exact, bounds.min, bounds.max).astype(DTYPES[type])

    return clipped


def _with_carry(i: Instruction, f: Frame) -> Operation:
    """`add.cc`, `addc`, `sub.cc`, `subc`, `mad.lo.cc`, `madc.hi` ...: sums that overflow."""
    unsigned = "u" + i.type[1:]
    signs = i.type if i.name[:3] == "mad" else unsigned
    inputs = [f.source(o, signs) for o in i.operands[1:]]
    target = f.target(i.operands[0], unsigned)
    carries_in, minus = i.name.endswith("c"), i.name.startswith("sub")
    dtype = DTYPES[unsigned]

    def run(lanes: Lanes) -> None:
        a, b = inputs[0], inputs[1]
        if i.name[:3] == "mad":
            a, b = _product(a, b, i.has("hi")).view(dtype), inputs[2].view(dtype)
        carry = f.carry.astype(dtype) if carries_in else dtype.type(0)
        if minus:
            total = a - b - carry
            overflow = (a < b) | ((a == b) & (carry > 0))
        else:
            total = a + b + carry
            overflow = (total < a) | ((total == a) & (carry > 0) & (b != 0))
        write(target, total, lanes)
        if i.has("cc"):
            write(f.carry, overflow, lanes)

    return run


def _product(a: np.ndarray, b: np.ndarray, high: bool) -> np.ndarray:
    if not high:
        return a * b
    if a.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * a.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> 8 * a.itemsize).astype(a.dtype)
    return _high64(a, b)


def _high64(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of a 128-bit product, by 32-bit digits."""
    low = np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> np.uint64(32), y & low, y >> np.uint64(32)
    middle = x1 * y0 + (x0 * y0 >> np.uint64(32))
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    if a.dtype == np.int64:  # a negative factor was taken for itself plus 2^64
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def _multiply(i: Instruction, f: Frame) -> Operation:
    """`mul` and `mad`, `.lo`, `.hi`, `.wide`, 24-bit forms too."""
    if i.name.endswith("c") or i.has("cc"):
        return _with_carry(i, f)
    wide = i.has("wide")
    result = _WIDER[i.type] if wide else i.type
    dtype = DTYPES[result]

    def compute(a: np.ndarray, b: np.ndarray, *c: np.ndarray) -> np.ndarray:
        if wide:
            product = np.multiply(a, b, dtype=dtype)
        else:
            product = _product(a, b, i.has("hi"))
        return product + c[0] if c else product

    return f.elementwise(i, compute, [i.type, i.type, result], result)


def _divide(remainder: bool, i: Instruction, f: Frame) -> Operation:
    """Towards zero; by zero, all bits of the quotient are 1 and the remainder is the dividend."""

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        divisor = np.where(b == 0, b.dtype.type(1), b)
        rest = np.fmod(a, divisor)
        quotient = (a - rest) // divisor
        if remainder:
            return np.where(b == 0, a, rest)
        return np.where(b == 0, ~b.dtype.type(0), quotient)

    return _binary(compute, i, f)


def _absolute_difference(i: Instruction, f: Frame) -> Operation:
    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return c + np.where(a > b, a - b, b - a)

    return f.elementwise(i, compute, [i.type] * 3, i.type)


def _dot4(i: Instruction, f: Frame) -> Operation:
    """`dp4a`: four products of bytes, and a sum."""
    kinds = [np.dtype(np.int8 if part == "s32" else np.uint8) for part in i.opcode[1:3]]

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        x, y = (v.reshape(-1, 1).view(kind).astype(np.int64) for v, kind in zip((a, b), kinds))
        return ((x * y).sum(axis=1) + c).astype(np.uint32)

    return f.elementwise(i, compute, ["b32"] * 3, "b32")


def _min_max(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    if i.type[-2:] == "x2":
        raise UnknownInstruction(f"PTX line {i.line}: {i.text} works on pairs of integers")
    return _binary(compute, i, f)


INTEGER: dict[str, Callable[[Instruction, Frame], Operation]] = {
    "add": partial(_add, np.add),
    "addc": partial(_add, np.add),
    "sub": partial(_add, np.subtract),
    "subc": partial(_add, np.subtract),
    "mul": _multiply,
    "mad": _multiply,
    "madc": _multiply,
    "mul24": _multiply,
    "mad24": _multiply,
    "div": partial(_divide, False),
    "rem": partial(_divide, True),
    "min": partial(_min_max, np.minimum),
    "max": partial(_min_max, np.maximum),
    "neg": partial(_unary, np.negative),
    "abs": partial(_unary, np.abs),
    "sad": _absolute_difference,
    "dp4a": _dot4,
}
