"""How long a device takes: events on a GPU, the wall clock on a CPU; knows not what is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Protocol

import torch

WARM_UP = 3  # calls of each before the first that counts: compiled, loaded, allocated
FLUSH_BYTES = 2**28  # more than any cache holds, written between two measurements
NUM_FLUSHES = 16  # about a millisecond, in which the host can prepare what is measured


class Clock(Protocol):
    """A device and its time."""

    device: torch.device

    def seconds(self, work: Callable[[], Any]) -> float:
        """Of one call, from a cold cache."""
        ...

    def finish(self) -> None:
        """Wait until all that was begun is done."""
        ...

    def release(self) -> int:
        """Give back the memory that nobody uses any more; returns the bytes that are free."""
        ...


class CudaClock:
    """The GPU's own clock: two events around the work, without the launch before it."""

    def __init__(self, device: torch.device):
        self.device = device
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)

    def seconds(self, work: Callable[[], Any]) -> float:
        """Between the events; while the cache is flushed the host gets ahead of the device."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(NUM_FLUSHES):
            self._flush.zero_()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def finish(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)

    def release(self) -> int:
        """What torch keeps for later goes back to the device."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]


class HostClock:
    """Wall time on a CPU, for trying the program out."""

    device = torch.device("cpu")

    def seconds(self, work: Callable[[], Any]) -> float:
        """Of one call."""
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def finish(self) -> None:
        """A CPU is never behind."""

    def release(self) -> int:
        """Enough for a trial."""
        return 2**30


def in_turns(clock: Clock, works: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The median seconds of each, measured one after the other, round by round.

    So a device whose clock drifts moves all of them alike.
    """
    for work in works:
        for _ in range(WARM_UP):
            work()
    clock.finish()
    samples = [[clock.seconds(work) for work in works] for _ in range(rounds)]
    return [median(column) for column in zip(*samples)]


def launch_seconds(clock: Clock, work: Callable[[], Any], calls: int) -> float:
    """What one call keeps the host busy; the device may be behind."""
    for _ in range(WARM_UP):
        work()
    clock.finish()
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    seconds = time.perf_counter() - begin
    clock.finish()
    return seconds / calls
