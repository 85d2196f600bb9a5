"""Who touched which bytes last, and whether that is ordered before now; knows no values.

Every granule of a buffer has three stamps: its last writer, its last reader, and the last reader
that was another thread than that one, so that a thread's own reading hides nobody's. A stamp packs

    time of the last barrier (31 bits) | number of the instruction (21) | atomic (1) | thread (10)

A barrier of the CTA orders all its threads, `bar.warp.sync` those of a warp, and nothing orders two
CTAs but a fence before and a fence after an atomic. Named barriers of a part of the CTA and warp
barriers of a part of a warp are taken to order the whole, so they hide races, and invent none.
"""

from __future__ import annotations

import numpy as np

from minipaged_cuda.emulator.lanes import Lanes

_TIME, _NUMBER, _ATOMIC, _THREAD = 32, 11, 1 << 10, (1 << 10) - 1
_MANY = 4096  # loads to remember before they are entered


class Order:
    """What the threads of the running CTA are ordered after."""

    def __init__(self, num_warps: int):
        self.time = 0
        self.barrier = 0  # when all threads last met
        self.warp_barriers = np.zeros(num_warps, np.int64)
        self._starts: list[int] = []  # when each CTA began
        self._fences: list[int] = []  # when each CTA last fenced, if it did
        self._atomics = self._acquires = False

    def begin(self) -> None:
        """Another CTA runs: nothing before is ordered."""
        self.meet()
        self._starts.append(self.time)
        self._fences.append(0)
        self._atomics = self._acquires = False

    @property
    def start(self) -> int:
        """When the running CTA began."""
        return self._starts[-1]

    def meet(self) -> None:
        """All threads of the CTA pass a barrier."""
        self.time += 1
        self.barrier = self.time
        self.warp_barriers[:] = self.time

    def meet_warps(self, warps: np.ndarray) -> None:
        """The lanes of some warps pass a barrier of their warp."""
        self.time += 1
        self.warp_barriers[warps] = self.time

    def atomic(self) -> None:
        """A thread has seen what others did by an atomic operation."""
        self._atomics = True

    def fence(self) -> None:
        """A thread orders what it did before, and what it will do, for the whole device."""
        self.time += 1
        self._fences[-1] = self.time
        self._acquires |= self._atomics

    def stamps(self, lanes: Lanes, number: int, atomic: bool) -> np.ndarray:
        """What an access by these threads leaves behind."""
        return lanes.threads | (self.time << _TIME | number << _NUMBER | _ATOMIC * atomic)

    def unordered(self, old: np.ndarray, new: np.ndarray, everywhere: bool) -> np.ndarray:
        """Which old stamps are not ordered before new ones, made now, that they conflict with.

        Args:
            old: Stamps; 0 is nobody's.
            new: Stamps, broadcast to the shape of the old ones.
            everywhere: Whether other CTAs see these bytes.
        """
        time, threads = old >> _TIME, new & _THREAD
        others = (old & _THREAD) != threads
        same_warp = (old & _THREAD) >> 5 == threads >> 5
        since = np.where(same_warp, self.warp_barriers[threads >> 5], self.barrier)
        conflicts = others & (time >= since) & (old > 0)
        foreign = (old > 0) & (time < self.start)
        if everywhere and foreign.any():
            conflicts |= foreign & ~self._published(time)
        return conflicts & ((old & new & _ATOMIC) == 0)

    def _published(self, time: np.ndarray) -> np.ndarray:
        """Whether another CTA's access was fenced before an atomic that this one fenced after."""
        if not self._acquires:
            return np.zeros(time.shape, bool)
        ctas = np.searchsorted(self._starts, time, side="right") - 1
        return np.array(self._fences)[ctas] > time


class Shadow:
    """The stamps of one buffer.

    Args:
        num_bytes: Its size.
        everywhere: Whether other CTAs see it.
    """

    def __init__(self, num_bytes: int, everywhere: bool):
        self.everywhere = everywhere
        self._granule = 16  # bytes that every access so far touched all or none of
        self._written = False
        self._unwritten_reads: list[tuple[np.ndarray, np.ndarray]] = []
        writers, readers, other_readers = np.zeros((3, -(-num_bytes // self._granule)), np.int64)
        self.writers, self.readers, self.other_readers = writers, readers, other_readers

    def granules(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """[num_threads, n] those that each access of `size` bytes touches; no axis for n = 1."""
        if size < self._granule:
            self._refine(size)
        first = offsets // self._granule
        count = size // self._granule
        return first if count == 1 else first[:, None] + np.arange(count)

    def never_written(self, granules: np.ndarray, order: Order) -> int | None:
        """The first access to a granule that the running CTA has not written yet, if any."""
        missing = self.writers[granules] < order.start << _TIME
        return int(np.nonzero(missing)[0][0]) if missing.any() else None

    def read(self, granules: np.ndarray, stamps: np.ndarray, order: Order) -> np.ndarray | None:
        """Enter a load; returns a stamp per access that it races with (0 for none), if any."""
        if not self._written:  # most buffers never are: then nobody has to know who reads
            self._unwritten_reads.append((granules, stamps))
            if len(self._unwritten_reads) > _MANY:
                self._catch_up()
            return None
        self._enter_read(granules, stamps)
        return self._race(self.writers[granules], stamps, order)

    def write(self, granules: np.ndarray, stamps: np.ndarray, order: Order) -> np.ndarray | None:
        """Enter a store; returns a stamp per access that it races with (0 for none), if any."""
        self._written = True
        self._catch_up()
        for past in (self.writers, self.readers, self.other_readers):
            race = self._race(past[granules], stamps, order)
            if race is not None:
                return race
        self.writers[granules] = _like(stamps, granules)
        return self._race(self.writers[granules], stamps, order)  # two threads at once

    def _enter_read(self, granules: np.ndarray, stamps: np.ndarray) -> None:
        stamps = _like(stamps, granules)
        last = self.readers[granules]
        another = (last ^ stamps) & _THREAD != 0
        self.other_readers[granules[another]] = last[another]
        self.readers[granules] = stamps
        beaten = self.readers[granules] != stamps  # several threads read it at once
        if beaten.any():
            self.other_readers[granules[beaten]] = stamps[beaten]

    def _catch_up(self) -> None:
        for granules, stamps in self._unwritten_reads:
            self._enter_read(granules, stamps)
        self._unwritten_reads.clear()

    def _refine(self, granule: int) -> None:
        """Smaller granules; each has the stamps of the one that it was part of."""
        self._catch_up()
        factor = self._granule // granule
        for name in ("writers", "readers", "other_readers"):
            setattr(self, name, np.repeat(getattr(self, name), factor))
        self._granule = granule

    def _race(self, old: np.ndarray, stamps: np.ndarray, order: Order) -> np.ndarray | None:
        if not self.everywhere and old.max() < order.barrier << _TIME:
            return None
        if self.everywhere and not old.any():
            return None
        conflicts = order.unordered(old, _like(stamps, old), self.everywhere)
        if not conflicts.any():
            return None
        return np.where(conflicts, old, 0).reshape(len(old), -1).max(axis=1)


def _like(stamps: np.ndarray, granules: np.ndarray) -> np.ndarray:
    """The stamp of each access for each of its granules."""
    return stamps if granules.ndim == 1 else np.broadcast_to(stamps[:, None], granules.shape)


def stamp_number(stamp: int) -> int:
    """The number of the instruction that made an access."""
    return stamp >> _NUMBER & (1 << _TIME - _NUMBER) - 1


def stamp_thread(stamp: int) -> int:
    """The thread that made an access."""
    return stamp & _THREAD
