"""Where packed weights live: side by side in a few large pieces of memory, in large pages.

A layer's weight is often smaller than one large page, so that each in memory of its own would get
none. Which piece belongs to whom nobody needs to know: it goes when the last weight in it goes.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np
import torch
from torch import Tensor

from minipaged.huge_pages import ask_for_huge_pages

PIECE = 1 << 26  # bytes that are asked for at once; what is never written costs nothing
LINE = 64  # bytes of a cache line, on which every tensor begins


class _Memory:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._piece: weakref.ref[np.ndarray] | None = None
        self._next = 0  # first free address

    def take(self, nbytes: int) -> np.ndarray:  # [nbytes] uint8
        """Memory that nobody else has; it is kept alive by whoever holds the result."""
        with self._lock:
            piece = self._piece and self._piece()
            begin = 0 if piece is None else -(-self._next // LINE) * LINE - piece.ctypes.data
            if piece is None or begin + nbytes > len(piece):
                piece = np.empty(max(PIECE, nbytes + LINE), np.uint8)
                ask_for_huge_pages(piece.ctypes.data, piece.nbytes)
                self._piece, begin = weakref.ref(piece), -piece.ctypes.data % LINE
            self._next = piece.ctypes.data + begin + nbytes
            return piece[begin : begin + nbytes]


_memory = _Memory()


def kept(x: Tensor) -> Tensor:
    """A contiguous copy of a tensor that is kept for as long as its product, and read often."""
    memory = torch.from_numpy(_memory.take(x.numel() * x.element_size()))
    return memory.view(x.dtype).view(x.shape).copy_(x)
