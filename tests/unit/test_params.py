"""What a request may ask: defaults, what is refused and that the refusal says why."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from minipaged.core.errors import InvalidRequest
from minipaged.engine.params import BeamSearchParams, SamplingParams

NAN, INF = math.nan, math.inf


def test_defaults_are_the_known_ones():
    assert dataclasses.asdict(SamplingParams()) == {
        "n": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": None,
        "logprobs": None,
        "prompt_logprobs": None,
        "max_tokens": 16,
        "min_tokens": 0,
        "stop": (),
        "stop_token_ids": (),
        "ignore_eos": False,
        "include_stop_str_in_output": False,
        "skip_special_tokens": True,
        "seed": None,
    }


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("n", [1, 7, np.int64(2)], [0, -1, 1.0, True, None, "1", NAN]),
        (
            "temperature",
            [0, 0.0, 5e-324, 1e6, 1, np.float32(0.5)],
            [-1e-9, NAN, INF, None, "1", True],
        ),
        ("top_p", [1, 1.0, 5e-324, 0.5], [0, 0.0, -0.1, 1.0000001, NAN, INF, None]),
        ("top_k", [-1, 0, 1, 10**9], [-2, 1.0, True, None, NAN]),
        ("min_p", [0, 0.0, 0.5, 1], [-0.01, 1.01, NAN, None]),
        ("repetition_penalty", [1e-9, 1, 2.5], [0, 0.0, -1, NAN, INF]),
        ("presence_penalty", [-2, 2.0, 0], [-2.01, 2.01, NAN, INF, None]),
        ("frequency_penalty", [-2, 2.0, 0], [-2.01, 2.01, NAN, INF, None]),
        ("logprobs", [None, 0, 5], [-1, 1.0, True]),
        ("prompt_logprobs", [None, 0, 5], [-1, 1.0, False]),
        ("max_tokens", [None, 1, 10**6], [0, -1, 1.5, 16.0, True, INF]),
        ("min_tokens", [0, 16], [-1, 17, 0.0, None, False]),
        ("stop", [None, "a", ["a", "bc"], ("a",), []], ["", [""], ["a", ""], [1], 5, [None]]),
        ("stop_token_ids", [None, [0], (5, 6), {7}], [[-1], [1.0], [True], 5, ["a"]]),
        ("ignore_eos", [True, False], [0, 1, None, "yes"]),
        ("skip_special_tokens", [True, False], [0, None]),
        ("include_stop_str_in_output", [True, False], [1, None]),
        ("seed", [None, 0, -1, -(2**63), 2**63 - 1], [2**63, -(2**63) - 1, 1.0, True, NAN]),
        (
            "logit_bias",
            [None, {}, {0: 1, 5: -3.5}],
            [{-1: 1.0}, {1.0: 1.0}, {3: NAN}, {3: -INF}, [3]],
        ),
    ],
)
def test_each_value_is_accepted_or_refused_by_name(name, right, wrong):
    for value in right:
        SamplingParams(**{name: value})
    for value in wrong:
        with pytest.raises(InvalidRequest, match=rf"^{name}.*must be "):
            SamplingParams(**{name: value})


def test_a_refusal_names_the_value_and_what_would_be_right():
    with pytest.raises(InvalidRequest, match=r"^top_p=1.5: must be a number in \(0, 1\]$"):
        SamplingParams(top_p=1.5)
    with pytest.raises(InvalidRequest, match=r"^min_tokens=9: must be at most max_tokens=8$"):
        SamplingParams(max_tokens=8, min_tokens=9)
    with pytest.raises(InvalidRequest, match=r"^logit_bias\[3\]=nan: must be a number"):
        SamplingParams(logit_bias={3: NAN})


def test_lists_are_kept_as_they_were():
    stop, ids, bias = ["a", "b"], [3], {1: 2.0}
    params = SamplingParams(stop=stop, stop_token_ids=ids, logit_bias=bias)
    stop.append(""), ids.append(-1), bias.update({-1: NAN})
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("a", "b"), (3,), {1: 2.0})
    assert SamplingParams(stop="ab").stop == ("ab",)
    assert dataclasses.replace(params, seed=1).stop == ("a", "b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2


def test_min_tokens_may_be_anything_where_the_model_sets_the_length():
    assert SamplingParams(max_tokens=None, min_tokens=10**6).max_tokens is None


def test_ids_beyond_the_vocabulary():
    params = SamplingParams(stop_token_ids=[99], logit_bias={98: 1.0})
    params.validate_for(100)
    with pytest.raises(InvalidRequest, match=r"stop_token_ids=99: must be .* 99$"):
        params.validate_for(99)
    with pytest.raises(InvalidRequest, match="logit_bias=98"):
        SamplingParams(logit_bias={98: 1.0}).validate_for(98)
    with pytest.raises(InvalidRequest, match="stop_token_ids=7"):
        BeamSearchParams(2, stop_token_ids=[7]).validate_for(7)
    SamplingParams().validate_for(1)


@pytest.mark.parametrize("make", [SamplingParams, lambda **kw: BeamSearchParams(1, **kw)])
def test_what_stops_a_request(make):
    assert make().stop_ids([0, 5]) == {0, 5}
    assert make(stop_token_ids=[3]).stop_ids([0]) == {0, 3}
    assert make(stop_token_ids=[3], ignore_eos=True).stop_ids([0]) == {3}
    assert make(ignore_eos=True).stop_ids([0]) == set()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("beam_width", [1, 2, 64], [0, -1, 1.0, True, None]),
        ("max_tokens", [None, 1], [0, 2.5]),
        ("min_tokens", [0, 16], [-1, 17]),
        ("length_penalty", [0, -1.0, 2.5], [NAN, INF, -INF, None, 1e9]),
        ("early_stopping", [True, False, "never"], [0, 1, None, "always", 1.0]),
        ("ignore_eos", [True], [1]),
        ("skip_special_tokens", [False], [0]),
        ("stop_token_ids", [None, [1]], [[-1], 3]),
        ("n", [None, 1, 3], [0, 4, 1.0]),
    ],
)
def test_beam_values_are_accepted_or_refused_by_name(name, right, wrong):
    for value in right:
        BeamSearchParams(**({"beam_width": 3} | {name: value}))
    for value in wrong:
        with pytest.raises(InvalidRequest, match=rf"^{name}.*must be "):
            BeamSearchParams(**({"beam_width": 3} | {name: value}))
