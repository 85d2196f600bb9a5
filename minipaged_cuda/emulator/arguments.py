"""Tensors as memory: which bytes they live in and where each element is; knows no kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minipaged_cuda.emulator.errors import InvalidProgram
from minipaged_cuda.emulator.parser import Function


@dataclass(frozen=True)
class Tensor:
    """A numpy array or torch CPU tensor, seen as bytes of its whole storage.

    Attributes:
        start: Machine address of the storage.
        bytes: Length of the storage.
        offset: Of the first element in the storage, in bytes.
        strides: In bytes.
        source: What it was made of; holds the memory.
    """

    start: int
    bytes: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str
    writable: bool
    source: Any

    @classmethod
    def of(cls, source: Any) -> Tensor:
        """The view of an array.

        Raises:
            InvalidProgram: It is neither a numpy array nor a torch tensor on the CPU.
        """
        if isinstance(source, np.ndarray):
            return cls._of_array(source)
        if not is_tensor(source) or source.device.type != "cpu":
            raise InvalidProgram(f"{type(source).__name__} is no array in the CPU's memory")
        storage, itemsize = source.untyped_storage(), source.element_size()
        start, offset = storage.data_ptr(), source.storage_offset() * itemsize
        strides = tuple(stride * itemsize for stride in source.stride())
        name = str(source.dtype).removeprefix("torch.")
        sizes = (storage.nbytes(), offset, tuple(source.shape), strides, itemsize)
        return cls(start, *sizes, name, True, source)

    @classmethod
    def _of_array(cls, array: np.ndarray) -> Tensor:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        reach = [(n - 1) * stride for n, stride in zip(root.shape, root.strides) if n > 0]
        start = root.ctypes.data + sum(min(0, each) for each in reach)
        num_bytes = sum(abs(each) for each in reach) + root.itemsize if root.size else 0
        offset = array.ctypes.data - start if array.size else 0
        sizes = (num_bytes, offset, array.shape, array.strides, array.itemsize)
        return cls(start, *sizes, str(array.dtype), array.flags.writeable, array)

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The element that the byte at `offset` of the storage belongs to, if there is one."""
        rest, index = offset - self.offset, [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -abs(self.strides[axis])):
            if self.strides[axis] > 0:
                index[axis] = min(rest // self.strides[axis], self.shape[axis] - 1)
                rest -= index[axis] * self.strides[axis]
        return tuple(index) if 0 <= rest < self.itemsize and min(index, default=0) >= 0 else None

    def spread(self, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        """A mask over the elements as a mask over the storage, and which bytes it speaks of."""
        chosen, covered = np.zeros(self.bytes, bool), np.zeros(self.bytes, bool)
        shape, strides = (*self.shape, self.itemsize), (*self.strides, 1)
        for flags, value in ((chosen, mask), (covered, np.True_)):
            view = np.lib.stride_tricks.as_strided(flags[self.offset :], shape, strides)
            view[...] = self._broadcast(np.asarray(value))[..., None]
        return chosen, covered

    def _broadcast(self, mask: np.ndarray) -> np.ndarray:
        try:
            return np.broadcast_to(mask, self.shape)
        except ValueError:
            what = f"a mask of shape {mask.shape} does not broadcast to the tensor's {self.shape}"
            raise InvalidProgram(what) from None


def is_tensor(argument: Any) -> bool:
    """Whether an argument is memory, and no scalar."""
    return isinstance(argument, np.ndarray) or hasattr(argument, "untyped_storage")


def memory_bytes(start: int, num_bytes: int) -> np.ndarray:
    """[num_bytes] uint8: this process's memory itself, no copy."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(start))


def numba_arguments(entry: Function, arguments: Sequence[Any]) -> list[Any]:
    """Arguments as a Numba kernel with array-typed parameters takes them.

    An array is many parameters: two pointers that kernels do not use, the number of elements and
    their size, the address of the data, then the shape, and the strides in bytes.

    Raises:
        InvalidProgram: The kernel has another number of parameters.

    Examples:
        >>> import numpy as np
        >>> from minipaged_cuda.emulator import parse
        >>> names = ", ".join(f".param .u64 p{i}" for i in range(8))
        >>> entry = parse(f".visible .entry k({names}) {{ ret; }}").entry()
        >>> numba_arguments(entry, [np.zeros(3, np.float32), 7])
        [0, 0, 3, 4, array([0., 0., 0.], dtype=float32), 3, 4, 7]
    """
    expanded: list[Any] = []
    for argument in arguments:
        if is_tensor(argument):
            tensor = Tensor.of(argument)
            num_elements = int(np.prod(tensor.shape, dtype=np.int64))
            expanded += [0, 0, num_elements, tensor.itemsize, argument]
            expanded += [*tensor.shape, *tensor.strides]
        else:
            expanded.append(argument)
    if len(expanded) != len(entry.parameters):
        raise InvalidProgram(
            f"{entry.name} has {len(entry.parameters)} parameters; the {len(arguments)} arguments "
            f"are {len(expanded)} with shapes and strides (5 and 2 per dimension for an array)"
        )
    return expanded
