"""Compiles the same kernels with numba-cuda-mlir, NVIDIA's successor of numba-cuda.

It has no simulator and no stable interface yet. A test compiles kernels with it, so that the day on
which numba-cuda ends is a day like any other; nothing is kept on disk.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from minipaged_cuda.bind import Compiler, bind, signature
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Specialisation


def compile_ptx(specialisation: Specialisation, capability: tuple[int, int]) -> str:
    """The PTX of one kernel for one compute capability, such as (9, 0).

    Raises:
        DeviceError: numba-cuda-mlir is not installed.
        KernelError: The text does not compile.
    """
    compiler = _numba_cuda_mlir(capability)
    kernel, types = bind(specialisation, compiler), signature(specialisation, compiler)
    options = {"cc": capability, "device": False, "fastmath": True}
    try:
        ptx, _ = compiler.cuda.compile_ptx(kernel, types, **options)
    except Exception as error:
        what = "{} for sm_{}{}".format(specialisation.name, *capability)
        raise KernelError(f"{what} does not compile: {error}") from error
    mangled = re.search(r"\.entry (\w+)\(", ptx)
    assert mangled, "numba-cuda-mlir made no kernel"
    return ptx.rstrip("\0").replace(mangled[1], specialisation.name)


def _numba_cuda_mlir(capability: tuple[int, int]) -> Compiler:
    try:
        cuda = importlib.import_module("numba_cuda_mlir.cuda")
        types = importlib.import_module("numba_cuda_mlir.types")
        tools: Any = importlib.import_module("numba_cuda_mlir.tools")
        primitives = importlib.import_module("minipaged_cuda.primitives.mlir")
    except ImportError as error:
        raise DeviceError(
            f"no numba-cuda-mlir ({error}): pip install 'numba-cuda-mlir[cu13]'"
        ) from error
    tools._cached_cc = capability  # it asks the card, whatever it was told
    return Compiler(cuda, types, primitives)
