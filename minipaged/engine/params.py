"""What a caller may ask of one request, checked; knows no tokenizer, model or scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal

from minipaged.core.errors import InvalidRequest


def _int(default: int | None, interval: str) -> Any:
    return field(default=default, metadata={"rule": f"an integer in {interval}"})


def _real(default: float, interval: str) -> Any:
    return field(default=default, metadata={"rule": f"a number in {interval}"})


def _flag(default: bool) -> Any:
    return field(default=default, metadata={"rule": "True or False"})


class _Stops:
    """What both kinds of request know about token ids."""

    __slots__ = ()
    ignore_eos: bool
    stop_token_ids: Iterable[int] | None

    def stop_ids(self, eos_token_ids: Iterable[int]) -> frozenset[int]:
        """Ids that end this request, and that `min_tokens` therefore masks."""
        own = frozenset(self.stop_token_ids or ())
        return own if self.ignore_eos else own.union(eos_token_ids)

    def validate_for(self, vocab_size: int) -> None:
        """Raise InvalidRequest if a token id lies beyond a vocabulary of `vocab_size` tokens."""
        rule = f"token ids below the vocabulary's size, {vocab_size}"
        for name in ("stop_token_ids", "logit_bias"):
            for token_id in getattr(self, name, None) or ():
                _require(token_id < vocab_size, name, token_id, rule)


@dataclass(frozen=True, slots=True)
class SamplingParams(_Stops):
    """How to choose the tokens of one request. Names and defaults are vLLM's.

    In which order they act is the list at the top of `minipaged.engine.sampling`.

    Raises:
        InvalidRequest: With the name, the value and what would be right.
    """

    n: int = _int(1, "[1, inf)")  # samples of the prompt; sample i draws u(seed, i, output index)
    temperature: float = _real(1.0, "[0, inf)")  # 0: the likeliest token, of a tie the lowest id
    top_p: float = _real(1.0, "(0, 1]")  # keep the likeliest up to this mass; ties stay
    top_k: int = _int(0, "[-1, inf)")  # keep the k likeliest, ties stay; 0 and -1 keep all
    min_p: float = _real(0.0, "[0, 1]")  # keep what is at least this share as likely as the best
    repetition_penalty: float = _real(1.0, "(0, inf)")  # for ids in prompt or output
    presence_penalty: float = _real(0.0, "[-2, 2]")  # for ids in the output
    frequency_penalty: float = _real(0.0, "[-2, 2]")  # the same, once per occurrence
    logit_bias: Mapping[int, float] | None = None  # token id: what is added to its logit
    logprobs: int | None = _int(None, "[0, inf) or None")  # the sampled token's and the k best
    prompt_logprobs: int | None = _int(None, "[0, inf) or None")  # the same for the prompt's tokens
    max_tokens: int | None = _int(16, "[1, inf) or None")  # None: what the model's length allows
    min_tokens: int = _int(0, "[0, inf)")  # nothing ends the request within so many tokens
    stop: str | Sequence[str] | None = None  # strings that end the text; kept as a tuple
    stop_token_ids: Iterable[int] | None = None  # obeyed under ignore_eos too; kept as a tuple
    ignore_eos: bool = _flag(False)  # the model's end-of-sequence ids are like any other
    include_stop_str_in_output: bool = _flag(False)
    skip_special_tokens: bool = _flag(True)  # in the text
    seed: int | None = _int(None, f"[{-(2**63)}, {2**63}) or None")  # None: the engine chooses

    def __post_init__(self):
        _check(self)
        stop = (self.stop,) if isinstance(self.stop, str) else _tuple(self, "stop")
        for text in stop:
            _require(isinstance(text, str) and text != "", "stop", text, "a non-empty string")
        object.__setattr__(self, "stop", stop)
        if self.logit_bias is not None:
            known = isinstance(self.logit_bias, Mapping)
            _require(known, "logit_bias", self.logit_bias, "a dict of token ids to numbers")
            object.__setattr__(self, "logit_bias", dict(self.logit_bias))
            _check_ids("logit_bias", self.logit_bias)
            for token_id, bias in self.logit_bias.items():
                rule = "a number in (-inf, inf)"
                _require(_obeys(bias, rule), f"logit_bias[{token_id}]", bias, rule)


@dataclass(frozen=True, slots=True)
class BeamSearchParams(_Stops):
    """How to search one request with beams (`minipaged.engine.beam`).

    Raises:
        InvalidRequest: With the name, the value and what would be right.
    """

    beam_width: int = _int(None, "[1, inf)")  # beams that go on, and hypotheses that are kept
    max_tokens: int | None = _int(16, "[1, inf) or None")  # None: what the model's length allows
    min_tokens: int = _int(0, "[0, inf)")  # no stop id within so many tokens
    length_penalty: float = _real(1.0, "[-50, 50]")  # score = logprob / num_tokens**length_penalty
    # At beam_width hypotheses True stops; False if no beam, at its present length, scores better
    # than the worst of them; "never" if none will at the best possible length.
    early_stopping: bool | Literal["never"] = False
    ignore_eos: bool = _flag(False)  # the model's end-of-sequence ids are like any other
    stop_token_ids: Iterable[int] | None = None  # obeyed under ignore_eos too; kept as a tuple
    skip_special_tokens: bool = _flag(True)  # in the text
    n: int | None = _int(None, "[1, inf) or None")  # hypotheses to return; None: all of them

    def __post_init__(self):
        _check(self)
        early = self.early_stopping
        known = isinstance(early, bool) or early == "never"
        _require(known, "early_stopping", early, 'True, False or "never"')
        fits = self.n is None or self.n <= self.beam_width
        _require(fits, "n", self.n, f"at most beam_width={self.beam_width}")


def _require(right: bool, name: str, value: object, rule: str) -> None:
    if not right:
        raise InvalidRequest(f"{name}={value!r}: must be {rule}")


def _obeys(value: Any, rule: str) -> bool:
    """Tell whether a value obeys a rule such as "a number in (0, 1]" or "True or False"."""
    if value is None:
        return rule.endswith("None")
    if rule == "True or False" or isinstance(value, bool):
        return rule == "True or False" and isinstance(value, bool)
    if not isinstance(value, Integral if "an integer" in rule else Real):
        return False
    interval = rule.partition(" in ")[2].partition(" or ")[0]
    low, high = (float(end) for end in interval[1:-1].split(","))
    number: Any = value
    above = number >= low if interval[0] == "[" else number > low
    return bool(above and (number <= high if interval[-1] == "]" else number < high))


def _tuple(params: object, name: str) -> tuple[Any, ...]:
    value = getattr(params, name)
    _require(value is None or isinstance(value, Iterable), name, value, "a list or None")
    return tuple(value or ())


def _check_ids(name: str, ids: Iterable[int]) -> None:
    for token_id in ids:
        _require(_obeys(token_id, "an integer in [0, inf)"), name, token_id, "token ids, from 0 up")


def _check(params: Any) -> None:
    for spec in fields(params):
        value, rule = getattr(params, spec.name), spec.metadata.get("rule")
        _require(rule is None or _obeys(value, rule), spec.name, value, str(rule))
    fits = params.max_tokens is None or params.min_tokens <= params.max_tokens
    _require(fits, "min_tokens", params.min_tokens, f"at most max_tokens={params.max_tokens}")
    object.__setattr__(params, "stop_token_ids", _tuple(params, "stop_token_ids"))
    _check_ids("stop_token_ids", params.stop_token_ids)
