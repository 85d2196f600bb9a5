"""What callers get back: plain data, complete in itself; refers to no engine state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .sequence import Request, Sequence


class Delta(NamedTuple):
    """What one step added to one sequence. Joined, the texts are the sequence's whole text."""

    request_id: str
    index: int  # which of the n samples
    text: str  # complete characters only; what might become a stop string is held back
    token_ids: tuple[int, ...]
    finish_reason: str | None  # "stop" | "length" | "abort" | "error", with the last delta


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One finished (or aborted) sequence."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float
    logprobs: list | None  # per token: {token id: Logprob}, if asked for
    finish_reason: str | None
    stop_reason: int | str | None  # the stop token or stop string that ended it


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One request: what was asked, what came of it, and what it cost."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list | None
    outputs: list[CompletionOutput]
    num_cached_tokens: int  # prompt tokens that were found instead of computed
    num_preemptions: int
    error: str | None

    @property
    def text(self) -> str:
        """Text of the first output."""
        return self.outputs[0].text

    @property
    def finished(self) -> bool:
        """True if every output has its finish reason."""
        return all(o.finish_reason is not None for o in self.outputs)

    @classmethod
    def of(cls, request: Request) -> RequestOutput:
        """The present state of a request."""
        return cls(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_token_ids=request.prompt_token_ids,
            prompt_logprobs=request.prompt_logprobs,
            outputs=[_completion(s) for s in request.sequences],
            num_cached_tokens=request.num_cached_tokens,
            num_preemptions=request.num_preemptions,
            error=request.error,
        )


def _completion(sequence: Sequence) -> CompletionOutput:
    wants = getattr(sequence.request.params, "logprobs", None) is not None
    return CompletionOutput(
        index=sequence.index,
        text=sequence.stream.text if sequence.stream else "",
        token_ids=sequence.output_token_ids,
        cumulative_logprob=sequence.cumulative_logprob,
        logprobs=sequence.logprobs if wants else None,
        finish_reason=sequence.finish_reason,
        stop_reason=sequence.stop_reason,
    )
