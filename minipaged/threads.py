"""Gives every thread a processor of its own, before torch or Numba exist; imports neither.

Unpinned, the kernel may leave two busy-waiting OpenMP threads on one processor while another is
idle, and a small matrix product takes ten times as long. OpenMP reads its environment once, when
the first library that uses it is loaded, so this has to come first.
"""

from __future__ import annotations

import os
import sys


def _usable_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):  # Linux; elsewhere nobody can pin either
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


CPUS = _usable_cpus()
"""What this process may use, as it was before pinning bound the main thread to one of them."""


def pinned_environment() -> dict[str, str]:
    """Variables that make torch and Numba share one thread per processor, each bound to it."""
    count = str(len(CPUS))
    binding = {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads"} if sys.platform == "linux" else {}
    return {"OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count, **binding}


def pin_threads() -> bool:
    """Set them in this process; what the caller's environment already says goes first.

    The command line does this by itself. A program that imports the package may call it, before
    anything imports torch.

    Returns:
        False if torch or Numba are loaded already, so that it is too late.
    """
    if "torch" in sys.modules or "numba" in sys.modules:
        return False
    for name, value in pinned_environment().items():
        os.environ.setdefault(name, value)
    return True
