"""The one error of the sanitizer; knows how to say where and when, not what is right."""

from __future__ import annotations

from minipaged.core.errors import MinipagedError


class SanitizerError(MinipagedError):
    """A slot is used in a way that makes numbers wrong, now or later.

    Attributes:
        kind: one of the names in the table of ``docs/pages/how-to/sanitize.md``.
        step: the number of the step, from 1.
        sequence: the name of the sequence that does it; None where nobody can be named.
        block_id, slot, position: where, as far as it applies.
    """

    def __init__(
        self,
        kind: str,
        what: str,
        *,
        step: int,
        label: str | None = None,
        sequence: str | None = None,
        block_id: int | None = None,
        slot: int | None = None,
        position: int | None = None,
    ):
        when = f"step {step}" + (f" ({label})" if label else "")
        who = "" if sequence is None else f', sequence "{sequence}"'
        super().__init__(f"{when}{who}: {what}")
        self.kind, self.step, self.sequence = kind, step, sequence
        self.block_id, self.slot, self.position = block_id, slot, position
