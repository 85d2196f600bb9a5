"""What a judgement found: failures, what was judged, what was not; knows no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Failure:
    """One broken promise, with the smallest case that shows it.

    Attributes:
        check: Name of the law that was broken, as the table of checks lists it.
        level: The level the law belongs to, 0 to 6.
        message: One sentence: what was expected, what came, where.
        case: The inputs that show it, or None where there are none to keep.
        picture: Lines to print under the message: which keys were attended to, say.
        calls: Calls of the subject until this failure was first seen.
        seconds: Time until then.
        diagnosis: Name of the known fault that gives the same output, or None.
        path: The saved counterexample, or None.
    """

    check: str
    level: int
    message: str
    case: Any = None
    picture: str = ""
    calls: int = 0
    seconds: float = 0.0
    diagnosis: str | None = None
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.check} (level {self.level}): {self.message}"


@dataclass
class Report:
    """The verdict on one subject.

    Attributes:
        subject: What was judged, by name.
        kind: What it is: kernel, writer, copy, merge, quantizer, replay, block manager.
        convention: How it was called.
        level: The highest level that was asked for.
        failures: Broken promises, the first one found first; empty if it passed.
        judged: Check name to how often it was applied.
        unreached: Checks that were asked for, and for which there was no time.
        not_judged: Why a check or a feature was left out, one sentence each.
        calls: Calls of the subject, all together.
        cases: Different inputs that were tried.
        seconds: Wall time.
        figures: Measurements worth a line on the card: "error budget used" and the like.
    """

    subject: str
    kind: str = "kernel"
    convention: str = "native"
    level: int = 3
    failures: list[Failure] = field(default_factory=list)
    judged: dict[str, int] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)
    not_judged: list[str] = field(default_factory=list)
    calls: int = 0
    cases: int = 0
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if every check that was asked for was applied, and nothing failed."""
        return not self.failures and bool(self.judged) and not self.unreached

    @property
    def verdict(self) -> str:
        """In a word or two: "passed", "FAILED", or "NOT DECIDED" if there was no time."""
        if self.failures:
            return "FAILED"
        return "passed" if self.passed else "NOT DECIDED"

    def raise_if_failed(self) -> None:
        """For use inside a test: do nothing, or raise `AssertionError` with the whole story."""
        if not self.passed:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        head = f"{self.subject}: {self.verdict}"
        tail = f"{self.cases} cases, {self.calls} calls, {self.seconds:.1f} s"
        lines = [f"{head} ({self.kind}, {self.convention}, level {self.level}; {tail})"]
        for failure in self.failures:
            lines += [f"  {failure}", *_indented(failure.picture)]
            if failure.diagnosis:
                lines.append(f"    same output as the known fault: {failure.diagnosis}")
            if failure.path:
                lines.append(f"    saved: {failure.path}")
        if self.unreached:
            lines.append(f"  no time was left for: {', '.join(self.unreached)}")
        if not self.failures and not self.judged:
            lines.append("  nothing was judged: " + ("; ".join(self.not_judged) or "no case ran"))
        return "\n".join(lines)


def _indented(text: str) -> Sequence[str]:
    return [f"    {line}" for line in text.splitlines()]
