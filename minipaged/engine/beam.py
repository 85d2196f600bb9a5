"""Which beams go on, which are finished, when to stop; knows log-probabilities, no block tables.

Decides as `generate(num_beams=beam_width, do_sample=False)` of transformers 5 does:

    score = logprob / num_tokens ** length_penalty

where num_tokens counts what was generated, the stop id included, the prompt not. Of all
continuations of all beams the best `num_candidates` are looked at; enough that `beam_width` of them
go on even if every beam has all stop ids among them. A stop id finishes a hypothesis only among the
first `beam_width` candidates; further down it is dropped. At `max_tokens` the first `beam_width`
candidates all are hypotheses. (Only where a vocabulary has fewer than `num_candidates` tokens does
transformers differ: it fills up with beams it gave a log-probability of -1e9.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, inf

from .params import BeamSearchParams
from .sampling import best_tokens

Candidates = Sequence[tuple[int, float]]  # token and log-probability, given its beam


@dataclass(frozen=True, slots=True)
class Beam:
    """A continuation that goes on, or a candidate for one."""

    token_ids: tuple[int, ...]  # generated ones
    logprob: float  # of all of them
    parent: int  # index, among the beams before the step, of the one that it continues


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished continuation; its last token is the stop id if it has one."""

    token_ids: tuple[int, ...]
    logprob: float
    score: float
    finish_reason: str  # "stop" | "length"


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """The state of one search between two steps; `advance` returns the next state.

    Attributes:
        beams: Those that go on, best first; at first one without tokens. Beam b takes over, or
            shares, the blocks of beam `beams[b].parent` of the state before.
        hypotheses: At most `beam_width` finished ones, best score first.
        done: Nothing can be, or need be, added.
    """

    params: BeamSearchParams
    stop_ids: frozenset[int]
    max_tokens: int
    beams: tuple[Beam, ...] = (Beam((), 0.0, 0),)
    hypotheses: tuple[Hypothesis, ...] = ()
    done: bool = False

    @classmethod
    def start(
        cls, params: BeamSearchParams, eos_token_ids: Iterable[int], max_tokens: int
    ) -> BeamSearch:
        """Begin a search; `max_tokens` is what the parameters and the model's length allow."""
        return cls(params, params.stop_ids(eos_token_ids), max_tokens)

    @property
    def num_candidates(self) -> int:
        """How many of the best tokens `advance` must know of each beam."""
        return max(2, 1 + len(self.stop_ids)) * self.params.beam_width

    @property
    def results(self) -> tuple[Hypothesis, ...]:
        """The best hypotheses, as many as were asked for."""
        return self.hypotheses[: self.params.n]

    def candidates(
        self,
        logits: Tensor,  # [vocab_size] float32 or float64, of one beam
    ) -> Candidates:
        """Return a beam's best tokens, likeliest first; no stop ids before `min_tokens`."""
        logprobs = logits.double().log_softmax(-1)
        if len(self.beams[0].token_ids) < self.params.min_tokens:
            logprobs[list(self.stop_ids)] = -inf
        return [(t, p) for t, p in best_tokens(logprobs, self.num_candidates) if p > -inf]

    def advance(self, candidates: Sequence[Candidates]) -> BeamSearch:
        """Add a token to every beam, given each beam's `num_candidates` best ones."""
        grown = [
            Beam((*beam.token_ids, token), beam.logprob + logprob, b)
            for b, beam in enumerate(self.beams)
            for token, logprob in candidates[b]
        ]
        grown = sorted(grown, key=lambda beam: -beam.logprob)[: self.num_candidates]
        width = self.params.beam_width
        finished = [self._finish(beam) for beam in grown[:width] if self._ends(beam)]
        ranked = sorted((*self.hypotheses, *finished), key=lambda h: -h.score)
        going = [beam for beam in grown if not self._ends(beam)]
        state = replace(self, beams=tuple(going[:width]), hypotheses=tuple(ranked[:width]))
        return replace(state, done=state._is_done())

    def _ends(self, beam: Beam) -> bool:
        return beam.token_ids[-1] in self.stop_ids or len(beam.token_ids) >= self.max_tokens

    def _finish(self, beam: Beam) -> Hypothesis:
        score = beam.logprob / len(beam.token_ids) ** self.params.length_penalty
        reason = "stop" if beam.token_ids[-1] in self.stop_ids else "length"
        return Hypothesis(beam.token_ids, beam.logprob, score, reason)

    def _is_done(self) -> bool:
        """Tell whether no beam goes on or, once all hypotheses are there, none may beat the worst.

        What the best beam may reach is guessed, as its log-probability at the present length or,
        if "never" and a positive penalty hope for longer ones, at `max_tokens`.
        """
        early, penalty = self.params.early_stopping, self.params.length_penalty
        if not self.beams or len(self.hypotheses) < self.params.beam_width:
            return not self.beams
        best = self.beams[0]
        hopes = early == "never" and penalty > 0
        length = self.max_tokens if hopes else len(best.token_ids)
        return early is True or best.logprob / length**penalty <= self.hypotheses[-1].score
