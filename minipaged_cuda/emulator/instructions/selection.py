"""Comparisons and choices between two values; knows no arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minipaged_cuda.emulator import rounding
from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import Frame, Operation, assign, write
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]
_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(i: Instruction, type: str) -> Compare:
    """By name; with NaN every ordered comparison is false, and those ending in u are true."""
    name, is_float = i.opcode[1], type in ("f16", "bf16", "f32", "f64")
    if name in _ORDERED:
        compare = _ORDERED[name]
    elif name == "ne":
        compare = (lambda a, b: (a < b) | (a > b)) if is_float else np.not_equal
    elif name == "num":
        compare = lambda a, b: ~(np.isnan(a) | np.isnan(b))  # noqa: E731
    elif name == "nan":
        compare = lambda a, b: np.isnan(a) | np.isnan(b)  # noqa: E731
    elif name == "neu":
        compare = np.not_equal
    elif name[:2] in _ORDERED and name.endswith("u"):
        ordered = _ORDERED[name[:2]]
        compare = lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)  # noqa: E731
    else:
        raise UnknownInstruction(f"PTX line {i.line}: {i.text}: no comparison {name!r}")
    return _prepared(compare, i, type)


def _prepared(compare: Compare, i: Instruction, type: str) -> Compare:
    if type == "bf16":
        return lambda a, b: compare(rounding.from_bf16(a), rounding.from_bf16(b))
    if i.has("ftz"):
        return lambda a, b: compare(rounding.flush(a), rounding.flush(b))
    return compare


def _set_predicate(i: Instruction, f: Frame) -> Operation:
    """`setp`: the comparison, joined with a predicate if there is one, and its contrary."""
    compare = _comparison(i, i.type)
    logic = next((_LOGIC[part] for part in i.opcode[2:] if part in _LOGIC), None)
    names = i.operands[0].split("|")
    targets = [f.target(name.strip(), "pred") for name in names]
    a, b = (f.source(operand, i.type) for operand in i.operands[1:3])
    if logic is None:
        if len(targets) == 1:
            return assign(compare, [a, b], targets[0])
        joined = (lambda x: x), (lambda x: ~x)
    else:
        negated = i.operands[3].startswith("!")
        other = f.source(i.operands[3].lstrip("!"), "pred")
        joined = (
            lambda x: logic(x, other != negated),
            lambda x: logic(~x, other != negated),
        )

    def run(lanes: Lanes) -> None:
        result = compare(a, b)
        values = [join(result) for join, _ in zip(joined, targets)]
        for target, value in zip(targets, values):
            write(target, value, lanes)

    return run


def _set(i: Instruction, f: Frame) -> Operation:
    """`set`: the comparison as 1.0, or as all bits 1."""
    to, type = i.opcode[-2:]
    compare, dtype = _comparison(i, type), DTYPES[to]
    logic = next((_LOGIC[part] for part in i.opcode[2:] if part in _LOGIC), None)
    true = dtype.type(1) if dtype.kind == "f" else ~dtype.type(0)

    def compute(a: np.ndarray, b: np.ndarray, *other: np.ndarray) -> np.ndarray:
        result = logic(compare(a, b), *other) if logic else compare(a, b)
        return np.where(result, true, dtype.type(0))

    return f.elementwise(i, compute, [type, type, "pred"], to)


def _select(i: Instruction, f: Frame) -> Operation:
    return f.elementwise(i, lambda a, b, p: np.where(p, a, b), [i.type, i.type, "pred"], i.type)


def _select_by_sign(i: Instruction, f: Frame) -> Operation:
    to, type = i.opcode[-2:]
    return f.elementwise(i, lambda a, b, c: np.where(c >= 0, a, b), [to, to, type], to)


SELECTION = {
    "setp": _set_predicate,
    "set": _set,
    "selp": _select,
    "slct": _select_by_sign,
}
