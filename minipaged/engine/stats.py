"""Counts tokens, blocks and seconds as steps go by; decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .scheduler import Step


@dataclass(slots=True)
class EngineStats:
    """What the engine did since it was loaded; loading and compiling are in no other figure.

    A step that computes any prompt (or recomputes anything) is a prefill step, with its decodes;
    decode speed is measured over the steps that only decode.
    """

    load_seconds: float = 0.0
    compile_seconds: float = 0.0
    num_steps: int = 0
    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0  # found instead of computed
    tokens_recomputed: int = 0  # computed again after a preemption
    prefill_seconds: float = 0.0
    tokens_generated: int = 0
    decode_tokens: int = 0  # generated in decode steps
    decode_seconds: float = 0.0
    num_preemptions: int = 0  # times that a sample, or all beams of a request, had to leave
    blocks_copied: int = 0
    blocks_swapped: int = 0
    peak_blocks: int = 0

    def count(self, step: Step, num_blocks_used: int) -> bool:
        """Count a committed step; returns whether it did nothing but decode."""
        self.num_steps += 1
        self.blocks_copied += len(step.copies)
        self.blocks_swapped += len(step.swaps_out) + len(step.swaps_in)
        self.peak_blocks = max(self.peak_blocks, num_blocks_used)
        num_decodes = 0
        for sequence, count in step.work:
            start, furthest = sequence.table.num_tokens - count, sequence.furthest
            if count == 1 and start == furthest >= sequence.num_prompt:
                num_decodes += 1
            else:
                found = min(start, sequence.num_prompt) - furthest
                self.prompt_tokens_cached += max(0, found)
                again = max(0, min(start + count, furthest) - start)
                self.tokens_recomputed += again
                self.prompt_tokens_computed += max(
                    0, min(start + count, sequence.num_prompt) - start - again
                )
            sequence.furthest = max(furthest, start + count)
        only_decodes = num_decodes == len(step.work)
        self.decode_tokens += num_decodes if only_decodes else 0
        return only_decodes

    def spend(self, seconds: float, only_decodes: bool) -> None:
        """Book a step's time where its tokens were booked."""
        if only_decodes:
            self.decode_seconds += seconds
        else:
            self.prefill_seconds += seconds

    def since(self, earlier: EngineStats) -> EngineStats:
        """The difference to an earlier copy; load and compile times and the peak stay."""
        kept = {"peak_blocks", "load_seconds", "compile_seconds"}
        base = {f.name: 0 if f.name in kept else getattr(earlier, f.name) for f in fields(self)}
        return EngineStats(**{name: getattr(self, name) - value for name, value in base.items()})
