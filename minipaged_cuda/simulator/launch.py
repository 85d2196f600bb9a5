"""What all CTAs of a launch have in common; knows its extent, its clock and its schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple, TypeAlias

from .trace import Trace

Order: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


class Dim3(NamedTuple):
    """A place in a grid, or its extent."""

    x: int
    y: int
    z: int


@dataclass
class Launch:
    """What all CTAs of a launch have in common."""

    grid: Dim3
    num_threads: Dim3
    order: Order  # who comes first, among equals
    trace: Trace
    dynamic_shared: int
    shared_limit: int
    check_races: bool
    clock: int = 0

    def tick(self) -> int:
        """The end of everything before now."""
        self.clock += 1
        return self.clock - 1


def ordering(schedule: str, seed: int) -> Order:
    """The order of a schedule: `forward`, `reverse`, or `random`, which the seed decides."""
    random = Random(seed)
    orders: dict[str, Order] = {
        "forward": lambda them: them,
        "reverse": lambda them: them[::-1],
        "random": lambda them: random.sample(them, len(them)),
    }
    if schedule not in orders:
        raise ValueError(f"schedule is one of {list(orders)}, not {schedule!r}")
    return orders[schedule]


@lru_cache(maxsize=32)
def unravelled(extent: Dim3) -> Sequence[Dim3]:
    """All indices of a grid, x fastest."""
    zs, ys, xs = range(extent.z), range(extent.y), range(extent.x)
    return tuple(Dim3(x, y, z) for z in zs for y in ys for x in xs)
