"""Beams at the scale of traces: the engine's own search and tables, with scores that are drawn.

Which beams share what depends on who descends from whom, and that on scores. Here the logits of a
step are independent normal numbers; how far they spread says how soon one beam outruns the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minipaged.core import BlockPool, BlockTable, reserve
from minipaged.engine.beam import BeamSearch, Candidates
from minipaged.engine.params import BeamSearchParams

from .savings import Savings
from .workload import Arrival

VOCABULARY = 400  # tokens that are worth looking at in a step
SPREAD = 6.0  # standard deviation of their logits


def beam_savings(
    arrivals: Sequence[Arrival],
    width: int,
    *,
    block_size: int = 16,
    spread: float = SPREAD,
    seed: int = 0,
) -> Savings:
    """What beams share, step by step, of requests of these lengths."""
    random, savings = np.random.default_rng([seed, width]), Savings(width)
    for arrival in arrivals:
        _search(arrival, width, block_size, spread, random, savings)
    return savings


def _search(
    arrival: Arrival,
    width: int,
    block_size: int,
    spread: float,
    random: np.random.Generator,
    savings: Savings,
) -> None:
    """One request, as ``Advancer`` and ``Scheduler`` do it: fork, release, reserve, commit."""
    params = BeamSearchParams(beam_width=width, max_tokens=arrival.output_len, ignore_eos=True)
    search = BeamSearch.start(params, (), arrival.output_len)
    pool = BlockPool(width * -(-arrival.num_tokens // block_size))
    tokens = [0] * arrival.num_tokens  # what they are does not matter: nothing is published
    beams = [BlockTable(pool, block_size)]
    beams[0].reserve(arrival.prompt_len)
    beams[0].commit(tokens)
    while True:
        best = [_candidates(search.num_candidates, spread, random) for _ in beams]
        search = search.advance(best)
        if search.done:
            return
        children = [beams[beam.parent].fork() for beam in search.beams]
        for table in beams:
            table.release()
        beams = children
        reserve(beams, [1] * width)
        savings.count(beams)
        for table in beams:
            table.commit(tokens)


def _candidates(count: int, spread: float, random: np.random.Generator) -> Candidates:
    """The best tokens of one beam and their log-probabilities, best first."""
    logits = random.standard_normal(VOCABULARY) * spread
    total = np.log(np.exp(logits).sum())
    best = np.argpartition(-logits, count)[:count]
    best = best[np.argsort(-logits[best])]
    return [(int(token), float(logits[token] - total)) for token in best]
