"""Asynchronous copies into shared memory: what is under way, and what arrives at a wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minipaged_cuda.emulator.lanes import Lanes


@dataclass
class Copy:
    """One instruction's copies: for each thread, where to, what, and in which of its groups."""

    threads: np.ndarray
    places: np.ndarray  # [num_threads, size] bytes of shared memory
    data: np.ndarray  # [num_threads, size] uint8
    groups: np.ndarray
    number: int  # of the instruction

    def split(self, chosen: np.ndarray) -> Copy:
        """Some of the threads."""
        threads, places = self.threads[chosen], self.places[chosen]
        return Copy(threads, places, self.data[chosen], self.groups[chosen], self.number)


class Copies:
    """All copies that a CTA of `width` threads has begun and not yet waited for.

    `arrive` is told of each when its threads have waited for it.
    """

    def __init__(self, width: int, arrive: Callable[[Copy], None]):
        self._arrive = arrive
        self._pending: list[Copy] = []
        self._committed = np.zeros(width, np.int64)  # groups of each thread

    def begin(self) -> None:
        """Another CTA, which has begun no copy."""
        self._pending.clear()
        self._committed[:] = 0

    def issue(self, lanes: Lanes, places: np.ndarray, data: np.ndarray, number: int) -> None:
        """Threads begin to copy `data` [num_threads, size] to places in shared memory."""
        bytes_ = places[:, None] + np.arange(data.shape[1])
        groups = self._committed[lanes.threads]
        self._pending.append(Copy(lanes.threads, bytes_, data, groups, number))

    def commit(self, lanes: Lanes) -> None:
        """The copies begun since the last commit become a group."""
        self._committed[lanes.threads] += 1

    def wait(self, lanes: Lanes, num_left: int | None) -> None:
        """All groups of these threads arrive but the newest ones; with None, also what is in none.

        Arriving makes them writes of these threads, which a barrier must order for others.
        """
        left: list[Copy] = []
        for copy in self._pending:
            ready = lanes.where[copy.threads]
            if num_left is not None:
                ready = ready & (copy.groups < self._committed[copy.threads] - num_left)
            self._arrive(copy.split(ready))
            if not ready.all():
                left.append(copy.split(~ready))
        self._pending = left

    def under_way(self, offsets: np.ndarray, size: int) -> tuple[int, int] | None:
        """`(index of an access, number of the copy)` if bytes of an access are not there yet."""
        for copy in self._pending:
            hit = np.isin(offsets[:, None] + np.arange(size), copy.places).any(axis=1)
            if hit.any():
                return int(np.flatnonzero(hit)[0]), copy.number
        return None
