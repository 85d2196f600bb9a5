"""The operands of one function's instructions as arrays over the threads; knows no opcode.

Registers are arrays of bits, one element for each thread. An operand is a view of one in the type
that the instruction asks for, so decoding once binds an instruction to the memory it works on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from minipaged_cuda.emulator.errors import InvalidProgram
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.memory import LOCAL, SHARED, base
from minipaged_cuda.emulator.parser import Function, Instruction, Variable
from minipaged_cuda.emulator.types import DTYPES, SIGNED, UNSIGNED, integer, literal

if TYPE_CHECKING:
    from minipaged_cuda.emulator.cta import Cta

Operation = Callable[[Lanes], None]
_SPACE_BASE = {"shared": base(SHARED), "local": base(LOCAL)}


class Frame:
    """One function's registers and parameters, for all threads of a CTA.

    Attributes:
        carry: The carry flag of each thread.
        parameters: [num_threads or 1, bytes] uint8 for each variable in parameter space.
    """

    def __init__(self, cta: Cta, function: Function):
        self.cta, self.function = cta, function
        width = cta.width
        bits = {type: _register_dtype(type) for type in set(function.registers.values())}
        self.registers = {
            name: np.zeros(width, bits[type]) for name, type in function.registers.items()
        }
        self.carry = np.zeros(width, bool)
        rows = 1 if function.name in cta.module.entries else width
        declared = [v for v in function.variables if v.space == "param"]
        self.parameters = {v.name: _storage(v, rows) for v in function.parameters}
        self.parameters |= {v.name: _storage(v, width) for v in function.results + declared}

    def source(self, text: str, type: str) -> np.ndarray:
        """What an operand holds: one element for each thread, or one for all."""
        dtype = DTYPES[type]
        if text in self.registers:
            return _narrowed(self.registers[text], dtype, text)
        if text in self.cta.special:
            return _narrowed(self.cta.special[text], dtype, text)
        if (address := self.cta.symbol(text, self.function)) is not None:
            return np.array([address], dtype)
        try:
            return literal(text, dtype)
        except (ValueError, KeyError):
            raise InvalidProgram(f"{text!r} in {self.function.name} was never declared") from None

    def sources(self, texts: str, type: str) -> list[np.ndarray]:
        """Each of a vector `{a, b}`, or the one operand."""
        return [self.source(text, type) for text in elements(texts)]

    def target(self, text: str, type: str) -> np.ndarray | None:
        """Where a result goes; None for `_`, which takes everything."""
        if text == "_":
            return None
        dtype = DTYPES[type]
        if text not in self.registers:
            raise InvalidProgram(f"{text!r} in {self.function.name} was never declared")
        register = self.registers[text]
        if register.dtype.kind == "b" or register.itemsize == dtype.itemsize:
            return register.view(dtype)
        if register.itemsize < dtype.itemsize:
            raise InvalidProgram(f"{text} has {8 * register.itemsize} bits, too few for .{type}")
        return register.view((SIGNED if dtype.kind == "i" else UNSIGNED)[register.itemsize])

    def targets(self, texts: str, type: str) -> list[np.ndarray | None]:
        """Each of a vector `{a, b}`, or the one register."""
        return [self.target(text, type) for text in elements(texts)]

    def elementwise(
        self,
        instruction: Instruction,
        compute: Callable[..., np.ndarray],
        types: list[str],
        result: str,
    ) -> Operation:
        """An instruction that computes its first operand from the others, thread by thread."""
        target = self.target(instruction.operands[0], result)
        inputs = [self.source(*pair) for pair in zip(instruction.operands[1:], types)]
        return assign(compute, inputs, target)

    def address(self, text: str, space: str) -> Callable[[Lanes], np.ndarray]:
        """`[register + offset]`, `[symbol + offset]` as generic addresses, int64."""
        name, offset = split_address(text)
        offset += _SPACE_BASE.get(space, 0)
        if name not in self.registers:
            start = int(self.source(name, "u64")[0]) + offset
            return lambda lanes: np.full(len(lanes), start)
        register = self.registers[name]
        if register.itemsize == 8:
            register = register.view(np.int64)
            return lambda lanes: register[lanes.pick] + offset
        return lambda lanes: register[lanes.pick].astype(np.int64) + offset

    def parameter(self, text: str, type: str, count: int) -> list[np.ndarray]:
        """`[name + offset]` in parameter space, as views."""
        name, offset = split_address(text)
        if name not in self.parameters:
            raise InvalidProgram(f"{name!r} in {self.function.name} is no parameter")
        dtype = DTYPES[type]
        first, size = self.parameters[name], dtype.itemsize
        starts = range(offset, offset + count * size, size)
        return [first[:, start : start + size].view(dtype)[:, 0] for start in starts]


def assign(
    compute: Callable[..., np.ndarray], inputs: list[np.ndarray], target: np.ndarray | None
) -> Operation:
    """Compute for all threads, keep it for those that execute: faster than picking them out."""
    if target is None:
        return lambda lanes: None
    if isinstance(compute, np.ufunc):

        def run_ufunc(lanes: Lanes) -> None:
            if lanes.full:
                compute(*inputs, out=target)
            else:
                compute(*inputs, out=target, where=lanes.where)

        if compute.resolve_dtypes((*(x.dtype for x in inputs), None))[-1] == target.dtype:
            return run_ufunc

    def run(lanes: Lanes) -> None:
        write(target, compute(*inputs), lanes)

    return run


def write(target: np.ndarray | None, value: np.ndarray, lanes: Lanes) -> None:
    """Give the threads of `lanes` their elements of a value for all threads."""
    if target is None:
        return
    if lanes.full:
        target[:] = value
    else:
        np.copyto(target, value, where=lanes.where, casting="unsafe")


def of_threads(values: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """An operand's elements for some threads; one for all is repeated."""
    return values[threads] if len(values) > 1 else np.broadcast_to(values, threads.shape)


def copy(value: np.ndarray) -> np.ndarray:
    """The value itself; a name for what `mov` computes."""
    return value


def elements(text: str) -> list[str]:
    """`{a, b}` as its parts."""
    return [part.strip() for part in text.strip("{}").split(",")]


def split_address(text: str) -> tuple[str, int]:
    """`[name+8]` as `("name", 8)`."""
    match = re.fullmatch(r"\[\s*([%$#\w]+)\s*(?:\+?\s*(-?\s*\w+))?\s*\]", text)
    if match is None:
        raise InvalidProgram(f"{text!r} is no address")
    offset = (match[2] or "0").replace(" ", "")
    return match[1], -integer(offset[1:]) if offset[0] == "-" else integer(offset)


def _register_dtype(type: str) -> np.dtype:
    dtype = DTYPES[type]
    return dtype if dtype.kind == "b" else np.dtype(UNSIGNED[max(2, dtype.itemsize)])


def _storage(variable: Variable, rows: int) -> np.ndarray:
    size = max(variable.bytes, DTYPES[variable.type].itemsize)
    return np.zeros((rows, -(-size // 16) * 16), np.uint8)


def _narrowed(register: np.ndarray, dtype: np.dtype, text: str) -> np.ndarray:
    """The low part of a register that is wider than the type, as PTX allows."""
    if "b" in (register.dtype.kind, dtype.kind) or register.itemsize == dtype.itemsize:
        return register.view(dtype)
    if register.itemsize < dtype.itemsize:
        raise InvalidProgram(f"{text} has {8 * register.itemsize} bits, too few for {dtype}")
    return register.view(dtype)[:: register.itemsize // dtype.itemsize]
