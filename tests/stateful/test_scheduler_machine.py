"""Random programs on the whole engine over a shadow model; after every act everything must hold.

The laws are in ``support.engine_world`` and ``support.engine_shadow``: what a step may contain, who
may enter before whom, that something always goes on, what every slot holds, and that each request
gets just what it would get alone, without a cache, in one piece.
"""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_programs import as_text, first_failure
from support.engine_shadow import Broken
from support.engine_world import EngineWorld
from support.events import count, must_happen

torch.set_num_threads(1)

PROFILE = os.environ.get("MINIPAGED_PROFILE", "quick")
MAX_REQUESTS = 5

# Few different beginnings: prefixes must meet often.
texts = st.sampled_from(["01101001", "01100111", "11111111", "01101011"])
prompts = st.builds(lambda text, n: [int(c) for c in text[:n]], texts, st.integers(1, 8))
samplings = st.builds(
    SamplingParams,
    n=st.sampled_from([1, 1, 2, 3]),
    temperature=st.sampled_from([0, 1, 1]),
    max_tokens=st.integers(1, 9),
    min_tokens=st.sampled_from([0, 0, 1]),
    seed=st.integers(0, 3),
    ignore_eos=st.booleans(),
    stop=st.sampled_from([None, None, "00", "11"]),
    prompt_logprobs=st.sampled_from([None, None, None, 0, 1]),
)
searches = st.builds(
    BeamSearchParams,
    beam_width=st.integers(2, 3),
    max_tokens=st.integers(1, 6),
    ignore_eos=st.booleans(),
    early_stopping=st.sampled_from([True, False, "never"]),
)


class Engine(RuleBasedStateMachine):
    """The acts of ``EngineWorld``, with what they need drawn at random."""

    @initialize(
        num_blocks=st.integers(4, 9),
        block_size=st.sampled_from([2, 3, 4, 1]),
        max_num_seqs=st.sampled_from([8, 4, 2, 1]),
        budget=st.sampled_from([16, 5, 3, 2, 1]),
        host=st.sampled_from([0, 0, 3, 6]),
        window=st.sampled_from([None, None, None, 1, 2, 5]),
        watermark=st.sampled_from([0.0, 0.0, 0.3]),
        caching=st.sampled_from([True, True, True, False]),
    )
    def start(self, num_blocks, block_size, max_num_seqs, budget, host, window, watermark, caching):
        swapping = {"preemption": "swap", "num_host_blocks": host} if host else {}
        self.world = EngineWorld(
            num_blocks,
            block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            window=window,
            watermark=watermark,
            prefix_caching=caching,
            **swapping,
        )

    def teardown(self):
        if hasattr(self, "world"):
            self.world.drain()

    @precondition(lambda self: len(self.world.expected) < MAX_REQUESTS)
    @rule(prompt=prompts, params=samplings, salt=st.sampled_from([None, None, None, "x"]))
    def add(self, prompt, params, salt):
        self.world.add(prompt, params, salt)

    @precondition(lambda self: len(self.world.expected) < MAX_REQUESTS)
    @rule(prompt=prompts, params=searches)
    def search(self, prompt, params):
        self.world.add(prompt, params)

    @precondition(lambda self: len(self.world.expected) < MAX_REQUESTS - 1)
    @rule(prompt=prompts, params=samplings, tail=st.integers(0, 1))
    def add_two_with_one_beginning(self, prompt, params, tail):
        for token in (tail, 1 - tail):
            self.world.add([*prompt, token], params)

    @precondition(lambda self: self.world.expected)
    @rule(times=st.integers(1, 6))
    def step(self, times):
        for _ in range(times):
            self.world.step()

    @precondition(lambda self: self.world.expected)
    @rule(pick=st.integers(0, MAX_REQUESTS - 1))
    def abort(self, pick):
        requests = list(self.world.expected)
        self.world.abort(requests[pick % len(requests)])

    @precondition(lambda self: self.world.expected)
    @rule(num_written=st.integers(0, 6), error=st.sampled_from([Broken, KeyboardInterrupt]))
    def model_fails(self, num_written, error):
        self.world.break_model(num_written, error)

    @precondition(lambda self: self.world.expected)
    @rule(fuse=st.sampled_from([None, 0, 1, 2, 3]))
    def sampling_fails(self, fuse):
        self.world.break_sampling(fuse)

    @precondition(lambda self: self.world.expected and not self.world.scheduler.host_pool)
    @rule(at_call=st.integers(1, 3))
    def allocator_fails(self, at_call):
        self.world.break_allocation(at_call)

    @rule(dice=st.integers(0, 5))
    def forget_prefixes(self, dice):
        if dice == 0:
            count("reset")
            self.world.forget_prefixes()


def run(max_examples: int, stateful_step_count: int = 25, **more) -> None:
    chosen = settings(max_examples=max_examples, stateful_step_count=stateful_step_count, **more)
    run_state_machine_as_test(Engine, settings=chosen)


@pytest.mark.invariant(2, 3, 5, 7, 10, 11, 12, 13, 14)
def test_the_engine_keeps_every_law():
    with must_happen(
        "abort of a running one",
        "adoption",
        "broken plan",
        "chunk",
        "copy-on-write",
        "eviction",
        "prefix hit",
        "preemption by recompute",
        "preemption by swap",
        "refusal",
        "reset",
        "retry",
        "rollback",
        "swap in",
        "wait for a prefix",
        "window passed a block",
        at_least=10,
    ) as events:
        run(max_examples=3000 if PROFILE == "deep" else 300)
    print(dict(events))


def test_short_programs_and_crowds_of_beams_keep_every_law():
    """Two failures in a row, or three searches in a pool for one, are rare in the machine."""
    with must_happen(
        "copy-on-write",
        "preemption by recompute",
        "preemption by swap",
        "retry",
        "rollback",
        "swap in",
        "wait for a prefix",
        at_least=10,
    ):
        found = first_failure(20_000 if PROFILE == "deep" else 700)
    assert found is None, as_text(found[1])
