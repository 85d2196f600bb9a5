"""Small kernels, and PTX of them run in the emulator; skips where numba-cuda is missing."""

import importlib
from typing import Any

import pytest

from minipaged_cuda.compile import compile_ptx
from minipaged_cuda.emulator import Emulator, parse
from minipaged_cuda.errors import DeviceError
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.machine_code.tools import find_tool
from minipaged_cuda.primitives import Pointer, cuda, f32, i32, i64
from minipaged_cuda.primitives import pack_f16x2 as pack


def need_numba_cuda() -> None:
    """Skip the calling module where there is no compiler."""
    try:
        importlib.import_module("minipaged_cuda.primitives.numba_cuda")
    except ImportError as error:
        reason = f"needs numba-cuda ({error}): pip install 'minipaged[cuda]'"
        pytest.skip(reason, allow_module_level=True)


def need_tools() -> None:
    """Skip the calling module where there is no assembler or disassembler."""
    for tool in ("ptxas", "nvdisasm", "cuobjdump"):
        try:
            find_tool(tool)
        except DeviceError as error:
            pytest.skip(str(error), allow_module_level=True)


def emulate(specialisation: Specialisation, num_threads: int, arguments: list[Any]) -> Any:
    """Run one CTA of the PTX that numba-cuda makes for sm_90."""
    entry = parse(compile_ptx(specialisation, (9, 0))).entry()
    return Emulator().launch(entry, (1, 1, 1), num_threads, arguments)


# --- kernels -----------------------------------------------------------------------------------

N = WORDS = 0
OFFSET = f32(0.5)


def scaled(x: f32):
    """A helper of a helper."""
    return x * f32(N) / (x + OFFSET)


def shifted(x: f32):
    """A helper."""
    return scaled(x) + OFFSET


def axpy(y: Pointer[f32], x: Pointer[f32], a: f32, size: i32):
    """A kernel with helpers, a constant of its own and a number of its module."""
    i = cuda.threadIdx.x
    if i < size:
        y[i] = a * shifted(x[i]) + y[i] * f32(N)


def packed(out: Pointer["WORDS"], x: Pointer[f32], at: i64):
    """A kernel whose primitive and type are chosen by constants."""
    out[at] = pack(x[0], x[1])


def wrong(out: Pointer[f32]):
    """A kernel that does not compile."""
    out[0] = cuda.no_such_thing(1)
