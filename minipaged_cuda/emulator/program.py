"""A kernel decoded for CTAs of one shape: basic blocks of operations, and how each one ends.

A block ends where control may go elsewhere, and before a label or an instruction of the whole warp,
so that threads can only meet at the beginning of a block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from minipaged_cuda.emulator.cta import Cta, Shape
from minipaged_cuda.emulator.errors import InvalidProgram
from minipaged_cuda.emulator.frame import Frame, Operation
from minipaged_cuda.emulator.instructions import decode
from minipaged_cuda.emulator.instructions.warp import Gate
from minipaged_cuda.emulator.parser import Function, Instruction

_ENDINGS = {"bra", "brx", "ret", "exit", "call", "trap", "barrier", "brkpt"}
_COLLECTIVES = {"shfl", "vote", "match", "redux", "mma", "ldmatrix", "elect"}


@dataclass
class Block:
    """Instructions that the same threads execute one after another.

    Attributes:
        gate: Says which threads the first instruction has to wait for.
        ending: The instruction that decides who goes where; None goes on to the next block.
        executed: How many warps ran through, over the whole launch.
    """

    instructions: list[Instruction]
    operations: list[Operation]
    gate: Gate | None
    ending: Instruction | None
    executed: int = 0


@dataclass
class Code:
    """One function, decoded."""

    frame: Frame
    blocks: list[Block] = field(default_factory=list)
    targets: dict[str, int] = field(default_factory=dict)  # label to block


class Program:
    """A kernel and the functions it calls.

    Raises:
        UnknownInstruction: One of them cannot be run.
        InvalidProgram: One of them branches to where nothing is.
    """

    def __init__(self, entry: Function, threads: Shape, dynamic_shared: int):
        self.cta = Cta(entry.module, entry, threads, dynamic_shared)
        self.codes: dict[str, Code] = {}
        self.entry = self._decode(entry)

    def _decode(self, function: Function) -> Code:
        code = self.codes[function.name] = Code(Frame(self.cta, function))
        _check_labels(function)
        starts = _starts(function)
        for start, end in pairwise(starts):
            code.blocks.append(_block(function.instructions[start:end], code.frame))
        places = {start: number for number, start in enumerate(starts)}
        code.targets = {label: places[at] for label, at in function.labels.items()}
        for callee in _callees(function):
            if callee in function.module.functions and callee not in self.codes:
                self._decode(function.module.functions[callee])
        return code


def _check_labels(function: Function) -> None:
    for i in function.instructions:
        missing: set[str] = set()
        if i.name == "bra":
            missing = {i.operands[0]} - function.labels.keys()
        elif i.name == "brx":
            table = function.tables.get(i.operands[1])
            missing = {i.operands[1]} if table is None else set(table) - function.labels.keys()
        if missing:
            what = f"{function.name} has no label {min(missing)!r}"
            raise InvalidProgram(f"PTX line {i.line}: {i.text}: {what}")


def is_barrier(i: Instruction) -> bool:
    """Whether the whole CTA meets there."""
    return i.name == "barrier" or (i.name == "bar" and not i.has("warp"))


def _ends(i: Instruction) -> bool:
    return i.name in _ENDINGS or is_barrier(i)


def _is_collective(i: Instruction) -> bool:
    return i.name in _COLLECTIVES or (i.name == "bar" and i.has("warp"))


def _starts(function: Function) -> list[int]:
    """Where blocks begin; the end of the function is the last one."""
    code, length = function.instructions, len(function.instructions)
    starts = {0, length} | set(function.labels.values())
    starts |= {n + 1 for n, i in enumerate(code) if _ends(i)}
    starts |= {n for n, i in enumerate(code) if _is_collective(i)}
    return sorted(starts)


def _block(instructions: list[Instruction], frame: Frame) -> Block:
    ending = instructions[-1] if _ends(instructions[-1]) else None
    body = instructions[:-1] if ending else instructions
    first = instructions[0]
    gate = Gate(frame, first) if _is_collective(first) else None
    operations = [decode(i, frame) for i in body]
    return Block(instructions, operations, gate, ending)


def _callees(function: Function) -> list[str]:
    return [callee(i)[1] for i in function.instructions if i.name == "call"]


def callee(i: Instruction) -> tuple[list[str], str, list[str]]:
    """The results, the name and the arguments of `call (r), name, (a, b)`."""
    operands = list(i.operands)
    results = operands.pop(0) if operands[0].startswith("(") else "()"
    name = operands.pop(0)
    arguments = operands.pop(0) if operands else "()"
    return _names(results), name, _names(arguments)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.strip("()").split(",") if part.strip()]
