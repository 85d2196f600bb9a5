"""What a launch did, counted; knows bytes and sectors, not values.

Accesses of one instruction, in its n-th execution, by the lanes of one warp are one request. That
is how a card sees lockstep code, and close to how it sees diverging code. A request moves whole
sectors of 32 bytes, of which only the bytes that it asked for are useful:

    lane      0 1 2 3 ...               stride 1: 32 lanes x 4 bytes = 4 sectors, 100 % useful
    sectors  |#######|#######|
    sectors  |#       |#       |        stride 8: 32 sectors, 12.5 % useful
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from .order import ATOMIC, READ, WRITE

SECTOR = 32  # bytes
BANK = 4  # bytes of each of shared memory's 32 banks

Request: TypeAlias = list[tuple[int, int, int]]  # (lane's index in the warp, offset, bytes)
Site: TypeAlias = "tuple[int, int, Buffer, str]"  # an instruction, and what it does to which buffer


@dataclass(eq=False)
class Traffic:
    """Reads, or writes, or atomic updates."""

    elements: int = 0
    bytes: int = 0
    requests: int = 0
    sectors: int = 0
    useful_bytes: int = 0  # those of the moved bytes that somebody asked for
    max_per_thread: int = 0  # elements
    extra_cycles: int = 0  # of shared memory, because of bank conflicts

    @property
    def useful(self) -> float:
        """The useful share of what was moved."""
        return self.useful_bytes / (self.sectors * SECTOR) if self.sectors else 1.0

    def add(self, request: Request, buffer: Buffer) -> None:
        """Count one request."""
        asked = {(offset, size) for _, offset, size in request}
        num_bytes = sum(size for _, _, size in request)
        self.requests += 1
        self.bytes += num_bytes
        self.elements += num_bytes // buffer.itemsize
        if buffer.shared:
            self.extra_cycles += bank_conflicts(request)
            return
        self.useful_bytes += sum(size for _, size in asked)
        first_last = ((offset // SECTOR, (offset + size - 1) // SECTOR) for offset, size in asked)
        self.sectors += len({i for first, last in first_last for i in range(first, last + 1)})

    def include(self, other: Traffic) -> None:
        """Add another's counts to these, all but the maxima."""
        for count in fields(self):
            if count.name != "max_per_thread":
                total = getattr(self, count.name) + getattr(other, count.name)
                setattr(self, count.name, total)


@dataclass(eq=False)  # a key of the lanes' books: each is itself
class Buffer:
    """The traffic of one argument or shared array."""

    itemsize: int
    shared: bool
    reads: Traffic = field(default_factory=Traffic)
    writes: Traffic = field(default_factory=Traffic)
    atomics: Traffic = field(default_factory=Traffic)

    def of(self, kind: str) -> Traffic:
        """The traffic of a kind of access."""
        return {READ: self.reads, WRITE: self.writes, ATOMIC: self.atomics}[kind]

    def row(self) -> tuple[str, ...]:
        """Its line in the table."""
        kinds = self.reads, self.writes, self.atomics
        counts = [str(traffic.elements) for traffic in kinds]
        if self.shared:
            return (*counts, "", "", str(sum(traffic.extra_cycles for traffic in kinds)))
        total = Traffic()
        for traffic in kinds:
            total.include(traffic)
        return (*counts, str(total.sectors), f"{total.useful:.0%}" if total.sectors else "-", "")


@dataclass
class Trace:
    """The counts of one launch.

    Attributes:
        buffers: Arguments, by name.
        shared: Shared arrays, by name.
        reads, writes, atomics: Sums over `buffers`; `max_per_thread` is that of a thread's sum.
        barriers: How often a whole CTA met.
        collectives: How often lanes of a warp met, by kind.
        shared_bytes: The most shared memory that a CTA had.
    """

    num_ctas: int
    num_threads: int
    buffers: dict[str, Buffer] = field(default_factory=dict)
    shared: dict[str, Buffer] = field(default_factory=dict)
    reads: Traffic = field(default_factory=Traffic)
    writes: Traffic = field(default_factory=Traffic)
    atomics: Traffic = field(default_factory=Traffic)
    barriers: int = 0
    collectives: Counter[str] = field(default_factory=Counter)
    shared_bytes: int = 0

    def buffer(self, name: str, itemsize: int, *, shared: bool = False) -> Buffer:
        """The buffer of that name, new if there is none."""
        buffers = self.shared if shared else self.buffers
        return buffers.setdefault(name, Buffer(itemsize, shared))

    def collect(self, warp: dict[Site, list[Request]]) -> None:
        """Count what the lanes of a finished warp have noted."""
        elements: Counter[tuple[Traffic, int]] = Counter()  # of each lane
        for (_, _, buffer, kind), requests in warp.items():
            own, total = buffer.of(kind), getattr(self, kind + "s")
            for request in requests:
                own.add(request, buffer)
                for lane, _, size in request:
                    elements[own, lane] += size // buffer.itemsize
                    elements[total, lane] += 0 if buffer.shared else size // buffer.itemsize
        for (traffic, _), count in elements.items():
            traffic.max_per_thread = max(traffic.max_per_thread, count)

    def finish(self) -> Trace:
        """Sum up the buffers."""
        for kind in ("reads", "writes", "atomics"):
            total: Traffic = getattr(self, kind)
            for buffer in self.buffers.values():
                total.include(getattr(buffer, kind))
        return self

    def table(self) -> str:
        """One line for each buffer that was used, and what the CTAs did together."""
        title = ("buffer", "reads", "writes", "atomics", "sectors", "useful", "extra cycles")
        buffers = [*self.buffers.items(), *self.shared.items()]
        rows = [title, *((name, *buffer.row()) for name, buffer in buffers)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = []
        for name, *counts in rows:
            cells = [f"{x:>{width}}" for x, width in zip(counts, widths[1:])]
            lines.append("  ".join([f"{name:{widths[0]}}", *cells]).rstrip())
        met = ", ".join(f"{count} {kind}" for kind, count in sorted(self.collectives.items()))
        lines.append(
            f"{self.num_ctas} CTAs of {self.num_threads} threads, {self.barriers} barriers"
            + (f", {met}" if met else "")
        )
        return "\n".join(lines)


def bank_conflicts(request: Request) -> int:
    """The cycles a request to shared memory takes beyond those that its bytes need.

    Lanes that ask for 8 or 16 bytes are served 16 or 8 at a time. A bank gives one word a cycle, to
    however many lanes.
    """
    words: dict[tuple[int, int], set[int]] = defaultdict(set)
    for lane, offset, size in request:
        phase = lane * max(size, BANK) // (32 * BANK)
        for word in range(offset // BANK, (offset + size - 1) // BANK + 1):
            words[phase, word % 32].add(word)
    slowest: Counter[int] = Counter()
    for (phase, _), distinct in words.items():
        slowest[phase] = max(slowest[phase], len(distinct))
    return sum(slowest.values()) - len(slowest)
