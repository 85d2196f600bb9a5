"""What is claimed, what was measured, and whether the two agree: numbers and words, no drawing.

A tolerance is stated where the row is written, before anything is measured. What a number is
compared with is said too: what somebody else says is another thing than a law of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from .workload import Workload

Basis = Literal[
    "said",  # by the paper, or by somebody else
    "foretold",  # here: by a law, by counting, or by the simulator
    "fitted",  # said, and a constant was chosen by it: agreement is no evidence
]
Verdict = Literal[
    "agrees",
    "near",  # outside of the range that is said, by less than was allowed
    "differs",
    "holds",  # as foretold
    "fails",  # foretold otherwise
    "fitted",
    "measured",  # nothing to compare it with
    "unjudged",  # there is, but what was drawn is too little for it
]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The measured values that count as agreement: ``low <= measured <= high``.

    Examples:
        >>> Tolerance.around(38.2, 5).admits(42.9), Tolerance.at_most(4).admits(4.1)
        (True, False)
        >>> str(Tolerance.around(38.2, 5)), str(Tolerance.at_most(4)), str(Tolerance.exactly(0))
        ('33.2 to 43.2', 'at most 4', '0')
        >>> str(Tolerance.points(96.3, 5)), str(Tolerance.points(0.35, 0.5, share=0.1))
        ('91.3 to 100', '0.315 to 0.385')
    """

    low: float
    high: float

    @classmethod
    def around(cls, value: float, deviation: float) -> Tolerance:
        """``value``, give or take ``deviation`` in its own unit (points, if it is a per cent)."""
        return cls(value - deviation, value + deviation)

    @classmethod
    def points(cls, percent: float, points: float, share: float | None = None) -> Tolerance:
        """A per cent, give or take ``points`` and at most a ``share`` of it; from 0 to 100."""
        deviation = points if share is None else min(points, percent * share)
        return cls(max(0.0, percent - deviation), min(100.0, percent + deviation))

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
        low, high = digits(self.low), digits(self.high)
        if low == high:
            return low
        if self.low == float("-inf"):
            return f"at most {high}"
        return f"at least {low}" if self.high == float("inf") else f"{low} to {high}"


def digits(value: float) -> str:
    """A number as it is read: three digits, or all of a count.

    Examples:
        >>> digits(96.52), digits(0.01234), digits(12031), digits(0), digits(1234.5)
        ('96.5', '0.0123', '12,031', '0', '1,234')
    """
    if not math.isfinite(value):
        return "-"
    is_count = value == int(value) or abs(value) >= 1000
    return f"{value:,.0f}" if is_count else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One number beside what is said of it."""

    what: str
    said: str  # the paper's value or words; empty: nobody says anything of this
    measured: float
    unit: str = ""
    tolerance: Tolerance | None = None  # None: measured, for whom it concerns
    wall: bool = False  # a wall time or made of some: differs by machine and from run to run
    note: str = ""  # what it depends on; why it differs
    basis: Basis = "said"  # what the tolerance is about
    span: Tolerance | None = None  # the range that is said, if the tolerance is wider
    few: bool = False  # too little was drawn for a verdict: such a number is biased

    @property
    def verdict(self) -> Verdict:
        """Whether what is said, or foretold, and what was measured agree."""
        if self.tolerance is None:
            return "measured"
        if self.few:
            return "unjudged"
        admitted = self.tolerance.admits(self.measured)
        if self.basis == "foretold":
            return "holds" if admitted else "fails"
        if not admitted:
            return "differs"
        if self.basis == "fitted":
            return "fitted"
        return "near" if self.span and not self.span.admits(self.measured) else "agrees"


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
    left_out: str = ""  # what was not measured because ``--quick`` was asked for

    @property
    def verdict(self) -> Verdict:
        """``differs`` if one row does, ``agrees`` if at least one can and all that can do."""
        verdicts = {row.verdict for row in self.rows}
        if verdicts & {"differs", "fails"}:
            return "differs"
        return "agrees" if verdicts & {"agrees", "near", "holds"} else "measured"


@dataclass(frozen=True)
class Context:
    """What every claim is measured with."""

    seed: int = 0
    quick: bool = False  # fewer requests and rounds: a look, not a measurement
    trace: Workload | None = None  # the user's own, beside the shipped ones
    tell: Callable[[str], None] = lambda doing: None  # what is being done now, for a progress bar


Measure = Callable[[Context], Claim]
