"""Launches: arguments become memory, CTAs run one after another, counts come back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from minipaged_cuda.emulator.arguments import Tensor, is_tensor
from minipaged_cuda.emulator.counts import Counts
from minipaged_cuda.emulator.cta import Shape
from minipaged_cuda.emulator.errors import InvalidProgram
from minipaged_cuda.emulator.memory import FIRST, HIDDEN, READABLE, UNWRITTEN, Buffer, map_tensors
from minipaged_cuda.emulator.parser import Function, Variable
from minipaged_cuda.emulator.program import Program
from minipaged_cuda.emulator.scheduler import Execution
from minipaged_cuda.emulator.shadow import Shadow
from minipaged_cuda.emulator.types import DTYPES

MAX_THREADS = 1024  # of a CTA, on every card
_POINTERS = {"u64", "s64", "b64"}
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


@dataclass
class _Marks:
    """What may be read of one storage."""

    tensor: Tensor
    flags: np.ndarray  # [bytes] uint8

    def apply(self, buffer: Buffer) -> None:
        """Let a buffer that holds this storage obey; what kernels store there is remembered."""
        begin = self.tensor.start - buffer.start
        end = begin + self.tensor.bytes
        if begin < 0 or end > buffer.size:
            return
        if buffer.flags is None:
            buffer.flags = np.full(buffer.size, READABLE, np.uint8)
        buffer.flags[begin:end] = self.flags
        self.flags = buffer.flags[begin:end]


class Emulator:
    """Runs kernels on arrays of the CPU, and stops at the first thing that is wrong.

    Args:
        check_races: Look for unordered accesses, and for reads of shared memory nobody wrote.
        max_steps: Instructions that a CTA may execute; more is taken for an endless loop.

    Examples:
        >>> import numpy as np
        >>> from minipaged_cuda.emulator import Emulator, parse
        >>> entry = parse('''
        ... .version 8.0
        ... .target sm_80
        ... .visible .entry double(.param .u64 x)
        ... {
        ...     .reg .b32 %r<3>;
        ...     .reg .b64 %rd<3>;
        ...     ld.param.u64 %rd0, [x];
        ...     mov.u32 %r0, %tid.x;
        ...     mul.wide.u32 %rd1, %r0, 4;
        ...     add.s64 %rd2, %rd0, %rd1;
        ...     ld.global.u32 %r1, [%rd2];
        ...     shl.b32 %r1, %r1, 1;
        ...     st.global.u32 [%rd2], %r1;
        ...     ret;
        ... }''').entry()
        >>> x = np.arange(4, dtype=np.int32)
        >>> counts = Emulator().launch(entry, 1, 4, [x], names=["x"])
        >>> x, counts.warp_instructions, counts.loads["x"]
        (array([0, 2, 4, 6], dtype=int32), 8, Traffic(requests=1, bytes=16, sectors=1))
    """

    def __init__(self, *, check_races: bool = True, max_steps: int = 10_000_000):
        self.check_races, self.max_steps = check_races, max_steps
        self._marks: dict[tuple[int, int], _Marks] = {}  # by the storage's place and size

    def readable(self, tensor: Any, mask: Any) -> None:
        """From now on, loading an element whose mask is false is an error, until it is stored.

        Args:
            tensor: A numpy array or torch tensor; other elements of its storage stay as they are.
            mask: bool, broadcast to the tensor's shape.
        """
        self._mark(tensor, mask, HIDDEN)

    def unwritten(self, tensor: Any) -> None:
        """From now on, loading an element that no kernel has stored yet is an error."""
        self._mark(tensor, np.False_, UNWRITTEN)

    def launch(
        self,
        entry: Function,
        grid: int | Sequence[int],
        num_threads: int | Sequence[int],
        arguments: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        dynamic_shared: int = 0,
        read_only: Iterable[str] = (),
    ) -> Counts:
        """Run a kernel over its whole grid; arrays are changed in place.

        Args:
            entry: `parse(ptx).entry()`.
            grid: CTAs in x, y, z.
            num_threads: Threads of a CTA in x, y, z.
            arguments: One for each parameter: a numpy array or torch tensor for a pointer (the
                address of its first element; all of its storage can be reached from there), or a
                number. Arrays in the same storage share memory.
            names: What messages and counts call them: one for each argument, or for each array.
            dynamic_shared: Bytes of shared memory behind those that the kernel declares.
            read_only: Names of arrays that no thread may store to.

        Raises:
            EmulationError: What the program did wrong, and where; arrays keep what it stored.
        """
        threads = _three(num_threads)
        if math.prod(threads) > MAX_THREADS:
            raise InvalidProgram(
                f"a CTA of {threads} threads: {MAX_THREADS} is the most there can be"
            )
        program = _program(entry, threads, dynamic_shared)
        names = _names(names, arguments)
        tensors = [(n, Tensor.of(a)) for n, a in zip(names, arguments) if is_tensor(a)]
        buffers = map_tensors(tensors, read_only)
        _bind(program, arguments, buffers)
        self._prepare(program, buffers)
        try:
            with np.errstate(all="ignore"):
                self._run(program, _three(grid))
            return _counts(program)
        finally:
            program.cta.end_launch()

    def _run(self, program: Program, grid: Shape) -> None:
        for z, y, x in product(*(range(n) for n in reversed(grid))):
            program.cta.begin((x, y, z), grid)
            execution = Execution(program, program.entry, self.max_steps)
            execution.run(program.cta.sets.everybody)

    def _mark(self, tensor: Any, mask: Any, flag: int) -> None:
        view = Tensor.of(tensor)
        unmarked = _Marks(view, np.full(view.bytes, READABLE, np.uint8))
        marks = self._marks.setdefault((view.start, view.bytes), unmarked)
        chosen, covered = view.spread(mask)
        marks.flags[covered] = np.where(chosen[covered], READABLE, flag)

    def _prepare(self, program: Program, buffers: list[Buffer]) -> None:
        cta = program.cta
        cta.begin_launch({FIRST + slot: buffer for slot, buffer in enumerate(buffers)})
        for code in program.codes.values():
            for block in code.blocks:
                block.executed = 0
        for marks in self._marks.values():
            for buffer in buffers:
                marks.apply(buffer)
        if self.check_races:
            for buffer in (*buffers, cta.shared):
                buffer.shadow = Shadow(buffer.size, everywhere=buffer is not cta.shared)


@lru_cache(maxsize=64)
def _program(entry: Function, threads: Shape, dynamic_shared: int) -> Program:
    """Decoded once for each shape of a CTA; launches use it one after another."""
    return Program(entry, threads, dynamic_shared)


def _three(sizes: int | Sequence[int]) -> Shape:
    x, y, z = (int(n) for n in (*np.atleast_1d(sizes), 1, 1)[:3])
    if min(x, y, z) < 1:
        raise InvalidProgram(f"a grid or CTA of {(x, y, z)}: every size must be 1 or more")
    return x, y, z


def _names(names: Sequence[str] | None, arguments: Sequence[Any]) -> list[str]:
    if names is None:
        return [f"argument {i}" for i in range(len(arguments))]
    if len(names) == len(arguments):
        return list(names)
    arrays = [i for i, argument in enumerate(arguments) if is_tensor(argument)]
    if len(names) != len(arrays):
        raise InvalidProgram(
            f"{len(names)} names for {len(arguments)} arguments, {len(arrays)} of them arrays"
        )
    given = dict(zip(arrays, names))
    return [given.get(i, f"argument {i}") for i in range(len(arguments))]


def _address(argument: Any, buffers: list[Buffer]) -> int:
    tensor = Tensor.of(argument)
    for buffer in buffers:
        inside = tensor.start - buffer.start
        if inside >= 0 and inside + tensor.bytes <= buffer.size:
            return buffer.base + inside + tensor.offset
    raise AssertionError("a tensor that was not mapped")


def _bind(program: Program, values: Sequence[Any], buffers: list[Buffer]) -> None:
    """Write the arguments where `ld.param` finds them."""
    frame = program.entry.frame
    parameters = frame.function.parameters
    if len(values) != len(parameters):
        raise InvalidProgram(
            f"{frame.function.name} has {len(parameters)} parameters, not {len(values)}"
        )
    for parameter, value in zip(parameters, values):
        if is_tensor(value):
            if parameter.type not in _POINTERS:
                raise InvalidProgram(f"{_of(parameter)}: an array was given, not a number")
            value = _address(value, buffers)
        data = np.frombuffer(_scalar(parameter, value), np.uint8)
        frame.parameters[parameter.name][0, : len(data)] = data


def _scalar(parameter: Variable, value: Any) -> bytes:
    dtype = DTYPES[parameter.type]
    if not isinstance(value, _NUMBERS):
        given = f"{value!r} is neither a number nor an array"
        raise InvalidProgram(f"{_of(parameter)}: {given}")
    if isinstance(value, (float, np.floating)):
        if dtype.kind in "iu" and parameter.type[0] != "b":
            raise InvalidProgram(f"{_of(parameter)}, an integer: {value!r} is a float")
        return np.array(value, f"f{dtype.itemsize}").tobytes()
    if dtype.kind == "f":
        return np.array(float(value), dtype).tobytes()
    bits = 8 * dtype.itemsize
    if not -(1 << bits - 1) <= int(value) < 1 << bits:
        raise InvalidProgram(f"{value} does not fit {parameter.name}, a .{parameter.type}")
    return (int(value) % (1 << bits)).to_bytes(dtype.itemsize, "little")


def _of(parameter: Variable) -> str:
    return f"parameter {parameter.name} is a .{parameter.type}"


def _counts(program: Program) -> Counts:
    counts = Counts(barriers=program.cta.barriers)
    for code in program.codes.values():
        for block in code.blocks:
            for instruction in block.instructions if block.executed else ():
                counts.opcodes[".".join(instruction.opcode)] += block.executed
    for buffer in program.cta.buffers.values():
        for kind in ("loads", "stores", "atomics"):
            traffic = getattr(buffer, kind)
            if traffic.requests:
                getattr(counts, kind)[buffer.name] = traffic
    return counts
