"""What the slots of a pool do over time, whoever manages it; sums up, decides nothing.

    a request's run     [ tokens | later | never | rounding ]   of a contiguous manager
    its blocks          [ tokens | never ]                      with paging: behind the last token

What is left of the pool is free. Paper: figure 2, where rounding and free are "external & others".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from minipaged.core import BlockTable

from .contiguous import ContiguousTable

CLASSES = {  # of the paper's figure 2, in its order; in tables and in figures
    "tokens": "tokens",
    "reserved": "reserved, used later",
    "never_used": "reserved, never used",
    "holes": "free or rounded",
}


class Split(NamedTuple):
    """Slots of a pool by what they do; they add up to the pool."""

    tokens: float  # hold the K and V of a token
    later: float  # reserved, and will hold one
    never: float  # reserved, or behind the end in a last block, and will not
    rounding: float  # of a buddy allocator's runs, beyond what was reserved
    free: float

    @property
    def held(self) -> float:
        """Slots that no other request can have."""
        return self.tokens + self.later + self.never + self.rounding

    @property
    def waste(self) -> float:
        """Share of the held slots that hold no token, in per cent."""
        return 100 * (1 - self.tokens / self.held) if self.held else 0.0

    @property
    def empty(self) -> float:
        """Share of the pool that holds no token, in per cent."""
        return 100 * (1 - self.tokens / sum(self))

    def percent(self) -> dict[str, float]:
        """Of the pool, in ``CLASSES``."""
        whole = sum(self) / 100
        return {
            "tokens": self.tokens / whole,
            "reserved": self.later / whole,
            "never_used": self.never / whole,
            "holes": (self.rounding + self.free) / whole,
        }


class Bounds(NamedTuple):
    """Where, measured in slots, one class ends and the next begins."""

    tokens: int
    final: int  # what the same requests will hold in the end, as far as it is reserved
    promised: int
    held: int

    def split(self, num_slots: int) -> Split:
        """The classes between them."""
        tokens, final, promised, held = self
        return Split(tokens, final - tokens, promised - final, held - promised, num_slots - held)


def paged_bounds(num_tokens: int, num_held: int) -> Bounds:
    """Of blocks: nothing is reserved for later, and nothing rounded."""
    return Bounds(num_tokens, num_tokens, num_held, num_held)


def contiguous_bounds(requests: Iterable[tuple[BlockTable, int]]) -> Bounds:
    """Of runs.

    Args:
        requests: the tables of those that run, and the positions that each will have in the end.
    """
    tokens = final = promised = held = 0
    for table, final_len in requests:
        assert isinstance(table, ContiguousTable)
        tokens += table.num_reserved
        final += final_len
        promised += table.num_promised
        held += len(table.block_ids) * table.block_size
    return Bounds(tokens, final, promised, held)


@dataclass(slots=True)
class Average:
    """Means over time; each moment counts as long as it lasted."""

    num_slots: int
    seconds: float = 0.0
    running: float = 0.0
    bounds: list[float] = field(default_factory=lambda: [0.0] * 4)

    def add(self, seconds: float, num_running: int, bounds: Bounds) -> None:
        """Count a moment."""
        self.seconds += seconds
        self.running += seconds * num_running
        sums = self.bounds
        for i, bound in enumerate(bounds):
            sums[i] += seconds * bound

    @property
    def mean_running(self) -> float:
        """Sequences computed in a step."""
        return self.running / self.seconds if self.seconds else 0.0

    @property
    def split(self) -> Split:
        """Slots by what they did."""
        if not self.seconds:
            return Split(0, 0, 0, 0, self.num_slots)
        means = [bound / self.seconds for bound in self.bounds]
        return Bounds(*means).split(self.num_slots)  # type: ignore[arg-type]
