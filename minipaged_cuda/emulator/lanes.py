"""Sets of threads of a CTA that execute an instruction together; knows no instruction.

Arrays have a whole number of warps; a thread that does not exist is in no set:

    thread   0  1  2 ... 31 | 32 33 ... 63 | 64 ...
    where    T  T  T ...  T |  F  T ...  F |  F ...
    warps           0               1
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

WARP = 32
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


class Lanes:
    """An immutable set of threads; `LaneSets` makes them, so equal sets are one object."""

    def __init__(self, where: np.ndarray, sets: LaneSets):
        self.where, self.sets = where, sets
        self.threads = np.flatnonzero(where)
        self.full = len(self.threads) == len(where)
        self.pick = slice(None) if self.full else self.threads  # indexes an array of all threads
        self.warps = np.flatnonzero(where.reshape(-1, WARP).any(axis=1))
        self.num_warps = len(self.warps)

    def __len__(self) -> int:
        return len(self.threads)

    def __and__(self, where: np.ndarray) -> Lanes:
        return self.sets.of(self.where & where)

    def __or__(self, other: Lanes) -> Lanes:
        return self.sets.of(self.where | other.where)

    def minus(self, other: Lanes) -> Lanes:
        """Those in this set and not in the other."""
        return self.sets.of(self.where & ~other.where)

    def part(self, chosen: np.ndarray) -> Lanes:
        """Those of `threads` that are chosen; one truth value for each."""
        where = np.zeros_like(self.where)
        where[self.threads[chosen]] = True
        return self.sets.of(where)

    @cached_property
    def ballot(self) -> np.ndarray:
        """[num_warps of the CTA] uint32: the bit of each lane that is in."""
        return np.bitwise_or.reduce(np.where(self.where.reshape(-1, WARP), _BIT, 0), axis=1)

    @cached_property
    def whole(self) -> bool:
        """Whether no lane of these warps is left out."""
        everybody = self.sets.everybody.where.reshape(-1, WARP)[self.warps]
        return bool((self.where.reshape(-1, WARP)[self.warps] == everybody).all())

    @cached_property
    def warp_keys(self) -> np.ndarray:
        """Numbers that keep the warps apart when sectors are counted."""
        return (self.threads // WARP) << 44

    def sectors(self, offsets: np.ndarray) -> int:
        """Distinct 32-byte sectors, each warp by itself; an access never straddles two."""
        keys = self.warp_keys + (offsets >> 5)
        keys.sort()
        return int(np.count_nonzero(keys[1:] != keys[:-1])) + 1


class LaneSets:
    """All sets of threads that a CTA has come to need.

    Attributes:
        everybody: The threads that exist.
    """

    def __init__(self, num_threads: int):
        self._known: dict[bytes, Lanes] = {}
        self.everybody = self.of(np.arange(-(-num_threads // WARP) * WARP) < num_threads)

    def of(self, where: np.ndarray) -> Lanes:
        """The set of those threads for which `where` is true."""
        key = where.tobytes()
        if key not in self._known:
            self._known[key] = Lanes(where, self)
        return self._known[key]
