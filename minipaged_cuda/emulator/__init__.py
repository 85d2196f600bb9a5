"""Runs the PTX of a kernel on the CPU, checks every access, and counts them.

    entry = parse(ptx).entry()
    counts = Emulator().launch(entry, grid, num_threads, [out, query, np.float32(0.5)])

It knows PTX and numpy, and nothing of what the kernels are for.
"""

from minipaged_cuda.emulator.arguments import numba_arguments
from minipaged_cuda.emulator.counts import Counts, Traffic
from minipaged_cuda.emulator.emulator import Emulator
from minipaged_cuda.emulator.errors import (
    BarrierDivergence,
    EmulationError,
    InvalidProgram,
    Misaligned,
    NotReadable,
    OutOfBounds,
    Race,
    ReadOnly,
    StepLimit,
    Trap,
    Uninitialised,
    UnknownInstruction,
    WrongMask,
)
from minipaged_cuda.emulator.parser import Function, Instruction, Module, Variable, parse

__all__ = [
    "BarrierDivergence",
    "Counts",
    "EmulationError",
    "Emulator",
    "Function",
    "Instruction",
    "InvalidProgram",
    "Misaligned",
    "Module",
    "NotReadable",
    "OutOfBounds",
    "Race",
    "ReadOnly",
    "StepLimit",
    "Traffic",
    "Trap",
    "Uninitialised",
    "UnknownInstruction",
    "Variable",
    "WrongMask",
    "numba_arguments",
    "parse",
]
