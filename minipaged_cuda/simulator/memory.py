"""Bytes that kernels read and write, and all that is known about them; knows offsets, no indices.

One `Memory` is the storage behind arguments that overlap, one shared array of a CTA, or one local
array of a thread. Every access is one call of `touch`, before the value moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from greenlet import getcurrent

from .errors import Deadlock, NotReadable, Race, Uninitialised
from .order import DOES, READ, WRITE, Access, Element
from .places import Place, here, site
from .trace import Buffer

MAX_REPEATS = 10_000  # of one read, while nobody else can run


class Label(NamedTuple):
    """What a buffer is called, and where its accesses are counted: nowhere for local memory."""

    name: str
    buffer: Buffer | None

    def element(self, index: Any) -> str:
        """An element as messages name it."""
        index = index if isinstance(index, tuple) else (index,)
        return f"{self.name}[{', '.join(str(i) for i in index)}]"


class Memory:
    """Bytes, and for each what may be read, what was written, and by whom.

    Attributes:
        data: The bytes themselves.
        alignment: What the first byte's address is a multiple of.
        hidden, unwritten: 1 for every byte that must not be read (yet); None where all may be.
    """

    def __init__(self, space: str, data: np.ndarray, alignment: int, check_races: bool) -> None:
        self.space, self.data, self.alignment = space, data, alignment
        self.hidden: bytearray | None = None
        self.unwritten: bytearray | None = None
        self.elements: dict[int, Element] | None = {} if check_races else None
        self.unit = 0  # bytes of an element: the smallest that anybody uses

    def split(self, size: int) -> None:
        """From now on there are elements of `size` bytes, too."""
        if self.unit and size < self.unit and self.elements:
            parts = self.unit // size
            self.elements = {
                key * parts + part: element.copy()
                for key, element in self.elements.items()
                for part in range(parts)
            }
        self.unit = min(size, self.unit or size)

    def touch(self, label: Label, index: Any, offset: int, size: int, kind: str) -> None:
        """Check one access of `size` bytes, and note it.

        Raises:
            NotReadable, Uninitialised: What is read may not be.
            Race: Another thread's access is not ordered with this one.
            Deadlock: It is a read that the thread repeats, while nobody else can run.
        """
        lane: Any = getcurrent()
        code, instruction = site()
        if self.elements is not None:
            access = (lane, lane.cta.launch.clock, code, instruction, kind)
            self._check_order(label, index, offset, size, access)
        self._check_marks(label, index, offset, size, kind)
        if offset != lane.last_offset:
            lane.last_offset, lane.cta.idle = offset, 0
        read = (self, offset, instruction) if kind is READ else None
        lane.repeats = lane.repeats + 1 if read and read == lane.last_read else 0
        lane.last_read = read
        if lane.repeats == MAX_REPEATS:
            raise Deadlock(_spins(label.element(index)))
        if label.buffer is not None:
            lane.note((instruction, id(code), label.buffer, kind), offset, size)

    def _check_marks(self, label: Label, index: Any, offset: int, size: int, kind: str) -> None:
        end = offset + size
        if kind is not WRITE:
            if self.hidden is not None and self.hidden.find(1, offset, end) >= 0:
                what = f"reads {label.element(index)}, which it may not"
                raise NotReadable(f"{who()} {what}, at {here()}")
            if self.unwritten is not None and self.unwritten.find(1, offset, end) >= 0:
                self._let_others_write()
                what = f"reads {label.element(index)} before anyone wrote it"
                raise Uninitialised(f"{who()} {what}, at {here()}")
        elif self.unwritten is not None:
            self.unwritten[offset:end] = bytes(size)

    def _let_others_write(self) -> None:
        """A write that comes now races with the read that was just noted, which says more."""
        lane: Any = getcurrent()
        if self.elements is not None:
            lane.pause()

    def _check_order(
        self, label: Label, index: Any, offset: int, size: int, access: Access
    ) -> None:
        elements, unit = self.elements, self.unit
        for key in range(offset // unit, (offset + size - 1) // unit + 1):
            element = elements.get(key)  # type: ignore[union-attr]
            if element is None:
                element = elements[key] = Element()  # type: ignore[index]
            racing = element.use(access)
            if racing is not None:
                raise Race(self._race(label.element(index), access, racing))

    def _race(self, element: str, access: Access, racing: Access) -> str:
        lane, _, code, instruction, kind = access
        other, _, other_code, other_instruction, other_kind = racing
        if lane.cta is other.cta:
            first, second, place = f"{lane}", f"{other}", f" in {lane.cta}"
            why = _missing(self.space, lane.warp is other.warp)
        else:
            first, second, place = f"{lane} of {lane.cta}", f"{other} of {other.cta}", ""
            why = "CTAs run in any order"
        if kind is other_kind is WRITE:
            why += ", and two writes are a race even if they write the same value"
        return (
            f"race on {element}{place}: {first} {DOES[kind]} it at {Place(code, instruction)}; "
            f"{second} {DOES[other_kind]} it at {Place(other_code, other_instruction)}; {why}"
        )


class LocalMemory(Memory):
    """One thread's own memory: nobody to race with, and nothing to count."""

    def touch(self, label: Label, index: Any, offset: int, size: int, kind: str) -> None:
        """As `Memory`."""
        lane: Any = getcurrent()
        lane.last_read = None  # who computes does not spin
        self._check_marks(label, index, offset, size, kind)


def fresh(space: str, num_bytes: int, alignment: int, check_races: bool) -> Memory:
    """Memory that nobody has written: NaN in every float type, and reading it is an error."""
    data = np.full(num_bytes, 0xFF, np.uint8)
    memory = (LocalMemory if space == "local" else Memory)(space, data, alignment, check_races)
    memory.unwritten = bytearray(b"\1") * num_bytes
    return memory


def _missing(space: str, same_warp: bool) -> str:
    """What would have ordered two accesses of one CTA."""
    if space == "global":
        return "nothing orders the two"
    if same_warp:
        return "no syncthreads() or syncwarp() lies between"
    return "no syncthreads() lies between (syncwarp() orders the lanes of one warp alone)"


def _spins(element: str) -> str:
    return (
        f"{who()} waits for {element} to change: it has read it {MAX_REPEATS} times on end at "
        f"{here()}; a plain read waits for nobody: let the threads meet in syncthreads(), or spin "
        "on an atomic update"
    )


def who() -> str:
    """The thread that runs, as messages name it."""
    lane: Any = getcurrent()
    return f"{lane} of {lane.cta}"
