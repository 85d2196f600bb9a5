"""Which accesses happen before which; knows threads, clocks and barriers, not addresses or values.

The launch has a clock that ticks at every synchronisation. A lane's `known` maps a lane, or a whole
CTA, to the last tick up to which it is known that everything done there is over:

    barrier           all lanes of the CTA learn what each of them knew, and {CTA: now}
    syncwarp          the lanes of the mask learn what each of them knew, and {lane: now} of each
    fence, atomic     a fence publishes what the lane knows and did; its next atomic leaves that at
                      the element, where the next lane's atomic finds it: across CTAs, too

Shuffles and votes order nothing: CUDA promises no memory order for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from types import CodeType
from typing import Protocol, TypeAlias

Known: TypeAlias = dict[Hashable, int]  # of lanes and CTAs


class Actor(Hashable, Protocol):
    """What a lane is to these books."""

    cta: Hashable
    warp: Hashable
    known: Known
    published: Known


Access: TypeAlias = tuple[Actor, int, CodeType, int, str]  # who, tick, instruction, and what
Slot: TypeAlias = Access | dict[Actor, Access]  # one, or several by their lanes

READ, WRITE, ATOMIC = "read", "write", "atomic"
DOES = {READ: "reads", WRITE: "writes", ATOMIC: "updates"}


def joined(parts: Iterable[Known]) -> Known:
    """What all of these know together."""
    distinct = list({id(part): part for part in parts}.values())
    known = dict(distinct[0])
    for part in distinct[1:]:
        for who, tick in part.items():
            if tick > known.get(who, -1):
                known[who] = tick
    return known


def unordered(slot: Slot, lane: Actor) -> Access | None:
    """An access of another lane in `slot` that nothing orders before what `lane` does now."""
    if isinstance(slot, dict):
        return next((x for x in slot.values() if unordered(x, lane) is not None), None)
    other, tick = slot[0], slot[1]
    known = lane.known
    if other is lane or tick <= known.get(other.cta, -1) or tick <= known.get(other, -1):
        return None
    return slot


def added(slot: Slot, access: Access) -> Slot:
    """The slot with one more access; a single one that comes before it is forgotten."""
    lane = access[0]
    if isinstance(slot, dict):
        slot[lane] = access
    elif unordered(slot, lane) is not None:
        slot = {slot[0]: slot, lane: access}
    else:
        slot = access
    return slot


class Element:
    """Who has used one element, as far as anybody can still be in a race with them."""

    __slots__ = ("atomics", "published", "reads", "write")

    def __init__(self) -> None:
        self.write: Access | None = None
        self.reads: Slot | None = None
        self.atomics: Slot | None = None
        self.published: Known | None = None

    def use(self, access: Access) -> Access | None:
        """Note an access, or return one that races with it."""
        lane, kind = access[0], access[4]
        racing = unordered(self.write, lane) if self.write else None
        if self.reads and kind is not READ:
            racing = racing or unordered(self.reads, lane)
        if self.atomics and kind is not ATOMIC:
            racing = racing or unordered(self.atomics, lane)
        if racing:
            return racing
        if kind is READ:
            self.reads = added(self.reads, access) if self.reads else access
        elif kind is WRITE:  # whoever comes after this comes after all that was before it
            self.write, self.reads, self.atomics = access, None, None
        else:
            self.atomics = added(self.atomics, access) if self.atomics else access
            self._meet(lane)
        return None

    def copy(self) -> Element:
        """The same past, for a part of the element."""
        twin = Element()
        for name in self.__slots__:
            slot = getattr(self, name)
            setattr(twin, name, dict(slot) if slot.__class__ is dict else slot)
        return twin

    def _meet(self, lane: Actor) -> None:
        left = self.published
        if lane.published:
            self.published = joined([left or {}, lane.published])
        if left:
            lane.known = joined([lane.known, left])
