"""NVIDIA's assembler and disassemblers as functions; knows where they live, not what they say.

They come from PyPI, as old or new as the compiler that wrote the PTX: an assembler that is older
than its PTX refuses it, which is why one found there goes before one found on the PATH.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from minipaged_cuda.errors import DeviceError, KernelError

PACKAGES = {
    "ptxas": "nvidia-cuda-nvcc",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "cuobjdump": "nvidia-cuda-cuobjdump",
}


class Assembly(NamedTuple):
    """Machine code for one architecture, and what the assembler had to say about it."""

    cubin: bytes
    log: str


def assemble(ptx: str, capability: tuple[int, int], suffix: str = "") -> Assembly:
    """PTX to a cubin for exactly this compute capability.

    Args:
        ptx: Any number of kernels.
        capability: For example (9, 0).
        suffix: "a" for PTX that uses features of one architecture alone, such as wgmma.

    Raises:
        KernelError: ptxas refuses the text; the message is ptxas's own.
        DeviceError: ptxas is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        arch = f"-arch=sm_{capability[0]}{capability[1]}{suffix}"
        done = _run("ptxas", "-v", arch, str(source), "-o", str(target))
        if done.returncode:
            said = (done.stderr + done.stdout).replace(str(source), source.name).strip()
            raise KernelError(f"ptxas {arch} refuses this PTX:\n{said}{_advice(said, ptx)}")
        return Assembly(target.read_bytes(), done.stderr)


NEWER = "ptxas is older than the compiler that wrote this: pip install -U nvidia-cuda-nvcc"


def _advice(said: str, ptx: str) -> str:
    """What would be right, where ptxas says only what is wrong."""
    if "Unsupported .version" in said:
        return f"\n{NEWER}"
    target = re.search(r"^\s*\.target\s+sm_(\w+)", ptx, re.MULTILINE)
    if target is None or ".target" not in said:
        return ""
    newer = " or newer" if target[1].isdigit() else ""
    return f"\nthis PTX is for sm_{target[1]}: --arch {target[1]}{newer}"


def disassemble(cubin: bytes) -> str:
    """The code of all kernels of a cubin, as nvdisasm prints it.

    Raises:
        KernelError: These bytes are no cubin.
        DeviceError: nvdisasm is not installed.
    """
    return _read_cubin("nvdisasm", "-c", cubin)


def resource_usage(cubin: bytes) -> str:
    """Registers and memory of all kernels of a cubin, as cuobjdump prints them."""
    return _read_cubin("cuobjdump", "-res-usage", cubin)


def _read_cubin(tool: str, option: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = _run(tool, option, file.name)
    if done.returncode:
        raise KernelError(f"{tool} cannot read these {len(cubin)} bytes: {done.stderr.strip()}")
    return done.stdout


def _run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_tool(tool), *arguments], capture_output=True, text=True)


@cache
def find_tool(tool: str) -> str:
    """The path of ptxas, nvdisasm or cuobjdump.

    Raises:
        DeviceError: It is neither in an installed ``nvidia`` package nor on the PATH.
    """
    for folder in _nvidia_folders():
        for path in sorted(folder.glob(f"*/bin/{tool}"), reverse=True):
            return str(path)
    found = shutil.which(tool)
    if found is None:
        raise DeviceError(f"{tool} is not installed: pip install {PACKAGES[tool]}")
    return found


def _nvidia_folders() -> list[Path]:
    """Where wheels of the CUDA toolkit put their files: ``nvidia/cu13``, ``nvidia/cuda_nvcc``."""
    try:
        return [Path(folder) for folder in importlib.import_module("nvidia").__path__]
    except ImportError:
        return []
