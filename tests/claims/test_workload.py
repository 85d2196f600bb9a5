"""Workloads: scaling keeps the rhythm, drawing obeys its parameters, a seed gives one workload."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from random import Random
from statistics import fmean, pstdev

import pytest

from minipaged.claims.generators import (
    Lengths,
    alpaca_like,
    chat,
    poisson_times,
    sharegpt_like,
)
from minipaged.claims.workload import Arrival, Workload

GENERATORS = {
    "sharegpt": lambda n, seed: sharegpt_like(n, seed=seed),
    "alpaca": lambda n, seed: alpaca_like(n, seed=seed),
    "chat": lambda n, seed: chat(n, seed=seed),
}


def gaps(workload: Workload) -> list[float]:
    times = [a.time for a in workload.arrivals]
    return [b - a for a, b in pairwise(times)]


def test_scaling_changes_the_rate_and_keeps_the_rhythm():
    slow = Workload("a", "", tuple(Arrival(t, 1, 1) for t in (3.0, 4.0, 8.0, 9.0)))
    fast = slow.scaled_to(5.0)
    assert fast.rate == pytest.approx(5.0)
    assert fast.arrivals[0].time == 0
    factor = slow.rate / 5.0
    assert gaps(fast) == pytest.approx([gap * factor for gap in gaps(slow)])


def test_what_has_no_rhythm_cannot_be_scaled():
    at_once = Workload("a", "", (Arrival(1.0, 1, 1), Arrival(1.0, 1, 1)))
    with pytest.raises(ValueError, match="all 2 requests of a arrive at once"):
        at_once.scaled_to(1.0)
    with pytest.raises(ValueError, match="a rate is positive, not -1"):
        at_once.scaled_to(-1.0)
    alone = at_once.head(1)
    assert alone.scaled_to(3.0) == alone


def test_a_part_is_a_workload():
    whole = sharegpt_like(50)
    assert whole.head(7).arrivals == whole.arrivals[:7]
    assert whole.head(None) == whole
    long = whole.only(lambda a: a.prompt_len > 100)
    assert 0 < len(long) < 50
    assert {a.prompt_len > 100 for a in long.arrivals} == {True}
    assert Workload("none", "", ()).mean_prompt_len == 0


@pytest.mark.parametrize("draw", GENERATORS.values(), ids=GENERATORS)
def test_a_seed_gives_one_workload_and_another_gives_another(draw):
    assert draw(40, 3) == draw(40, 3)
    assert draw(40, 3).arrivals != draw(40, 4).arrivals
    for arrival in draw(400, 0).arrivals:
        assert arrival.prompt_len >= 1
        assert arrival.output_len >= 1
        assert arrival.num_tokens <= 2048


@pytest.mark.parametrize(
    ("lengths", "closeness"), [(Lengths(161.31, 1.6), 0.05), (Lengths(58.45, 0.4), 0.02)]
)
def test_lengths_have_the_mean_and_spread_that_are_said(lengths, closeness):
    random = Random(1)
    drawn = [lengths.draw(random) for _ in range(40_000)]
    assert fmean(drawn) == pytest.approx(lengths.mean, rel=closeness)
    assert pstdev(drawn) / fmean(drawn) == pytest.approx(lengths.spread, rel=5 * closeness)


def test_arrivals_by_chance_have_the_rate_and_no_memory():
    times = poisson_times(20_000, rate=4.0, random=Random(2))
    between = [b - a for a, b in zip([0.0, *times], times)]
    assert fmean(between) == pytest.approx(0.25, rel=0.03)
    assert pstdev(between) == pytest.approx(0.25, rel=0.05)  # exponential: as large as the mean
    with pytest.raises(ValueError, match="a rate is positive"):
        poisson_times(1, 0.0, Random(0))


def test_the_means_are_the_papers():
    for workload, prompt, output in (
        (sharegpt_like(20_000), 161.31, 337.99),
        (alpaca_like(20_000), 19.31, 58.45),
    ):
        assert workload.mean_prompt_len == pytest.approx(prompt, rel=0.07)
        assert workload.mean_output_len == pytest.approx(output, rel=0.04)
        assert f"mean {prompt:g}" in workload.source


def test_a_chat_grows_until_its_history_is_cut():
    arrivals = chat(500, longest=1024).arrivals
    grows = [b.prompt_len > a.prompt_len + a.output_len for a, b in pairwise(arrivals)]
    assert max(a.prompt_len for a in arrivals) == 1024
    assert 0.3 < sum(grows) / len(grows) < 0.7
    assert max(a.output_len for a in arrivals) <= 1024


def test_workloads_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        sharegpt_like(1).arrivals[0].time = 3.0  # type: ignore[misc]
