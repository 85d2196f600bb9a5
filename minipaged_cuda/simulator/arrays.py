"""What kernels index: pointers and arrays, as windows on memory; knows indices, not threads.

storage   |   | a | b | c | x | d | e | f | x |      a view of [2, 3], strides 4 and 1
                0                       5            start 1; x is padding
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .errors import Misaligned, NotAnIndex, OutOfBounds, ReadOnly
from .memory import Label, Memory, who
from .numbers import INT64, known, number
from .order import ATOMIC, DOES, READ, WRITE
from .places import here
from .scalars import cast

_FLOATS = (float, np.floating)


class Window:
    """Elements of one type in a memory, reached by index, every access checked.

    Attributes:
        label: The parameter's or variable's name, and where accesses are counted.
        items: The memory as elements.
        start: Where index 0 is, in elements, as the strides are.
    """

    def __init__(
        self,
        label: Label,
        memory: Memory,
        items: np.ndarray,
        start: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.label, self.memory, self.items, self.start = label, memory, items, start
        self.extents, self.steps = shape, strides
        self.dtype, self.itemsize, self.known = items.dtype, items.itemsize, known(items.dtype)
        self.writable = items.flags.writeable

    def __getitem__(self, index: Any) -> Any:
        position, size = self._position(index, READ), self.itemsize
        self.memory.touch(self.label, index, position * size, size, READ)
        item, known = self.items[position], self.known
        return item if known is None else known[int(item)]

    def __setitem__(self, index: Any, value: Any) -> None:
        position, size = self._position(index, WRITE), self.itemsize
        self.memory.touch(self.label, index, position * size, size, WRITE)
        if self.known is not None and isinstance(value, _FLOATS):
            value = cast(value, self.dtype)
        try:
            self.items[position] = value
        except OverflowError:
            self.items[position] = cast(value, self.dtype)

    def update(self, index: Any, change: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Replace an element in one step that nobody can come between; returns old and new."""
        position, size = self._position(index, ATOMIC), self.itemsize
        self.memory.touch(self.label, index, position * size, size, ATOMIC)
        old = number(self.items[position])
        new = self.items[position] = cast(change(old), self.dtype)
        return old, new

    def load(self, offset: int, count: int) -> tuple[Any, ...]:
        """`count` elements side by side, in one access.

        Raises:
            OutOfBounds: One of them is not there.
            Misaligned: The address is not a multiple of the access's size.
        """
        position = self._span(offset, count, READ)
        items = self.items[position : position + count]
        return tuple(items) if self.known is None else tuple(self.known[x] for x in items.tolist())

    def store(self, offset: int, values: Sequence[Any]) -> None:
        """Write elements side by side, in one access.

        Raises:
            OutOfBounds, Misaligned: As `load`.
        """
        position = self._span(offset, len(values), WRITE)
        self.items[position : position + len(values)] = [cast(x, self.dtype) for x in values]

    def _position(self, index: Any, kind: str) -> int:
        """Where an element is, in `items`."""
        if kind is not READ and not self.writable:
            raise self._read_only(index, kind)
        position, extents = self.start, self.extents
        if index.__class__ is not tuple:
            index = (index,)
        if len(index) != len(extents):
            sizes = f"{len(extents)} dimensions {extents}"
            raise OutOfBounds(
                f"{self.label.element(index)}: {self.label.name} has {sizes}, at {here()}"
            )
        for i, extent, step in zip(index, extents, self.steps):
            i = self._integer(i)
            if not 0 <= i < extent:
                raise self._out_of_bounds(index, kind)
            position += i * step
        return position

    def _span(self, offset: int, count: int, kind: str) -> int:
        """Check an access of several elements and note it; returns where it begins, in `items`."""
        if kind is not READ and not self.writable:
            raise self._read_only(offset, kind)
        offset, size = self._integer(offset), count * self.itemsize
        if not self.is_packed:
            raise Misaligned(f"{self.label.name} has gaps: strides {self.steps}, at {here()}")
        if not 0 <= offset <= math.prod(self.extents) - count:
            raise self._out_of_bounds((offset,), kind, count)
        position = self.start + offset
        if position * self.itemsize % size or self.memory.alignment % size:
            raise self._misaligned(offset, position, size)
        self.memory.touch(self.label, offset, position * self.itemsize, size, kind)
        return position

    @cached_property
    def is_packed(self) -> bool:
        """Whether elements lie side by side, in the order of their indices."""
        return self.steps == packed(self.extents)

    def _integer(self, index: Any) -> int:
        try:
            return operator.index(index)
        except TypeError:
            what = f"{who()} indexes {self.label.name} with {index}"
            raise NotAnIndex(f"{what}, which is no integer, at {here()}") from None

    def _read_only(self, index: Any, kind: str) -> ReadOnly:
        what = f"{who()} {DOES[kind]} {self.label.element(index)}"
        return ReadOnly(f"{what}, which is a read-only array's, at {here()}")

    def _out_of_bounds(self, index: tuple, kind: str, count: int = 1) -> OutOfBounds:
        many = "" if count == 1 else f"{count} elements from "
        size = f"{self.extents[0]} elements" if len(self.extents) == 1 else f"shape {self.extents}"
        hint = "; a negative index does not count from the end" if min(index) < 0 else ""
        return OutOfBounds(
            f"{who()} {DOES[kind]} {many}{self.label.element(index)}, which has {size}{hint}, "
            f"at {here()}"
        )

    def _misaligned(self, offset: int, position: int, size: int) -> Misaligned:
        byte = position * self.itemsize
        what = f"byte {byte} of its storage is no multiple of {size}"
        if byte % size == 0:
            what = f"the array itself is aligned to {self.memory.alignment} (see `alignment=`)"
        return Misaligned(
            f"{who()} accesses {size} bytes at {self.label.element(offset)}, but {what}, "
            f"at {here()}"
        )


