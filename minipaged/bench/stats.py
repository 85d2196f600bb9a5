"""What a number of rounds allows to say: medians, spread, ratios, and when to say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

ENOUGH_CPU = 0.9  # who got less of what he asked for was disturbed
LESS_IS_BETTER = ("s", "ms", "µs", "MB")
MORE_IS_BETTER = ("tok/s", "GB/s", "GFLOP/s", "ops/s", "cases/s")  # other units have no better


@dataclass(frozen=True)
class Figure:
    """One number of one engine: what several rounds gave, and what it may be compared with."""

    test: str
    engine: str
    unit: str
    values: tuple[float, ...]  # one per round; value i of every engine is of the same round
    share: float | None = None  # of the CPU time asked for, in the worst round; None: not measured
    limit: float | None = None  # what this machine could do at best, in the same unit
    note: str = ""  # how the work was checked, and anything else a reader must know
    other_work: str = ""  # why no ratio may be formed, if the work was another

    @property
    def median(self) -> float:
        """The figure to quote."""
        return median(self.values)

    @property
    def disturbed(self) -> bool:
        """Somebody else used the processors: not to be quoted."""
        return self.share is not None and self.share < ENOUGH_CPU

    @property
    def of_limit(self) -> float | None:
        """Which part of what the machine could do was reached; 1.0 is all of it."""
        if not self.limit:
            return None
        is_time = self.unit in LESS_IS_BETTER
        return self.limit / self.median if is_time else self.median / self.limit

    def row(self) -> dict[str, Any]:
        """Everything, for a file."""
        computed = {"median": self.median, "min": min(self.values), "max": max(self.values)}
        return {**asdict(self), **computed, "of_limit": self.of_limit, "disturbed": self.disturbed}


@dataclass(frozen=True)
class Ratio:
    """How many times better ours is than a peer's, round by round; or why that is not said."""

    test: str
    ours: str
    peer: str
    unit: str
    values: tuple[float, ...]
    refusal: str = ""

    @property
    def median(self) -> float:
        """The ratio to quote, unless it is refused."""
        return median(self.values)

    @property
    def text(self) -> str:
        """As it stands in a table; a ratio of disturbed figures is marked as such."""
        word = self.refusal.partition(":")[0]
        number = f"{self.median:.2f}x ({min(self.values):.2f}-{max(self.values):.2f})"
        if word == "disturbed":
            return f"{word}: {self.median:.2f}x"
        return word or number

    def row(self) -> dict[str, Any]:
        """Everything, for a file; a refused ratio is none."""
        quoted = None if self.refusal else self.median
        return {**asdict(self), "ratio": quoted}


def ratios(figures: Sequence[Figure], ours: str = "minipaged") -> list[Ratio]:
    """Ours against every other engine's figure of the same test and unit, above 1 where better.

    Refused where the spread swallows it: the rounds do not agree on who is better, or lie further
    apart than their median is from 1; where there is but one round; where the work differs; and
    where either was disturbed.
    """
    rated = LESS_IS_BETTER + MORE_IS_BETTER
    own = {(f.test, f.unit): f for f in figures if f.engine == ours and f.unit in rated}
    pairs = ((own.get((f.test, f.unit)), f) for f in figures if f.engine != ours)
    return [_ratio(mine, theirs) for mine, theirs in pairs if mine is not None]


def _ratio(ours: Figure, theirs: Figure) -> Ratio:
    values = tuple(a / b for a, b in zip(ours.values, theirs.values))
    if ours.unit in LESS_IS_BETTER:
        values = tuple(1 / value for value in values)
    other_work = ours.other_work or theirs.other_work
    refusal = f"other work: {other_work}" if other_work else _swallowed(values)
    for figure in (ours, theirs):
        if not refusal and figure.disturbed:
            refusal = f"disturbed: {figure.engine} got {figure.share:.2f} of the CPU"
    return Ratio(ours.test, ours.engine, theirs.engine, ours.unit, values, refusal)


def _swallowed(values: Sequence[float]) -> str:
    """Why rounds with these ratios say nothing, or ""."""
    low, high = min(values), max(values)
    if len(values) < 2:
        return "one round: shows no spread"
    if low <= 1 <= high or abs(median(values) - 1) <= (high - low) / 2:
        return f"too noisy: {low:.2f} to {high:.2f}"
    return ""
