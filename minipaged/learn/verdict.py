"""What came of a check, in words; made in the judge's process and shown in another."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Verdict:
    """How a learner's file was judged.

    ``outcome`` is accepted, rejected, unwritten (a hole is left), unreadable (not Python, or it
    lacks a name), raised, endless, or died (it took the process with it).
    """

    outcome: str
    headline: str = ""
    story: tuple[str, ...] = ()
    figures: str = ""  # one line, of a success
    printed: str = ""  # by the learner's code, in the program that failed
    seconds: float = 0.0

    @property
    def is_accepted(self) -> bool:
        """The exercise is solved."""
        return self.outcome == "accepted"

    @property
    def text(self) -> str:
        """All that is said against it."""
        return "\n".join([self.headline, *self.story])

    def dump(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Verdict:
        """From JSON."""
        fields = json.loads(text)
        return cls(**fields | {"story": tuple(fields["story"])})
