"""Sampling against a reference that shares nothing with it: lists, loops and sorted floats."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import minipaged.engine.sampling as sampling
from minipaged.engine.params import SamplingParams

torch.set_num_threads(1)

NUM_POINTS = 512
MARGIN = 1e-7  # nearer to a threshold than this, two ways of adding may disagree


def adjusted(logits, params, prompt, output, eos):
    x = [value + (params.logit_bias or {}).get(t, 0.0) for t, value in enumerate(logits)]
    if len(output) < params.min_tokens:
        stops = set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos))
        x = [-math.inf if t in stops else value for t, value in enumerate(x)]
    r = params.repetition_penalty
    for t in range(len(x)):
        if t in prompt or t in output:
            x[t] = x[t] / r if x[t] > 0 else x[t] * r
    for t, count in Counter(output).items():
        x[t] -= params.frequency_penalty * count + params.presence_penalty
    return x


def probabilities(x, params):
    """What remains of each token after the cuts, or None if a cut is too close to call."""
    top = max(x)
    masses = [math.exp((value - top) / params.temperature) for value in x]
    alive = set(range(len(x)))
    if 0 < params.top_k < len(x):
        kth = sorted(masses, reverse=True)[params.top_k - 1]
        alive = {t for t in alive if masses[t] >= kth * (1 - 1e-11)}
        assume(all(masses[t] >= kth or masses[t] < kth * (1 - MARGIN) for t in range(len(x))))
    assume(all(abs(masses[t] - params.min_p) > MARGIN or masses[t] == params.min_p for t in alive))
    alive = {t for t in alive if masses[t] >= params.min_p}
    if params.top_p < 1:
        total = sum(masses[t] for t in alive)
        ahead = {t: sum(masses[s] for s in alive if masses[s] > masses[t]) / total for t in alive}
        assume(all(abs(a - params.top_p) > MARGIN for a in ahead.values()))
        alive = {t for t in alive if ahead[t] < params.top_p}
    total = sum(masses[t] for t in alive)
    return [masses[t] / total if t in alive else 0.0 for t in range(len(x))]


penalty = st.sampled_from([0.0, 0.5, -1.0, 2.0])


@st.composite
def cases(draw):
    vocab_size = draw(st.integers(1, 7))
    ids = st.integers(0, vocab_size - 1)
    # Few different values make ties common; the wide ones make dust of the others.
    value = st.sampled_from([-20.0, -2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 1.5, 3.0, -math.inf])
    logits = draw(st.lists(value, min_size=vocab_size, max_size=vocab_size))
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.25, 0.7, 1.0, 1.0, 3.0])),
        top_k=draw(st.integers(-1, vocab_size + 1)),
        top_p=draw(st.sampled_from([1.0, 1.0, 0.99, 0.9, 0.6, 0.31, 0.05])),
        min_p=draw(st.sampled_from([0.0, 0.0, 0.03, 0.3, 1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.7, 0.6])),
        presence_penalty=draw(penalty),
        frequency_penalty=draw(penalty),
        logit_bias=draw(st.none() | st.dictionaries(ids, st.sampled_from([-3.0, 0.5, 2.0]))),
        min_tokens=draw(st.integers(0, 4)),
        stop_token_ids=draw(st.lists(ids, max_size=2)),
        ignore_eos=draw(st.booleans()),
    )
    prompt = draw(st.lists(ids, min_size=1, max_size=5))
    output = draw(st.lists(ids, max_size=5))
    return logits, params, prompt, output, draw(st.lists(ids, max_size=2))


def u_is_the_seed():
    """Every test here chooses u itself: seed / NUM_POINTS."""
    return mock.patch.object(
        sampling, "uniform", lambda draws: np.array([seed / NUM_POINTS for seed, _, _ in draws])
    )


@settings(max_examples=150)
@given(cases())
def test_the_drawn_frequencies_are_the_reference_s_probabilities(case):
    logits, params, prompt, output, eos = case
    x = adjusted(logits, params, prompt, output, eos)
    rows = [
        sampling.Row(params, seed, 0, prompt + output, len(prompt), eos)
        for seed in range(NUM_POINTS)
    ]
    batch = torch.tensor(logits, dtype=torch.float64).repeat(NUM_POINTS, 1)
    if max(x) == -math.inf:
        assert sampling.sample(batch[:1], rows[:1]).bad_rows == [0]
        return
    expected = probabilities(x, params)
    with u_is_the_seed():
        result = sampling.sample(batch, rows)
    assert result.bad_rows == []
    assert result.token_ids == sorted(result.token_ids)
    counts = Counter(result.token_ids)
    upto_drawn, upto_expected = 0, 0.0
    for t, probability in enumerate(expected):
        upto_drawn += counts[t]
        upto_expected += probability
        assert abs(upto_drawn - upto_expected * NUM_POINTS) < 1 + 1e-6
        if probability == 0:
            assert counts[t] == 0


@given(cases())
def test_greedy_is_the_reference_s_first_maximum(case):
    logits, params, prompt, output, eos = case
    x = adjusted(logits, params, prompt, output, eos)
    params = dataclasses.replace(params, temperature=0)
    greedy = sampling.Row(params, 0, 0, prompt + output, len(prompt), eos)
    [token] = sampling.sample(torch.tensor([logits], dtype=torch.float64), [greedy]).token_ids
    if max(x) == -math.inf:
        assert token == -1
    else:
        assert x[token] == pytest.approx(max(x), rel=1e-12)
        assert not any(x[t] > x[token] * (1 + 1e-12) for t in range(token))


@settings(max_examples=60)
@given(st.data())
def test_a_row_is_a_function_of_itself(data):
    parts = data.draw(st.lists(cases(), min_size=2, max_size=6))
    width = max(len(logits) for logits, *_ in parts)
    logits = torch.full((len(parts), width), -1.0)
    rows = []
    for i, (values, params, prompt, output, eos) in enumerate(parts):
        logits[i, : len(values)] = torch.tensor(values)
        kind = SamplingParams(temperature=0, logprobs=1) if i % 3 == 2 else params
        rows.append(sampling.Row(kind, 37 * i, i, prompt + output, len(prompt), eos))
    together = sampling.sample(logits, rows)
    for i in range(len(rows)):
        alone = sampling.sample(logits[i : i + 1], rows[i : i + 1])
        assert alone.token_ids == together.token_ids[i : i + 1]
        assert alone.logprobs == together.logprobs[i : i + 1]


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1 - 2**-53])
def test_the_nucleus_of_a_large_vocabulary(spread, top_p):
    """Ranking only what can matter finds the same nucleus as ranking everything."""
    torch.manual_seed(3)
    weights = ((torch.randn(4, 3001, dtype=torch.float64) * spread).exp() * 2**30).long()
    column = torch.full((4, 1), top_p, dtype=torch.float64)
    smallest = sampling._smallest_in_nucleus(weights, column)
    for found, ours in zip(smallest.tolist(), weights.tolist()):
        mass, goal = 0, sum(ours) * top_p
        for weight in sorted(ours, reverse=True):
            mass += weight
            if mass >= goal:
                break
        assert found == weight
