"""What is claimed, what was measured, and whether the two agree: numbers and words, no drawing.

A tolerance is stated where the row is written, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from .workload import Workload

Verdict = Literal["agrees", "differs", "measured"]  # measured: nothing to compare it with


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The measured values that count as agreement: ``low <= measured <= high``.

    Examples:
        >>> Tolerance.around(38.2, 5).admits(42.9), Tolerance.at_most(4).admits(4.1)
        (True, False)
        >>> str(Tolerance.around(38.2, 5)), str(Tolerance.at_most(4)), str(Tolerance.exactly(0))
        ('33.2 to 43.2', 'at most 4', '0')
    """

    low: float
    high: float

    @classmethod
    def around(cls, value: float, deviation: float) -> Tolerance:
        """``value``, give or take ``deviation`` in its own unit (points, if it is a per cent)."""
        return cls(value - deviation, value + deviation)

    @classmethod
    def within(cls, value: float, share: float) -> Tolerance:
        """``value``, give or take a share of it: 0.1 is ten per cent."""
        return cls.around(value, abs(value) * share)

    @classmethod
    def between(cls, low: float, high: float) -> Tolerance:
        """A range that was named as one."""
        return cls(low, high)

    @classmethod
    def at_most(cls, value: float) -> Tolerance:
        """No more than ``value``."""
        return cls(float("-inf"), value)

    @classmethod
    def at_least(cls, value: float) -> Tolerance:
        """No less than ``value``."""
        return cls(value, float("inf"))

    @classmethod
    def exactly(cls, value: float) -> Tolerance:
        """``value`` and nothing else: what is counted and follows by arithmetic."""
        return cls(value, value)

    def admits(self, measured: float) -> bool:
        """Is it agreement? Never for NaN."""
        return self.low <= measured <= self.high

    def __str__(self) -> str:
        low, high = _text(self.low), _text(self.high)
        if self.low == self.high:
            return low
        if self.low == float("-inf"):
            return f"at most {high}"
        return f"at least {low}" if self.high == float("inf") else f"{low} to {high}"


def _text(value: float) -> str:
    is_count = value in (float("inf"), float("-inf")) or value == int(value)
    return f"{value:,.0f}" if is_count else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One number beside what is said of it."""

    what: str
    said: str  # the paper's value or words; empty: it says nothing of this
    measured: float
    unit: str = ""
    tolerance: Tolerance | None = None  # None: measured, for whom it concerns
    wall: bool = False  # a wall time or made of some: differs by machine and from run to run
    note: str = ""  # what it depends on; why it differs

    @property
    def verdict(self) -> Verdict:
        """Whether what is said and what was measured agree."""
        if self.tolerance is None:
            return "measured"
        return "agrees" if self.tolerance.admits(self.measured) else "differs"


@dataclass(frozen=True)
class Claim:
    """Everything that is said of one claim."""

    key: str  # its name on the command line
    title: str
    said: str  # the claim, in a sentence
    source: str  # where it is made: the paper's section and figure
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # assumptions, and where the claim does not hold
    series: dict[str, Any] = field(default_factory=dict)  # plain numbers, for figures and JSON

    @property
    def verdict(self) -> Verdict:
        """``differs`` if one row does, ``agrees`` if at least one can and all that can do."""
        verdicts = {row.verdict for row in self.rows}
        if "differs" in verdicts:
            return "differs"
        return "agrees" if "agrees" in verdicts else "measured"


@dataclass(frozen=True)
class Context:
    """What every claim is measured with."""

    seed: int = 0
    quick: bool = False  # fewer requests and rounds: a look, not a measurement
    trace: Workload | None = None  # the user's own, beside the shipped ones
    tell: Callable[[str], None] = lambda doing: None  # what is being done now, for a progress bar


Measure = Callable[[Context], Claim]
