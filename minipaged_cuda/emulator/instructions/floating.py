"""Floating-point arithmetic: what each opcode computes from arrays of its type.

Sums, products, `fma`, quotients and roots are rounded as the card rounds them. The approximations
(`ex2.approx`, `rcp.approx`, `sin.approx` ...) are rounded from float64, better than the card's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from minipaged_cuda.emulator import rounding
from minipaged_cuda.emulator.frame import Frame, Operation, assign
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

Compute = Callable[..., np.ndarray]
TYPES = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"}
_PAIRS = {"f16x2": np.float16, "bf16x2": np.uint16, "f32x2": np.float32}
_MODES = ("rz", "rm", "rp")


def on_numbers(compute: Compute, type: str) -> Compute:
    """`compute` of float arrays as a function of what registers of that type hold.

    A pair becomes an axis of length two; bfloat16 is widened before and rounded after.
    """
    if type in ("f16", "f32", "f64"):
        return compute
    part, half = _PAIRS.get(type), type.startswith("bf16")

    def on_bits(*inputs: np.ndarray) -> np.ndarray:
        values = [x.reshape(-1, 1).view(part) for x in inputs] if part else list(inputs)
        result = compute(*(rounding.from_bf16(v) if half else v for v in values))
        if half:
            result = rounding.to_bf16(result)
        return np.ascontiguousarray(result).view(DTYPES[type])[:, 0] if part else result

    return on_bits


def _float(compute: Compute, i: Instruction, f: Frame) -> Operation:
    """With the modifiers that all of them may have."""
    whole = on_numbers(_modified(compute, i), i.type)
    inputs = [f.source(operand, i.type) for operand in i.operands[1:]]
    return assign(whole, inputs, f.target(i.operands[0], i.type))


def _modified(compute: Compute, i: Instruction) -> Compute:
    flush, saturate, positive = i.has("ftz"), i.has("sat"), i.has("relu")
    if not (flush or saturate or positive):
        return compute

    def modified(*inputs: np.ndarray) -> np.ndarray:
        result = compute(*map(rounding.flush, inputs)) if flush else compute(*inputs)
        if positive:
            result = np.maximum(result, result.dtype.type(0))
        if saturate:
            result = rounding.saturate(result)
        return rounding.flush(result) if flush else result

    return modified


def _mode(i: Instruction) -> str:
    return next((mode for mode in _MODES if i.has(mode)), "rn")


def _sum(i: Instruction, f: Frame) -> Operation:
    mode, minus = _mode(i), i.name == "sub"
    if mode == "rn":
        return _float(np.subtract if minus else np.add, i, f)
    return _float(lambda a, b: rounding.add(a, -b if minus else b, mode), i, f)


def _product(i: Instruction, f: Frame) -> Operation:
    mode = _mode(i)
    directed = partial(rounding.multiply, mode=mode)
    return _float(np.multiply if mode == "rn" else directed, i, f)


def _fused(i: Instruction, f: Frame) -> Operation:
    """`fma`, and `mad`, which is the same on floats."""
    if i.type.startswith("bf16"):
        return _float(_fused_wide, i, f)
    return _float(partial(rounding.fma, mode=_mode(i)), i, f)


def _fused_wide(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """bfloat16 in float32: the sum goes to float64, from where one rounding remains."""
    return rounding.fma(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64))


def _extreme(compute: Compute, with_nan: Compute, i: Instruction, f: Frame) -> Operation:
    """Of two or three; NaN is the other operand, unless `.NaN` asks for it."""
    pick = with_nan if i.has("NaN") else compute

    def of_all(first: np.ndarray, *others: np.ndarray) -> np.ndarray:
        for other in others:
            first = pick(first, other)
        return first

    return _float(pick if len(i.operands) == 3 else of_all, i, f)


def _through_float64(compute: Compute, i: Instruction, f: Frame) -> Operation:
    def rounded(*inputs: np.ndarray) -> np.ndarray:
        return compute(*(x.astype(np.float64) for x in inputs)).astype(inputs[0].dtype)

    return _float(rounded, i, f)


def _copysign(i: Instruction, f: Frame) -> Operation:
    return _float(lambda sign, size: np.copysign(size, sign), i, f)


def _classify(i: Instruction, f: Frame) -> Operation:
    """`testp`: what kind of number it is."""
    smallest = np.finfo(DTYPES[i.type]).tiny
    normal: Compute = lambda a: np.isfinite(a) & (np.abs(a) >= smallest)  # noqa: E731
    kinds: dict[str, Compute] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": normal,
        "subnormal": lambda a: (np.abs(a) < smallest) & (a != 0),
    }
    return f.elementwise(i, kinds[i.opcode[1]], [i.type], "pred")


FLOATING: dict[str, Callable[[Instruction, Frame], Operation]] = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "fma": _fused,
    "mad": _fused,
    "div": partial(_float, np.divide),
    "min": partial(_extreme, np.fmin, np.minimum),
    "max": partial(_extreme, np.fmax, np.maximum),
    "abs": partial(_float, np.abs),
    "neg": partial(_float, np.negative),
    "copysign": _copysign,
    "testp": _classify,
    "sqrt": partial(_float, np.sqrt),
    "rcp": partial(_through_float64, np.reciprocal),
    "rsqrt": partial(_through_float64, lambda x: 1 / np.sqrt(x)),
    "ex2": partial(_through_float64, np.exp2),
    "lg2": partial(_through_float64, np.log2),
    "sin": partial(_through_float64, np.sin),
    "cos": partial(_through_float64, np.cos),
    "tanh": partial(_through_float64, np.tanh),
}
