"""What a launch is given, as kernels see it; knows NumPy arrays, torch tensors and their storage.

Arguments whose storage overlaps share one `Memory`, so that two views of a tensor are one place
for races, and a window on the storage (`Pointer`) sees what an array of it has written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .arrays import DeviceArray, Window
from .errors import Misaligned
from .memory import Label, Memory
from .numbers import number
from .trace import Trace

ALIGNMENT = 256  # bytes; what a device's allocator gives every tensor


@dataclass(frozen=True)
class Pointer:
    """An argument that is the address of a tensor's first element, and nothing more.

    The kernel indexes it in elements of `dtype`, by default the tensor's own: `np.uint32` for the
    words of a bfloat16 tensor. It reaches to the end of the tensor's whole storage, padding and
    neighbours included, and not below the first element.
    """

    tensor: Any
    dtype: Any = None


class Extent(NamedTuple):
    """A tensor as an address, a shape and strides in bytes, in a storage from `low` to `high`."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: np.dtype | None  # None for those that NumPy does not have
    low: int
    high: int
    writable: bool


def is_tensor(value: Any) -> bool:
    """Whether a value is a NumPy array or a torch tensor."""
    return isinstance(value, np.ndarray) or hasattr(value, "untyped_storage")


def extent_of(tensor: Any) -> Extent:
    """Where a tensor lies.

    Raises:
        TypeError: It is neither a NumPy array nor a torch tensor on a CPU.
    """
    if isinstance(tensor, np.ndarray):
        return _extent_of_array(tensor)
    if not is_tensor(tensor) or tensor.device.type != "cpu":
        raise TypeError(f"a NumPy array or a torch tensor on the CPU was expected, not {tensor!r}")
    size, low = tensor.element_size(), tensor.untyped_storage().data_ptr()
    strides = tuple(size * step for step in tensor.stride())
    try:
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    except TypeError:
        dtype = None
    end = low + tensor.untyped_storage().nbytes()
    return Extent(tensor.data_ptr(), tuple(tensor.shape), strides, size, dtype, low, end, True)


def _extent_of_array(array: np.ndarray) -> Extent:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    (low, high), (first, last) = _bounds(root), _bounds(array)
    where = array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize
    return Extent(*where, array.dtype, min(low, first), max(high, last), array.flags.writeable)


def _bounds(array: np.ndarray) -> tuple[int, int]:
    address = array.__array_interface__["data"][0]
    if array.size == 0:
        return address, address
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    return address + low, address + high + array.itemsize


class Storages:
    """The memories behind tensors, one for each group of storages that overlap."""

    def __init__(self, extents: Iterable[Extent], check_races: bool) -> None:
        self.memories: list[tuple[int, int, Memory]] = []
        merged: list[list[int]] = []
        for low, high in sorted((extent.low, extent.high) for extent in extents):
            if merged and low < merged[-1][1]:
                merged[-1][1] = max(high, merged[-1][1])
            else:
                merged.append([low, high])
        for low, high in merged:
            memory = Memory("global", _bytes_at(low, high - low), ALIGNMENT, check_races)
            self.memories.append((low, high, memory))

    def find(self, extent: Extent) -> tuple[Memory, int] | None:
        """The memory of a tensor, and at which byte of it the tensor begins."""
        for low, high, memory in self.memories:
            if low <= extent.low and extent.high <= high:
                return memory, extent.address - low
        return None


def _bytes_at(address: int, size: int) -> np.ndarray:
    if size == 0:
        return np.empty(0, np.uint8)
    memory = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8)


# -- arguments -------------------------------------------------------------------------------------


def bind(value: Any, name: str, storages: Storages, trace: Trace) -> Any:
    """An argument as the kernel gets it: an array, a pointer, or a scalar of Numba's type.

    Raises:
        TypeError: A kernel cannot be given such a thing.
        Misaligned: Elements do not begin at multiples of their size.
    """
    if isinstance(value, Pointer):
        return _pointer(value, name, storages, trace)
    if is_tensor(value):
        return _array(value, name, storages, trace)
    if isinstance(value, (bool, int, float, np.generic)):
        return number(value)
    raise TypeError(
        f"{name} is {value!r}: a kernel takes NumPy arrays, torch tensors, Pointer(tensor) and "
        "numbers"
    )


def tensors_of(arguments: Iterable[Any]) -> list[Any]:
    """The tensors among arguments, those behind pointers too."""
    tensors = [x.tensor if isinstance(x, Pointer) else x for x in arguments]
    return [x for x in tensors if is_tensor(x)]


def _array(tensor: Any, name: str, storages: Storages, trace: Trace) -> DeviceArray:
    extent = extent_of(tensor)
    if extent.dtype is None:
        raise TypeError(
            f"{name} is a tensor of {tensor.dtype}, which NumPy does not have: pass its words, "
            f"Pointer({name}, np.uint{8 * extent.itemsize})"
        )
    steps = tuple(step // extent.itemsize for step in extent.strides)
    if any(step % extent.itemsize for step in extent.strides):
        raise Misaligned(f"{name} has strides {extent.strides} of {extent.itemsize}-byte elements")
    where = _items(extent, extent.dtype, name, storages)
    return DeviceArray(_label(name, extent.dtype, trace), *where, extent.shape, steps)


def _pointer(pointer: Pointer, name: str, storages: Storages, trace: Trace) -> Window:
    extent = extent_of(pointer.tensor)
    dtype = extent.dtype if pointer.dtype is None else np.dtype(pointer.dtype)
    if dtype is None:
        raise TypeError(f"Pointer({name}) needs a dtype: NumPy has no {pointer.tensor.dtype}")
    memory, items, start = _items(extent, dtype, name, storages)
    return Window(_label(name, dtype, trace), memory, items, start, (len(items) - start,), (1,))


def _label(name: str, dtype: np.dtype, trace: Trace) -> Label:
    return Label(name, trace.buffer(name, dtype.itemsize))


def _items(
    extent: Extent, dtype: np.dtype, name: str, storages: Storages
) -> tuple[Memory, np.ndarray, int]:
    """The whole storage as elements, and which of them is the tensor's first."""
    found = storages.find(extent)
    assert found is not None, "a memory was made for every argument"
    memory, offset = found
    if offset % dtype.itemsize:
        raise Misaligned(
            f"{name} begins at byte {offset} of its storage, which is no multiple of the "
            f"{dtype.itemsize} bytes of {dtype}"
        )
    memory.split(dtype.itemsize)
    items = memory.data[: memory.data.size // dtype.itemsize * dtype.itemsize].view(dtype)
    items.flags.writeable = extent.writable
    return memory, items, offset // dtype.itemsize
