"""What a computed step means for samples and beams, on examples over the shadow model."""

from __future__ import annotations

import pytest

from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_world import EngineWorld

BEAMS = BeamSearchParams(beam_width=2, max_tokens=3, ignore_eos=True)


def in_use(world: EngineWorld) -> int:
    return world.llm.pool.num_blocks - world.llm.pool.num_free


@pytest.mark.parametrize("num_siblings", [1, 2, 3, 4])
def test_each_sample_is_drawn_from_its_own_row(num_siblings):
    """However many rows there are beside it, of beams or of others, before it or after it."""
    for num_beams in (0, 1, 2):
        world = EngineWorld(40, 2)
        for i in range(num_beams):
            world.add([i, 1, 0], BEAMS)
        world.add([1, 1], SamplingParams(n=num_siblings, seed=1, max_tokens=3, ignore_eos=True))
        world.add([0, 0], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
        world.drain()


def test_samples_are_born_when_the_prompt_is_computed():
    world = EngineWorld(40, 2, max_num_batched_tokens=3)
    request = world.add([0, 1, 1, 0, 1], SamplingParams(n=3, seed=1, max_tokens=3, ignore_eos=True))
    assert request is not None
    numbers = []
    for _ in range(3):
        world.step()
        numbers.append(len(request.sequences))
    assert numbers == [1, 3, 3]
    world.drain()


def test_a_sample_that_has_ended_gives_its_own_blocks_back_at_once():
    """Three samples of 2 shared blocks: each has one of its own, and ends when it draws a 0."""
    world = EngineWorld(40, 2, prefix_caching=False)
    wish = SamplingParams(n=3, seed=5, max_tokens=8, stop_token_ids=[0], ignore_eos=True)
    request = world.add([0, 1, 1, 0], wish)
    assert request is not None
    ended = 0
    while request.unfinished:
        world.step()
        lengths = [s.table.num_tokens for s in request.unfinished]
        own = sum(-(-n // 2) - 2 for n in lengths)
        assert in_use(world) == (2 + own if lengths else 0)
        ended = max(ended, 3 - len(lengths)) if lengths else ended
    assert ended > 0, "all ended at once, so nothing was seen"
    world.drain()


def test_beams_without_offspring_give_their_blocks_back_at_once():
    world = EngineWorld(40, 1, prefix_caching=False)
    request = world.add([0, 1], BeamSearchParams(beam_width=3, max_tokens=5, ignore_eos=True))
    assert request is not None
    while request.unfinished:
        world.step()
        held = {b for s in request.sequences for b in s.table.block_ids}
        assert in_use(world) == len(held)
    world.drain()


def test_a_beam_waits_for_its_mates_and_they_go_on_together():
    world = EngineWorld(40, 2, max_num_seqs=1)
    request = world.add([0, 1, 1], BEAMS)
    assert request is not None
    lengths = []
    while request.unfinished:
        world.step()
        lengths.append([len(s.output_token_ids) for s in request.sequences])
    assert lengths == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3]]
    world.drain()


def test_a_token_is_delivered_before_a_later_one_of_the_step_fails():
    world = EngineWorld(40, 2)
    wish = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    first, second = world.add([0, 1], wish), world.add([1, 1], wish)
    assert first is not None
    assert second is not None
    first.inbox, second.inbox = [], []
    world.break_sampling(2)  # the text of the second
    assert (len(first.inbox), len(second.inbox)) == (1, 0)
    world.step()
    assert (len(first.inbox), len(second.inbox)) == (2, 1)
    world.drain()


@pytest.mark.parametrize("budget", [2, 64])
def test_prompt_logprobs_are_recorded_once_though_the_prompt_is_computed_twice(budget):
    """The newer of two requests is preempted, in its prompt or behind it, and computed again."""
    world = EngineWorld(4, 2, max_num_batched_tokens=budget, prefix_caching=False)
    world.add([0, 1], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
    wish = SamplingParams(prompt_logprobs=1, temperature=0, max_tokens=3, ignore_eos=True)
    request = world.add([1, 0, 1, 1], wish)
    assert request is not None
    world.drain()
    assert request.num_preemptions > 0, "nobody was preempted, so nothing was seen"
    assert request.prompt_logprobs is not None
    assert len(request.prompt_logprobs) == 4
