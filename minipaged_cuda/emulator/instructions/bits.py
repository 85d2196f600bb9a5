"""Integers as bits: logic, shifts, fields and counts of them; touches no memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from minipaged_cuda.emulator.frame import Frame, Operation, assign
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES


def _binary(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    return f.elementwise(i, compute, [i.type] * 2, i.type)


def _unary(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    return f.elementwise(i, compute, [i.type], i.type)


def _shift(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    """Shifts by the width and more leave nothing but the sign."""
    dtype = DTYPES[i.type]
    last = 8 * dtype.itemsize - 1
    signed = dtype.kind == "i" and i.name == "shr"

    def shift(a: np.ndarray, by: np.ndarray) -> np.ndarray:
        shifted = compute(a, np.minimum(by, last).astype(dtype))
        return shifted if signed else np.where(by > last, dtype.type(0), shifted)

    amount = f.source(i.operands[2], "u32")
    if amount.size == 1 and amount[0] <= last and i.operands[2] not in f.cta.special:
        inputs = [f.source(i.operands[1], i.type), amount.astype(dtype)]
        return assign(compute, inputs, f.target(i.operands[0], i.type))
    return f.elementwise(i, shift, [i.type, "u32"], i.type)


def _funnel(i: Instruction, f: Frame) -> Operation:
    """`shf`: 32 bits out of a pair of registers."""

    def compute(low: np.ndarray, high: np.ndarray, by: np.ndarray) -> np.ndarray:
        by = by & 31 if i.has("wrap") else np.minimum(by, 32)
        pair = high.astype(np.uint64) << np.uint64(32) | low
        if i.has("l"):
            return ((pair << by.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
        return (pair >> by.astype(np.uint64)).astype(np.uint32)

    return f.elementwise(i, compute, ["b32", "b32", "u32"], "b32")


def _logic3(i: Instruction, f: Frame) -> Operation:
    """`lop3`: bit n of the table is the result for the bits n = 4a + 2b + c."""
    table = int(f.source(i.operands[4], "u32")[0])

    def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        result = np.zeros_like(a | b | c)
        for n in range(8):
            if table >> n & 1:
                result |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
        return result

    return f.elementwise(i, compute, ["b32"] * 3, "b32")


def _extract(i: Instruction, f: Frame) -> Operation:
    """`bfe`: a field of bits; beyond the top there are zeros, or copies of the sign."""
    bits = 8 * DTYPES[i.type].itemsize
    unsigned = np.dtype(f"u{bits // 8}")
    signed = DTYPES[i.type].kind == "i"

    def compute(a: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        start, length = start & 255, length & 255
        shifted = _lower(a, start, bits)
        field = shifted.view(unsigned) & _ones(length, bits, unsigned)
        top = np.minimum(start.astype(np.int64) + length - 1, bits - 1).clip(0)
        sign = (a.view(unsigned) >> top.astype(unsigned) & unsigned.type(1)) & (length > 0)
        fill = ~_ones(length, bits, unsigned) * sign if signed else unsigned.type(0)
        return (field | fill).view(a.dtype)

    return f.elementwise(i, compute, [i.type, "u32", "u32"], i.type)


def _lower(a: np.ndarray, by: np.ndarray, bits: int) -> np.ndarray:
    shifted = a >> np.minimum(by, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(by < bits, shifted, a.dtype.type(0))


def _ones(length: np.ndarray, bits: int, dtype: np.dtype) -> np.ndarray:
    """That many low bits set."""
    partial_mask = (dtype.type(1) << np.minimum(length, bits - 1).astype(dtype)) - dtype.type(1)
    return np.where(length >= bits, ~dtype.type(0), partial_mask)


def _insert(i: Instruction, f: Frame) -> Operation:
    """`bfi`: the low bits of a in place of some of b's."""
    dtype = DTYPES[i.type]
    bits = 8 * dtype.itemsize

    def compute(a: np.ndarray, b: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        start, length = start & 255, length & 255
        by = np.minimum(start, bits - 1).astype(dtype)
        mask = np.where(start < bits, _ones(length, bits, dtype) << by, dtype.type(0))
        return (a << by & mask) | (b & ~mask)

    return f.elementwise(i, compute, [i.type, i.type, "u32", "u32"], i.type)


def _reverse(a: np.ndarray) -> np.ndarray:
    for step, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        one, keep = a.dtype.type(step), a.dtype.type(mask & (1 << 8 * a.itemsize) - 1)
        a = (a & keep) << one | (a >> one & keep)
    return a.byteswap()


def _highest(a: np.ndarray) -> np.ndarray:
    """The place of the highest bit that is set, -1 if none is."""
    if a.itemsize == 8:
        low, high = (_highest(a.reshape(-1, 1).view(np.uint32)[:, half]) for half in (0, 1))
        return np.where(high >= 0, high + 32, low)
    return np.frexp(a.astype(np.float64))[1].astype(np.int64) - 1


_BITS_OF_BYTE = np.array([n.bit_count() for n in range(256)], np.uint32)


def _population(a: np.ndarray) -> np.ndarray:
    bytes_ = np.ascontiguousarray(a).reshape(-1, 1).view(np.uint8)
    return _BITS_OF_BYTE[bytes_].sum(axis=1, dtype=np.uint32)


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    return (8 * a.itemsize - 1 - _highest(a)).astype(np.uint32)


def _count(compute: Callable[..., np.ndarray], i: Instruction, f: Frame) -> Operation:
    return f.elementwise(i, compute, [i.type], "u32")


def _find(i: Instruction, f: Frame) -> Operation:
    """`bfind`: the highest bit that differs from the sign."""

    def compute(a: np.ndarray) -> np.ndarray:
        place = _highest(np.where(a < 0, ~a, a).view(f"u{a.itemsize}"))
        if i.has("shiftamt"):
            place = np.where(place < 0, place, 8 * a.itemsize - 1 - place)
        return place.astype(np.int32).view(np.uint32)

    return f.elementwise(i, compute, [i.type], "u32")


_SELECTORS = {  # which of the eight bytes each result byte is, by the low bits of the selector
    "f4e": [(k, k + 1, k + 2, k + 3) for k in range(4)],
    "b4e": [(k, (k - 1) % 8, (k - 2) % 8, (k - 3) % 8) for k in range(4)],
    "rc8": [(k, k, k, k) for k in range(4)],
    "ecl": [tuple(max(k, j) for j in range(4)) for k in range(4)],
    "ecr": [tuple(min(k, j) for j in range(4)) for k in range(4)],
    "rc16": [(k % 2 * 2, k % 2 * 2 + 1) * 2 for k in range(4)],
}
_NIBBLES = np.arange(0, 16, 4, dtype=np.uint32)


def _permute(i: Instruction, f: Frame) -> Operation:
    """`prmt`: each byte of the result is one of eight, or eight copies of its sign."""
    mode = i.opcode[2] if len(i.opcode) > 2 else None
    table = np.array(_SELECTORS[mode], np.uint32) if mode else None

    def compute(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
        eight = np.empty((f.cta.width, 2), np.uint32)
        eight[:, 0], eight[:, 1] = a, b
        chosen = selector[:, None]
        picks = table[selector & 3] if table is not None else chosen >> _NIBBLES & np.uint32(15)
        return _bytes_at(eight.view(np.uint8), picks).view(np.uint32)[:, 0]

    return f.elementwise(i, compute, ["b32"] * 3, "b32")


def _bytes_at(eight: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """[n, 4] of the eight bytes [n, 8] of each thread; a pick of 8 and more takes the sign."""
    thread = np.arange(0, eight.size, 8)[:, None]
    bytes_ = eight.ravel()[thread + (picks & np.uint32(7))]
    if picks.max() > 7:
        bytes_ = np.where(picks > 7, (bytes_ >> 7) * np.uint8(255), bytes_)
    return bytes_


def _cnot(a: np.ndarray) -> np.ndarray:
    return (a == 0).astype(a.dtype)


def _not(i: Instruction, f: Frame) -> Operation:
    return _unary(np.logical_not if i.type == "pred" else np.invert, i, f)


BITS: dict[str, Callable[[Instruction, Frame], Operation]] = {
    "and": partial(_binary, np.bitwise_and),
    "or": partial(_binary, np.bitwise_or),
    "xor": partial(_binary, np.bitwise_xor),
    "not": _not,
    "cnot": partial(_unary, _cnot),
    "lop3": _logic3,
    "shl": partial(_shift, np.left_shift),
    "shr": partial(_shift, np.right_shift),
    "shf": _funnel,
    "bfe": _extract,
    "bfi": _insert,
    "bfind": _find,
    "brev": partial(_unary, _reverse),
    "clz": partial(_count, _leading_zeros),
    "popc": partial(_count, _population),
    "prmt": _permute,
}
