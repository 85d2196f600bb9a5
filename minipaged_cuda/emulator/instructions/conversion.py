"""`cvt`: from any type to any other, and the packing of two values into one register."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minipaged_cuda.emulator import rounding
from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import Frame, Operation, copy
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FP8 = ("e4m3x2", "e5m2x2")


def convert(i: Instruction, f: Frame) -> Operation:
    """The conversion that the last two parts of the opcode name."""
    to, source = i.opcode[-2:]
    if source in _FP8:
        return f.elementwise(i, lambda pair: _unpack_fp8(pair, source), [source], to)
    if to in _FP8 or to in ("f16x2", "bf16x2"):
        return _packed(to, source, i, f)
    if to == "tf32":
        return f.elementwise(i, _to_tf32, ["f32"], "b32")
    return f.elementwise(i, _plain(to, source, i), [source], to)


def _packed(to: str, source: str, i: Instruction, f: Frame) -> Operation:
    """Two float32, the first above, or a pair of float16 already packed."""
    positive = i.has("relu")

    def pack(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        if positive:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        if to in _FP8:
            low, high = (rounding.to_fp8(x, to).astype(np.uint16) for x in (low, high))
            return low | high << np.uint16(8)
        low, high = (_half_bits(x, to, i).astype(np.uint32) for x in (low, high))
        return low | high << np.uint32(16)

    if source == "f16x2":
        return f.elementwise(i, lambda pair: pack(*_halves(pair)), ["f16x2"], to)
    return f.elementwise(i, lambda high, low: pack(low, high), ["f32", "f32"], to)


def _half_bits(x: np.ndarray, to: str, i: Instruction) -> np.ndarray:
    mode = "rz" if i.has("rz") else "rn"
    if to == "bf16x2":
        return rounding.to_bf16(x, mode)
    return rounding.narrow(x.astype(np.float64), np.dtype(np.float16), mode).view(np.uint16)


def _halves(pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = pair.reshape(-1, 1).view(np.float16)
    return both[:, 0], both[:, 1]


def _unpack_fp8(pair: np.ndarray, form: str) -> np.ndarray:
    bytes_ = np.ascontiguousarray(pair).reshape(-1, 1).view(np.uint8)
    return rounding.from_fp8(bytes_, form).view(np.uint32)[:, 0]


def _to_tf32(x: np.ndarray) -> np.ndarray:
    """10 bits of mantissa, ties away from zero."""
    bits = x.view(np.uint32) + np.uint32(0x1000)
    return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), bits & np.uint32(0xFFFFE000))


def _plain(to: str, source: str, i: Instruction) -> Callable[[np.ndarray], np.ndarray]:
    """Between single values."""
    from_float, to_float = source in _FLOATS, to in _FLOATS
    if from_float and to_float:
        return _float_to_float(to, source, i)
    if from_float:
        return _float_to_integer(to, source, i)
    if to_float:
        return _integer_to_float(to, source, i)
    return _integer_to_integer(to, i)


_FLOATS = ("f16", "bf16", "f32", "f64")


def _float_to_float(to: str, source: str, i: Instruction) -> Callable[[np.ndarray], np.ndarray]:
    whole = next((_TO_INTEGER[part] for part in i.opcode if part in _TO_INTEGER), copy)
    mode = next((part for part in i.opcode if part in ("rz", "rm", "rp")), "rn")

    def compute(x: np.ndarray) -> np.ndarray:
        x = rounding.from_bf16(x) if source == "bf16" else x
        x = whole(rounding.flush(x) if i.has("ftz") else x)
        x = rounding.saturate(x) if i.has("sat") else x
        x = np.maximum(x, x.dtype.type(0)) if i.has("relu") else x
        if to == "bf16":
            return rounding.to_bf16(x, mode)
        x = x if mode == "rn" else x.astype(np.float64)
        wide = rounding.narrow(x, DTYPES[to], mode)
        return rounding.flush(wide) if i.has("ftz") else wide

    return compute


def _float_to_integer(to: str, source: str, i: Instruction) -> Callable[[np.ndarray], np.ndarray]:
    """What does not fit becomes the nearest that does; NaN becomes 0."""
    whole = next(_TO_INTEGER[part] for part in i.opcode if part in _TO_INTEGER)
    limits = np.iinfo(DTYPES[to])
    below, above = float(limits.min), float(limits.max + 1)  # powers of two, exact

    def compute(x: np.ndarray) -> np.ndarray:
        x = rounding.from_bf16(x) if source == "bf16" else x
        x = whole((rounding.flush(x) if i.has("ftz") else x).astype(np.float64))
        inside = (x >= below) & (x < above)
        result = np.where(inside, x, 0).astype(DTYPES[to])
        result[x >= above] = limits.max
        result[x < below] = limits.min
        return result

    return compute


def _integer_to_float(to: str, source: str, i: Instruction) -> Callable[[np.ndarray], np.ndarray]:
    mode = next((part for part in i.opcode if part in ("rz", "rm", "rp")), "rn")
    wide = DTYPES[source].itemsize == 8
    if mode != "rn" and wide:
        raise UnknownInstruction(
            f"PTX line {i.line}: {i.text}: 64 bits are rounded to nearest only"
        )

    def compute(x: np.ndarray) -> np.ndarray:
        if to == "bf16":
            return rounding.to_bf16(x.astype(np.float64), mode)
        if wide and to != "f16":
            return x.astype(DTYPES[to])
        return rounding.narrow(x.astype(np.float64), DTYPES[to], mode)

    return compute


def _integer_to_integer(to: str, i: Instruction) -> Callable[[np.ndarray], np.ndarray]:
    dtype = DTYPES[to]
    limits = np.iinfo(dtype)

    def compute(x: np.ndarray) -> np.ndarray:
        if i.has("sat"):
            own = np.iinfo(x.dtype)
            x = np.clip(x, max(limits.min, own.min), min(limits.max, own.max))
        return x.astype(dtype)

    return compute
