"""Atomic operations: threads that meet at one address take turns, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minipaged_cuda.emulator.access import Access
from minipaged_cuda.emulator.errors import UnknownInstruction
from minipaged_cuda.emulator.frame import Frame, Operation, of_threads
from minipaged_cuda.emulator.instructions.floating import TYPES, on_numbers
from minipaged_cuda.emulator.instructions.movement import space_of, vector_length
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.parser import Instruction
from minipaged_cuda.emulator.types import DTYPES

_COMBINE: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "exch": lambda old, b: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}


def _atomic(i: Instruction, f: Frame) -> Operation:
    """`atom`, which returns what was there before, and `red`, which does not."""
    name = next((part for part in i.opcode if part in _COMBINE), None)
    if name is None or vector_length(i) > 1:
        raise UnknownInstruction(f"PTX line {i.line}: {i.text} is none of {', '.join(_COMBINE)}")
    combine = on_numbers(_COMBINE[name], i.type) if i.type in TYPES else _COMBINE[name]
    operands = i.operands if i.name == "atom" else ("_", *i.operands)
    target = f.target(operands[0], i.type)
    address = f.address(operands[1], space_of(i))
    inputs = [f.source(operand, i.type) for operand in operands[2 : 4 if name == "cas" else 3]]
    dtype = DTYPES[i.type]
    access = Access(f.cta, i, "atomic", dtype.itemsize)

    def run(lanes: Lanes) -> None:
        f.cta.order.atomic()
        for buffer, places, part in access(address(lanes), lanes):
            memory, rows = buffer.view(dtype, 1)[:, 0], places // dtype.itemsize
            old = np.empty(len(rows), dtype)
            values = [of_threads(x, part.threads) for x in inputs]
            for turn in _turns(rows):
                old[turn] = memory[rows[turn]]
                memory[rows[turn]] = combine(old[turn], *(x[turn] for x in values))
            if target is not None:
                target[part.threads] = old

    return run


def _turns(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Indices of accesses, so that no address comes twice in a turn, and each in its order."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    length = np.diff(np.append(first, len(rows)))
    rank = np.arange(len(rows)) - np.repeat(first, length)
    for turn in range(int(length.max())):
        yield order[rank == turn]


ATOMICS: dict[str, Callable[[Instruction, Frame], Operation]] = {"atom": _atomic, "red": _atomic}
