"""What may not be read, as a mark on every byte of a tensor; outlives the launches."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .arguments import Storages, extent_of


class Marks:
    """Marks on elements of a tensor, one for each of their bytes.

    Attributes:
        kind: `hidden` elements may not be read, `unwritten` ones not before a kernel has written.
    """

    def __init__(self, kind: Literal["hidden", "unwritten"], tensor: Any, marked: Any) -> None:
        self.kind, self.tensor = kind, tensor  # kept, so that nothing else gets its storage
        self.extent = extent_of(tensor)
        shape = self.extent.shape
        marked = _spread(np.asarray(marked, bool), shape)[..., None]
        self.bytes = np.broadcast_to(marked, (*shape, self.extent.itemsize)).copy()

    def replaces(self, other: Marks) -> bool:
        """Whether both mark the same elements in the same way."""
        return (self.kind, self.extent) == (other.kind, other.extent)

    def put(self, storages: Storages) -> None:
        """Mark the memory behind the tensor, if it is one of these."""
        if (view := self._view(storages)) is not None:
            view |= self.bytes

    def take(self, storages: Storages) -> None:
        """Keep what a launch has left of the marks."""
        if (view := self._view(storages)) is not None:
            self.bytes &= view.astype(bool)

    def _view(self, storages: Storages) -> np.ndarray | None:
        """The marks of the tensor's bytes, [*shape, itemsize], among those of its memory."""
        found = storages.find(self.extent)
        if found is None or self.bytes.size == 0:
            return None
        memory, offset = found
        if getattr(memory, self.kind) is None:
            setattr(memory, self.kind, bytearray(memory.data.size))
        first = np.frombuffer(getattr(memory, self.kind), np.uint8)[offset:]
        return np.lib.stride_tricks.as_strided(first, self.bytes.shape, (*self.extent.strides, 1))


def _spread(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        what = f"a mask of shape {mask.shape} does not broadcast to the tensor's {shape}"
        raise ValueError(what) from None
