"""A request and its sequences: tokens, progress and results; knows no scheduler and no tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipaged.core import BlockTable

from .beam import BeamSearch, Candidates
from .params import BeamSearchParams, SamplingParams
from .sampling import Row
from .text import TextStream


@dataclass(slots=True, eq=False)
class Request:
    """One prompt, what was asked of it, and what has come of it so far."""

    request_id: str
    order: int  # of arrival
    prompt: str | None
    prompt_token_ids: list[int]
    params: SamplingParams | BeamSearchParams
    max_tokens: int  # what the parameters, the model and the pool allow
    stop_ids: frozenset[int]
    root: bytes | None  # start of its prefix hash chain; None: it does not take part
    seed: int = 0
    search: BeamSearch | None = None  # None: samples
    sequences: list[Sequence] = field(default_factory=list)  # all samples, or the present beams
    prompt_logprobs: list | None = None
    num_cached_tokens: int = 0  # prompt tokens that were found when it was first admitted
    num_preemptions: int = 0
    inbox: list | None = None  # what a streaming caller has not fetched yet
    error: str | None = None

    @property
    def is_beam(self) -> bool:
        """Beams of a request only ever step together; samples go their own way."""
        return self.search is not None

    @property
    def unfinished(self) -> list[Sequence]:
        """The sequences that still need steps."""
        return [s for s in self.sequences if s.finish_reason is None]


@dataclass(slots=True, eq=False)
class Sequence:
    """One continuation of a prompt.

        token_ids   [ prompt . . . | output . . . x ]
                      num_tokens of the table     ^ sampled, but not yet fed back: it has no slot

    The law of scheduling: whoever has ``num_remaining > 0`` has work to do, be it a prompt, the
    rest of a chunk, a recomputation or the next token.
    """

    request: Request
    index: int  # which of the n samples, or which beam
    token_ids: list[int]
    table: BlockTable
    furthest: int = 0  # positions ever computed; what is computed below it is computed again
    hashes: list[bytes] = field(default_factory=list)  # of its full blocks, as far as known
    row: Row | None = None  # what its next token depends on besides the logits; None: a beam
    stream: TextStream | None = None  # its text as it comes; None: a beam that is not finished
    cumulative_logprob: float = 0.0
    logprobs: list = field(default_factory=list)
    finish_reason: str | None = None  # "stop" | "length" | "abort" | "error"
    stop_reason: int | str | None = None
    candidates: Candidates | None = None  # a beam's next tokens, until all its mates have theirs

    @property
    def order(self) -> tuple[int, int]:
        """Older requests first, then samples by index."""
        return self.request.order, self.index

    @property
    def num_prompt(self) -> int:
        """Tokens that were given, not generated."""
        return len(self.request.prompt_token_ids)

    @property
    def num_remaining(self) -> int:
        """Tokens whose K/V must be computed before it can be sampled again."""
        return len(self.token_ids) - self.table.num_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """What was generated so far."""
        return self.token_ids[self.num_prompt :]

    def fork(self, index: int) -> Sequence:
        """A sibling that shares every block: another sample, or another beam."""
        return Sequence(
            request=self.request,
            index=index,
            token_ids=list(self.token_ids),
            table=self.table.fork(),
            furthest=self.furthest,
            hashes=list(self.hashes),
            cumulative_logprob=self.cumulative_logprob,
        )
