"""Triton kernels on a CPU, out of packages that need not be installed; knows no kernel.

Triton's interpreter runs a kernel's Python on NumPy arrays. The packages that own the kernels
import much that needs a GPU, so only the kernels' own files are imported, with stand-ins for the
rest.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from .animal import NotHere, required

# Triton 3.9.0's interpreter multiplies the bit patterns of bfloat16 numbers: not judged here.
DTYPES = ("float32", "float16")
# An interpreted call takes tenths of a second: cases are small. `tl.dot` needs 16 numbers.
SMALL: Mapping[str, Any] = {
    "dtypes": DTYPES,
    "head_dims": (16, 24, 64),
    "groups": (1, 4),
    "num_kv_heads": (1, 2),
    "num_seqs": (1, 3),
    "kv_len": (0, 40),
}


def interpreter() -> Any:
    """Triton, such that kernels imported from now on are interpreted.

    Raises:
        NotHere: It is not installed, or was imported for a GPU before.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    triton = required("triton")
    if type(triton.language.sum).__name__ != "InterpretedFunction":
        raise NotHere("triton was imported before the zoo: set TRITON_INTERPRET=1 from the start")
    return triton


def folder_of(package: str) -> Path:
    """Where a package's files are, without importing it.

    Raises:
        NotHere: They are nowhere on `sys.path`.
    """
    spec = importlib.machinery.PathFinder.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise NotHere(f"no {package} on PYTHONPATH: its unpacked distribution is enough")
    return Path(next(iter(spec.submodule_search_locations)))


def never(*_: Any, **__: Any) -> bool:
    """No, whatever the question."""
    return False


@contextmanager
def standing_in(stand_ins: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Modules of these names and contents in `sys.modules`, within the block.

    A content `__path__` makes a package whose files are real.
    """
    roots = {name.partition(".")[0] for name in stand_ins}
    before = {name: m for name, m in sys.modules.items() if name.partition(".")[0] in roots}
    for name, content in stand_ins.items():
        module = sys.modules[name] = ModuleType(name)
        module.__dict__.update({"__path__": [], **content})
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
            del sys.modules[name]
        sys.modules.update(before)
