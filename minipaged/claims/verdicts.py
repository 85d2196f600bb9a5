"""Verdicts in words and marks, and how often each was reached; measures nothing.

What others say and what is foretold here are counted apart: a law that holds is no evidence for a
paper's number, and a number that a constant was fitted to is none either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .claim import Claim, Row, Verdict

MARKS: dict[Verdict, str] = {
    "agrees": "✓ agrees",
    "near": "≈ nearly",
    "differs": "✗ differs",
    "holds": "✓ as foretold",
    "fails": "✗ not as foretold",
    "fitted": "· fitted",
    "measured": "· measured",
    "unjudged": "- too few",
}
WORDS: dict[str, str] = {  # behind a number, in the summary
    "agrees": "agreeing",
    "near": "just outside of the range that is said",
    "differs": "differing",
    "holds": "as foretold",
    "fails": "not so",
    "fitted": "that a constant was fitted to, so no evidence",
    "measured": "just measured",
    "unjudged": "not judged, because too little was drawn",
}
SAID: tuple[Verdict, ...] = ("agrees", "near", "differs")
FORETOLD: tuple[Verdict, ...] = ("holds", "fails")


def mark_of(row: Row) -> str:
    """The verdict as it stands at the end of a row."""
    if row.verdict == "near" and row.span:
        return "≈ just below" if row.measured < row.span.low else "≈ just above"
    return MARKS[row.verdict]


def reached(claims: Iterable[Claim]) -> list[Verdict]:
    """The verdicts that some row has, in the order of ``MARKS``."""
    found = {row.verdict for claim in claims for row in claim.rows}
    return [verdict for verdict in MARKS if verdict in found]


def counts_of(claim: Claim, verdicts: Iterable[Verdict]) -> list[str]:
    """How many of a claim's numbers have each of the verdicts; none is empty."""
    count = Counter(row.verdict for row in claim.rows)
    return [str(count[verdict] or "") for verdict in verdicts]


def summary(claims: Sequence[Claim]) -> str:
    """How many numbers there are, and what became of each kind of comparison.

    What is foretold here is counted apart from what others say.
    """
    count = Counter[str](row.verdict for claim in claims for row in claim.rows)
    parts = []
    for kind, verdicts in (("what others say", SAID), ("what is foretold here", FORETOLD)):
        if total := sum(count[verdict] for verdict in verdicts):
            parts.append(f"{total} beside {kind} ({_counts(count, verdicts)})")
    others = [verdict for verdict in MARKS if verdict not in SAID + FORETOLD]
    parts += [_counts(count, [verdict]) for verdict in others if count[verdict]]
    head = f"{counted(count.total(), 'number')} of {counted(len(claims), 'claim')}"
    return f"{head}: {'; '.join(parts)}."


def _counts(count: Counter[str], verdicts: Sequence[str]) -> str:
    return ", ".join(f"{count[v]} {WORDS[v]}" for v in verdicts if count[v])


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Examples:
        >>> counted(1, "claim"), counted(1200, "request")
        ('1 claim', '1,200 requests')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
