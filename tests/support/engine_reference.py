"""What the shadow model's requests must get: one sequence at a time, no cache, no scheduler."""

from __future__ import annotations

from typing import NamedTuple

from minipaged.engine.beam import BeamSearch
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.engine.sampling import Row, prompt_logprobs, sample
from minipaged.engine.sequence import Request

from .engine_shadow import EOS, ShadowTokenizer, logits_after


class Answer(NamedTuple):
    """One sample or hypothesis."""

    token_ids: list[int]
    text: str
    finish_reason: str


class Expected(NamedTuple):
    """All that a request must get."""

    answers: list[Answer]
    prompt_logprobs: list


_known: dict[tuple, Expected] = {}


def expected(request: Request) -> Expected:
    """What a request must get; worked out once for each prompt and set of parameters."""
    key = tuple(request.prompt_token_ids), repr(request.params), request.max_tokens, request.seed
    if key not in _known:
        params = request.params
        if isinstance(params, BeamSearchParams):
            found = _hypotheses(request, params)
        else:
            found = [_sample(request, params, i) for i in range(params.n)]
        _known[key] = Expected(found, _prompt_logprobs(request))
    return _known[key]


def _sample(request: Request, params: SamplingParams, index: int) -> Answer:
    prompt = request.prompt_token_ids
    tokens, stops, text = list(prompt), params.stop_ids([EOS]), ""
    while len(tokens) - len(prompt) < request.max_tokens:
        row = Row(params, request.seed, index, tokens, len(prompt), (EOS,))
        tokens += sample(logits_after(tuple(tokens))[None], [row]).token_ids
        num_output, text = len(tokens) - len(prompt), _text(tokens[len(prompt) :])
        if num_output > params.min_tokens:
            if cut := _first_stop(text, params):
                return Answer(tokens[len(prompt) :], text[: cut - 1], "stop")
            if tokens[-1] in stops:
                return Answer(tokens[len(prompt) :], text, "stop")
    return Answer(tokens[len(prompt) :], text, "length")


def _first_stop(text: str, params: SamplingParams) -> int | None:
    """One more than where the stop string that ends first begins."""
    found = [(text.find(s) + len(s), text.find(s) + 1) for s in params.stop or () if s in text]
    return min(found)[1] if found else None


def _hypotheses(request: Request, params: BeamSearchParams) -> list[Answer]:
    prompt = tuple(request.prompt_token_ids)
    search = BeamSearch.start(params, [EOS], request.max_tokens)
    while not search.done:
        logits = [logits_after((*prompt, *beam.token_ids)) for beam in search.beams]
        search = search.advance([search.candidates(row) for row in logits])
    found = [(list(h.token_ids), h.finish_reason) for h in search.results]
    return [Answer(ids, _text(ids), reason) for ids, reason in found]


def _text(ids: list[int]) -> str:
    return ShadowTokenizer().decode(ids)


def _prompt_logprobs(request: Request) -> list:
    k = getattr(request.params, "prompt_logprobs", None)
    if k is None:
        return []
    prompt = request.prompt_token_ids
    rows = [logits_after(tuple(prompt[:end])) for end in range(1, len(prompt))]
    return [None, *prompt_logprobs(rows, prompt[1:], k)]  # type: ignore[arg-type]
