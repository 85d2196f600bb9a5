"""Asks for memory in pages of megabytes instead of kilobytes; imports no torch.

Reading gigabytes through pages of 4 KB, a processor spends much of its time on finding out where
the next page is, and its prefetching stops at the end of each. On Linux a program may ask for large
pages where it wants them (``man 2 madvise``, transparent huge pages); elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from pathlib import Path
from typing import Any

SIZE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


def page_size() -> int:
    """Bytes of a large page; 0 where there are none to ask for."""
    return _library_and_size()[1]


def ask_for_huge_pages(address: int, nbytes: int) -> int:
    """Ask for large pages wherever whole ones fit into this memory, which nobody wrote to yet.

    Returns:
        How many bytes will be in large pages if the system has them to give: it may decline.
    """
    madvise, size = _library_and_size()
    if not size:
        return 0
    begin, end = -(-address // size) * size, (address + nbytes) // size * size
    if begin >= end or madvise(begin, end - begin, mmap.MADV_HUGEPAGE):
        return 0
    return end - begin


@cache
def _library_and_size() -> tuple[Any, int]:
    if not (sys.platform == "linux" and hasattr(mmap, "MADV_HUGEPAGE") and SIZE_FILE.exists()):
        return None, 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return madvise, int(SIZE_FILE.read_text())
