"""Runs CUDA kernels written in Python, thread by thread and with every access checked, on a CPU.

It needs NumPy and greenlet, no GPU and no Numba, and knows nothing of paged attention: any kernel
of `numba.cuda` runs as it is.
"""

from . import cuda
from .arguments import Pointer
from .errors import (
    BarrierDivergence,
    Deadlock,
    Misaligned,
    NotAnIndex,
    NotReadable,
    OutOfBounds,
    Race,
    ReadOnly,
    SharedMemoryLimit,
    ShuffleFromInactive,
    SimulationError,
    Uninitialised,
    WrongMask,
)
from .meetings import collective, current
from .simulator import Simulator
from .trace import Buffer, Trace, Traffic

__all__ = [
    "BarrierDivergence",
    "Buffer",
    "Deadlock",
    "Misaligned",
    "NotAnIndex",
    "NotReadable",
    "OutOfBounds",
    "Pointer",
    "Race",
    "ReadOnly",
    "SharedMemoryLimit",
    "ShuffleFromInactive",
    "SimulationError",
    "Simulator",
    "Trace",
    "Traffic",
    "Uninitialised",
    "WrongMask",
    "collective",
    "cuda",
    "current",
]