class DeviceArray(Window):
    """An array with a shape, as Numba's kernels see arguments, shared and local arrays."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many elements, in each dimension."""
        return tuple(INT64[n] for n in self.extents)

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes, as in NumPy."""
        return tuple(INT64[step * self.itemsize] for step in self.steps)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return INT64[len(self.extents)]

    @property
    def size(self) -> int:
        """The number of elements."""
        return INT64[math.prod(self.extents)]

    def __len__(self) -> int:
        return self.extents[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return self._view(index) if self._is_partial(index) else super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self._is_partial(index):
            super().__setitem__(index, value)
            return
        view = self._view(index)
        for i in np.ndindex(view.extents):
            view[i] = value[i] if hasattr(value, "shape") and value.shape else value

    def _is_partial(self, index: Any) -> bool:
        if index.__class__ is tuple:
            return len(index) < len(self.extents) or any(i.__class__ is slice for i in index)
        return len(self.extents) != 1 or index.__class__ is slice

    def _view(self, index: Any) -> DeviceArray:
        """The part of the array that an index with slices, or with too few numbers, means."""
        given = index if isinstance(index, tuple) else (index,)
        given += (slice(None),) * (len(self.extents) - len(given))
        start, shape, steps = self.start, [], []
        for i, extent, step in zip(given, self.extents, self.steps):
            if isinstance(i, slice):
                begin, end, stride = i.indices(extent)
                start += begin * step
                shape.append(len(range(begin, end, stride)))
                steps.append(step * stride)
            elif 0 <= self._integer(i) < extent:
                start += self._integer(i) * step
            else:
                raise OutOfBounds(
                    f"{self.label.element(index)}: shape is {self.extents}, at {here()}"
                )
        where = (start, tuple(shape), tuple(steps))
        return DeviceArray(self.label, self.memory, self.items, *where)


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an array without gaps, last dimension fastest."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def new_array(label: Label, memory: Memory, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
    """An array over the whole of a memory."""
    memory.split(dtype.itemsize)
    items = memory.data[: memory.data.size // dtype.itemsize * dtype.itemsize].view(dtype)
    return DeviceArray(label, memory, items, 0, shape, packed(shape))
