"""Address spaces: buffers far apart, so that a wild address meets nothing; knows no instruction.

Slot 0 is nothing, 1 is shared memory, 2 local memory, 3 and more are the storages of a launch, and
from 4096 on come the variables of the module.

    slot << 36           + 2^35                 (slot + 1) << 36
    | before the buffer  | buffer | behind it   |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from minipaged_cuda.emulator.arguments import Tensor, memory_bytes
from minipaged_cuda.emulator.counts import Traffic
from minipaged_cuda.emulator.lanes import Lanes
from minipaged_cuda.emulator.parser import Variable
from minipaged_cuda.emulator.shadow import Shadow
from minipaged_cuda.emulator.types import DTYPES, literal

SLOT = 36
SHARED, LOCAL, FIRST, MODULE = 1, 2, 3, 1 << 12
READABLE, HIDDEN, UNWRITTEN = range(3)  # what `Buffer.flags` says of a byte


def base(slot: int) -> int:
    """The address of the first byte of a slot's buffer."""
    return (slot << SLOT) + (1 << SLOT - 1)


@dataclass
class Buffer:
    """Bytes at consecutive addresses.

    Attributes:
        base: Address of the first byte.
        size: How many bytes there are; for local memory, how many each thread has.
        start: Address of the first byte in this process, for an array's storage.
        flags: [size] READABLE, HIDDEN or UNWRITTEN, or None where all may be read.
        shadow: Who accessed what, or None where nobody asks.
        tensors: Views that give the bytes element numbers, by name.
    """

    name: str
    base: int
    data: np.ndarray
    size: int
    writable: bool = True
    start: int = 0
    flags: np.ndarray | None = None
    shadow: Shadow | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    loads: Traffic = field(default_factory=Traffic)
    stores: Traffic = field(default_factory=Traffic)
    atomics: Traffic = field(default_factory=Traffic)

    def __post_init__(self):
        self._views: dict[tuple[np.dtype, int], np.ndarray] = {}

    def view(self, dtype: np.dtype, count: int) -> np.ndarray:
        """[size / (count * itemsize), count]: all aligned vectors of that kind."""
        key = (dtype, count)
        if key not in self._views:
            size = dtype.itemsize * count
            whole = len(self.data) // size * size
            self._views[key] = self.data[:whole].view(dtype).reshape(-1, count)
        return self._views[key]

    @property
    def in_sectors(self) -> bool:
        """Whether it is moved in sectors of 32 bytes, which shared and local memory are not."""
        return self.base >= base(FIRST)

    def place(self, offsets: np.ndarray, lanes: Lanes) -> np.ndarray:
        """Where in `data` the bytes at these offsets are."""
        return offsets

    def describe(self, offset: int) -> str:
        """A byte in the words of the tensors that it belongs to."""
        for name, tensor in self.tensors.items():
            index = tensor.index(offset)
            if index is not None:
                inside = ", ".join(map(str, index))
                return f"byte {offset} of '{self.name}', {tensor.dtype} element {name}[{inside}]"
        return f"byte {offset} of '{self.name}'"


class LocalBuffer(Buffer):
    """Memory that each thread has for itself, at addresses that are the same for all."""

    def place(self, offsets: np.ndarray, lanes: Lanes) -> np.ndarray:
        """Each thread's part of `data`."""
        return offsets + lanes.threads * self.size


def map_tensors(named: Sequence[tuple[str, Tensor]], read_only: Iterable[str]) -> list[Buffer]:
    """One buffer for each storage; tensors that overlap in the machine's memory share one."""
    groups: list[list[tuple[str, Tensor]]] = []
    end = -1
    for name, tensor in sorted(named, key=lambda pair: (pair[1].start, -pair[1].bytes)):
        if groups and tensor.start < end:
            groups[-1].append((name, tensor))
        else:
            groups.append([(name, tensor)])
        end = max(end, tensor.start + tensor.bytes)
    read_only = set(read_only)
    return [_storage(group, base(FIRST + i), read_only) for i, group in enumerate(groups)]


def _storage(group: list[tuple[str, Tensor]], address: int, read_only: set[str]) -> Buffer:
    start = group[0][1].start
    size = max(tensor.start + tensor.bytes for _, tensor in group) - start
    names = [name for name, _ in group]
    writable = all(tensor.writable for _, tensor in group) and not read_only.issuperset(names)
    data = memory_bytes(start, size)
    name = "+".join(dict.fromkeys(names))
    tensors = dict(group) if all(tensor.start == start for _, tensor in group) else {}
    return Buffer(name, address, data, size, writable, start, tensors=tensors)


def initial_bytes(variable: Variable) -> np.ndarray:
    """A `.global` or `.const` variable as the module begins with it: zeros, unless it says."""
    dtype = DTYPES[variable.type]
    data = np.zeros(max(variable.bytes, dtype.itemsize), np.uint8)
    for i, value in enumerate(variable.values):
        data.view(dtype)[i] = literal(value, dtype)[0]
    return data
