"""Compiles specialised kernels to PTX for a compute capability; needs numba-cuda, but no card.

What was compiled once is kept on disk under everything it depends on: texts, constants, types,
architecture, primitives and the versions of the compilers.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import re
import threading
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minipaged_cuda.bind import Compiler, bind, ingredients, signature
from minipaged_cuda.disk_cache import kept
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Specialisation

Capability = tuple[int, int]
COMPILERS = (
    *("numba-cuda", "numba", "llvmlite", "cuda-core"),
    *("nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12"),
)
HERE = Path(__file__).parent
OWN_FILES = [HERE / "compile.py", HERE / "bind.py", HERE / "primitives" / "numba_cuda.py"]
ANY = (9, 0)  # a capability, for what does not depend on it
ONE_AT_A_TIME = threading.Lock()  # what `_without_a_card` changes is shared by all threads


def compile_ptx(specialisation: Specialisation, capability: Capability) -> str:
    """The PTX of one kernel for one compute capability, such as (9, 0).

    Raises:
        DeviceError: numba-cuda, or the NVVM library, is not installed.
        KernelError: The text does not compile; numba-cuda's own error is its cause.
    """
    name = f"{_key(specialisation, capability)}.ptx"
    return kept(name, lambda: _compile(specialisation, capability).encode()).decode()


def compile_cubin(specialisation: Specialisation, capability: Capability) -> bytes:
    """The machine code of one kernel, made by nvJitLink, for exactly this compute capability.

    Raises:
        DeviceError: numba-cuda, cuda-core or one of their libraries is not installed.
        KernelError: The text does not compile.
    """

    def link() -> bytes:
        return _link(compile_ptx(specialisation, capability), specialisation, capability)

    return kept(f"{_key(specialisation, capability)}.cubin", link)


# --- what a compiled kernel depends on ---------------------------------------------------------


def _key(specialisation: Specialisation, capability: Capability) -> str:
    """The kernel's name, and a digest of everything that can change its machine code."""
    parts = [
        repr((specialisation.constants, specialisation.parameters, specialisation.max_registers)),
        repr(capability),
        *ingredients(specialisation.kernel),
        *(file.read_text(encoding="utf-8") for file in OWN_FILES),
        repr([_version(name) for name in COMPILERS]),
    ]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return f"{specialisation.kernel.__name__}-{digest}"


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


# --- the compiler ------------------------------------------------------------------------------


def _compile(specialisation: Specialisation, capability: Capability) -> str:
    try:
        with ONE_AT_A_TIME:
            ptx = _typed(specialisation).get_asm_str(cc=capability)
    except _numba_cuda().cuda.cudadrv.error.NvvmSupportError as error:
        raise DeviceError(f"{error}: pip install 'minipaged[cuda]'") from error
    except Exception as error:
        raise _does_not_compile(specialisation, capability, error) from error
    ptx = _readable(ptx.rstrip("\0"), specialisation.name)
    return _limited(ptx, specialisation.max_registers)


@lru_cache(maxsize=4)
def _typed(specialisation: Specialisation) -> Any:
    """The kernel in LLVM IR: nine tenths of the time, and the same for every architecture.

    `numba.cuda.compile` does this and the rest for one architecture, and keeps nothing.
    """
    compiler = _numba_cuda()
    front: Any = importlib.import_module("numba.cuda.compiler")
    with _without_a_card():
        kernel, types = bind(specialisation, compiler), signature(specialisation, compiler)
        options = {"fastmath": True, "abi": "numba", "device": False, "cc": ANY}
        return front._compile_pyfunc_with_fixup(kernel, types, **options)[0]


def _link(ptx: str, specialisation: Specialisation, capability: Capability) -> bytes:
    try:
        core = importlib.import_module("cuda.core")
    except ImportError as error:
        raise DeviceError(f"no cuda-core ({error}): pip install 'minipaged[cuda]'") from error
    options = core.LinkerOptions(arch="sm_{}{}".format(*capability))
    try:
        return (
            core.Linker(core.ObjectCode.from_ptx(ptx.encode()), options=options).link("cubin").code
        )
    except Exception as error:
        raise _does_not_compile(specialisation, capability, error) from error


def _does_not_compile(
    specialisation: Specialisation, capability: Capability, error: Exception
) -> KernelError:
    what = "{} for sm_{}{}".format(specialisation.name, *capability)
    return KernelError(f"{what} does not compile: {error}")


@cache
def _numba_cuda() -> Compiler:
    try:
        from numba import cuda
        from numba.cuda import types

        from minipaged_cuda.primitives import numba_cuda
    except ImportError as error:
        raise DeviceError(
            f"compiling kernels needs numba-cuda ({error}): pip install 'minipaged[cuda]'"
        ) from error
    return Compiler(cuda, types, numba_cuda)


def _readable(ptx: str, name: str) -> str:
    """The same with the kernel's own name where Numba has put a mangled one of 300 letters.

    Numba's environments, one for every function, are for kernels that raise exceptions.
    """
    ptx = re.sub(r"^\.common \.global .*NumbaEnv\w+;\n+", "", ptx, flags=re.MULTILINE)
    mangled = re.search(r"\.entry (_ZN\w+)\(", ptx)
    assert mangled, "numba-cuda made no kernel"
    return ptx.replace(mangled[1], name)


def _limited(ptx: str, max_registers: int | None) -> str:
    """The same, and whoever makes machine code of it uses at most this many registers."""
    if max_registers is None:
        return ptx
    return re.sub(r"(\.entry [^{]*\))", rf"\1\n.maxnreg {max_registers}", ptx)


@contextlib.contextmanager
def _without_a_card() -> Iterator[None]:
    """Let numba-cuda compile device functions for a card that is not there.

    It asks the current device for nothing but its compute capability.
    """
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    ask = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=ANY)
    try:
        yield
    finally:
        dispatcher.get_current_device = ask
