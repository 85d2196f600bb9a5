"""The threads of a CTA as greenlets, and their meetings; knows who waits for whom, not for what.

A lane runs until it parks at a barrier or a warp collective. When the last one that is waited for
arrives, all of them are put back into the queue of those that can run:

    ready   | 3 | 4 | ... | 31 |          lane 3 is next
    parked  | 0 | 1 | 2 |                 at shfl_xor_sync, mask 0xffffffff: 3 of 32 are there
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from .errors import Deadlock
from .launch import Dim3, Launch, unravelled
from .order import Known
from .places import Place, here
from .shared import SharedMemory
from .trace import Request, Site

WARP_SIZE = 32
PATIENCE = 1000  # rounds in which every lane that can run only spins


class Wait(NamedTuple):
    """What a parked lane waits for."""

    kind: str  # "syncthreads", "shfl_xor_sync", ...
    mask: int | None  # None for a barrier of the whole CTA
    value: Any
    place: Place

    def __str__(self) -> str:
        name = self.kind if self.mask is None else f"{self.kind} with mask {self.mask:#x}"
        return f"{name} at {self.place}"


class Lane(greenlet):
    """One thread: a greenlet that knows its place in the CTA."""

    def __init__(self, run: Callable[[], Any], cta: Cta, thread: int, thread_index: Dim3) -> None:
        super().__init__(run, cta.scheduler)
        self.gr_context = copy_context()
        self.cta, self.thread, self.thread_index = cta, thread, thread_index
        self.warp, self.index = cta.warps[thread // WARP_SIZE], thread % WARP_SIZE
        self.wait: Any = None  # a Wait while it is parked
        self.result: Any = None
        self.known: Known = cta.nothing_known
        self.published: Known = cta.nothing_known
        self.visits: dict[Site, int] = {}  # how often this lane was at a site
        self.last_offset = -1  # who spins looks at one place
        self.last_read: Any = None  # memory, offset and instruction, until anybody else may run
        self.repeats = 0  # of that read

    def __str__(self) -> str:
        index = self.thread_index
        return f"thread {self.thread if max(index[1:]) == 0 else tuple(index)}"

    def note(self, site: Site, offset: int, size: int) -> None:
        """Remember an access for the trace: the n-th at this site belongs to the n-th of others."""
        n = self.visits.get(site, 0)
        self.visits[site] = n + 1
        requests = self.warp.requests.setdefault(site, [])
        if n == len(requests):
            requests.append([])
        requests[n].append((self.index, offset, size))

    def park(self) -> Any:
        """Let others run until somebody wakes this lane; returns what it was waiting for."""
        self.cta.idle, self.last_read = 0, None
        self.cta.scheduler.switch()
        return self.result

    def pause(self) -> None:
        """Let everybody else run first.

        Raises:
            Deadlock: Everybody pauses again and again, and does nothing else in between but to look
                at one place.
        """
        cta = self.cta
        cta.idle += 1
        if cta.idle > PATIENCE * len(cta.lanes):
            raise Deadlock(
                f"{self} of {cta} spins at {here()}, and no thread does anything else any more "
                "(CTAs run one after the other here: none can wait for a later one)"
            )
        self.last_read = None
        cta.ready.append(self)
        cta.scheduler.switch()

    def fence(self) -> None:
        """What this lane did and knows can be published by its next atomic."""
        self.published = {**self.known, self: self.cta.launch.tick()}


@dataclass
class Warp:
    """Up to 32 lanes, and those of them that wait, by what they wait for."""

    index: int
    lanes: list[Lane] = field(default_factory=list)
    waiting: dict[tuple[str, int], list[Lane]] = field(default_factory=dict)
    requests: dict[Site, list[Request]] = field(default_factory=dict)  # for the trace

    def mask(self) -> int:
        """The lanes that there are; fewer than 32 in the last warp of some CTAs."""
        return (1 << len(self.lanes)) - 1


class Cta:
    """One cooperative thread array: its lanes, its queue, its barrier and its shared memory."""

    def __init__(self, launch: Launch, index: Dim3, kernel: Callable[[], Any]) -> None:
        self.launch, self.index = launch, index
        self.scheduler = getcurrent()
        self.nothing_known: Known = {}
        self.shared = SharedMemory(launch)
        self.at_barrier: list[Lane] = []
        self.gathering: list[Lane] = []  # at an activemask
        self.idle = 0
        threads = unravelled(launch.num_threads)
        self.warps = [Warp(i) for i in range(-(-len(threads) // WARP_SIZE))]
        self.lanes = [Lane(kernel, self, i, index) for i, index in enumerate(threads)]
        for lane in self.lanes:
            lane.warp.lanes.append(lane)
        self.ready = deque(launch.order(self.lanes))

    def __str__(self) -> str:
        return f"CTA {tuple(self.index)}"

    def wake(self, results: dict[Lane, Any]) -> None:
        """Let parked lanes run again, each with its result."""
        for lane, result in results.items():
            lane.wait, lane.result = None, result
        self.ready.extend(self.launch.order(list(results)))
