"""C4 is measured from what the engine does; an engine that does not share is found out."""

from __future__ import annotations

from random import Random

import pytest
import torch

from minipaged.claims import prefix
from minipaged.claims.claim import Claim, Context
from minipaged.core import BlockTable
from minipaged.engine.llm import LLM


def counted(claim: Claim) -> dict[str, float]:
    """Everything but wall times."""
    return {row.what: row.measured for row in claim.rows if not row.wall}


@pytest.fixture(scope="module")
def claim() -> Claim:
    return prefix.measure(Context(quick=True))


def test_what_is_counted_agrees_and_repeats(claim):
    assert {row.verdict for row in claim.rows if not row.wall} == {"agrees", "holds"}
    assert counted(claim) == counted(prefix.measure(Context(quick=True)))


def test_it_says_what_is_found_by_pointer(claim):
    rows = counted(claim)
    assert rows["341 tokens in common: blocks shared"] == 341 // 16
    assert rows["341 tokens in common: prompt tokens computed, warm"] == 341 + 24 - 336
    assert rows["80 tokens in common: K/V copied"] == 0


def test_nothing_found_is_seen(monkeypatch):
    monkeypatch.setattr(prefix, "_lookups", lambda rounds: {256: 1.0, 1024: 4.0})
    monkeypatch.setattr(BlockTable, "match_prefix", lambda table, token_ids: 0)
    rows = {row.what: row for row in prefix.measure(Context(quick=True)).rows}
    warm, shared = (
        rows[f"80 tokens in common: {what}"]
        for what in ("prompt tokens computed, warm", "blocks shared")
    )
    assert (warm.measured, warm.verdict) == (104, "fails")
    assert shared.measured == 5  # computed anew, and still held once: at the end they are adopted


def test_a_look_up_that_grows_faster_than_the_prompt_is_seen():
    *_, growth = prefix._lookup_rows({256: 1.0, 512: 2.0, 1024: 16.0})
    assert (growth.measured, growth.verdict) == (4.0, "fails")
    *_, growth = prefix._lookup_rows({256: 1.0, 1024: 4.0})
    assert growth.verdict == "holds"


def test_a_hit_leaves_the_bits_of_the_prefix_alone():
    llm = LLM("bundled", block_size=16, num_blocks=64)
    tokens = [3 + i for i in range(80)]
    cold = prefix._first_token(llm, [*tokens, *range(500, 524)])
    shared = torch.tensor(cold.block_ids[:5])
    before = [cache[:, shared].clone() for cache in (llm.cache.key, llm.cache.value)]
    warm = prefix._first_token(llm, [*tokens, *range(600, 624)])
    assert warm.block_ids[:5] == cold.block_ids[:5]
    for kept, cache in zip(before, (llm.cache.key, llm.cache.value)):
        assert torch.equal(kept, cache[:, shared])


def test_cold_is_cold_every_time():
    llm = LLM("bundled", block_size=16, num_blocks=64)
    random = Random(0)
    for _ in range(3):
        cold, warm = prefix._cold_and_warm(llm, 80, random)
        assert (cold.computed, warm.computed) == (104, 24)
