"""What a request gets depends on its prompt, its parameters and the model, and on nothing else.

Not on block size, chunks, caching, preemption, batch mates or streaming. In float64, so that equal
means equal: in float32 a sum in another order may flip a near tie.
"""

from __future__ import annotations

import functools

import pytest
import torch

from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_models import (
    PROMPTS,
    assert_idle,
    bundled,
    essence,
    load_tiny,
    make_llm,
    tokens,
)
from support.tiny_models import in_float64, make_reference

torch.set_num_threads(1)

GREEDY = SamplingParams(temperature=0, max_tokens=8, frequency_penalty=0.7)
SEEDED = SamplingParams(n=2, seed=11, max_tokens=8, top_p=0.95, repetition_penalty=1.2)
STOPPED = SamplingParams(seed=11, max_tokens=12, stop=["the", ", a"], temperature=0.8)
BEAMS = BeamSearchParams(beam_width=3, max_tokens=6, length_penalty=0.5)
WISHES = (GREEDY, SEEDED, STOPPED, BEAMS)

KNOBS = {
    "as it is": {},
    "blocks of 1": {"block_size": 1, "num_blocks": 400},
    "blocks of 3": {"block_size": 3},
    "blocks of 16": {"block_size": 16},
    "no caching": {"prefix_caching": False},
    "no caching, blocks of 3": {"prefix_caching": False, "block_size": 3},
    "one token a step": {"max_num_batched_tokens": 1},
    "chunks of 5": {"max_num_batched_tokens": 5},
    "chunks of 64": {"max_num_batched_tokens": 64},
    "one sequence a step": {"max_num_seqs": 1},
    "three sequences a step": {"max_num_seqs": 3},
    "recompute": {"num_blocks": 15},
    "recompute, chunks of 5": {"num_blocks": 15, "max_num_batched_tokens": 5},
    "recompute, no caching": {"num_blocks": 18, "prefix_caching": False},
    "recompute, blocks of 1": {"num_blocks": 56, "block_size": 1},
    "swap": {"num_blocks": 15, "preemption": "swap"},
    "swap, chunks of 5": {"num_blocks": 15, "preemption": "swap", "max_num_batched_tokens": 5},
    "swap, no caching": {"num_blocks": 18, "preemption": "swap", "prefix_caching": False},
    "swap, small host": {"num_blocks": 15, "preemption": "swap", "num_host_blocks": 8},
}


@functools.cache
def alone() -> list:
    """Each request by itself, in a fresh engine that caches nothing."""
    llm = make_llm(prefix_caching=False, sanitize=False)
    return essence([llm.generate(prompt, wish)[0] for prompt, wish in zip(PROMPTS, WISHES)])


def test_the_answers_are_worth_comparing():
    """Different, long, and not all alike, or the comparisons below would compare nothing."""
    found = alone()
    every = [ids for request in found for _, ids, *_ in request]
    assert len({tuple(ids) for ids in every}) == len(every)
    assert all(len(set(ids)) > 2 for ids in every)
    assert found[2][0][3] == "stop"


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.invariant(12, 14)
def test_no_knob_changes_a_token(knobs):
    llm = make_llm(**KNOBS[knobs])
    outputs = llm.generate(list(PROMPTS), list(WISHES))
    assert essence(outputs) == alone()
    if "recompute" in knobs or "swap" in knobs:
        assert llm.stats.num_preemptions > 0
        assert sum(output.num_preemptions for output in outputs) > 0
    if "swap" in knobs:
        assert llm.stats.blocks_swapped > 0
    assert_idle(llm)


def test_a_warm_cache_changes_no_token():
    llm = make_llm(block_size=2, num_blocks=200)
    cold = llm.generate(list(PROMPTS), list(WISHES))
    warm = llm.generate(list(PROMPTS), list(WISHES))
    assert all(output.num_cached_tokens > 0 for output in warm)
    assert essence(cold) == essence(warm) == alone()
    assert_idle(llm)


def test_a_full_cache_that_evicts_changes_no_token():
    llm = make_llm(num_blocks=24)
    for _ in range(2):
        found = [llm.generate(prompt, wish)[0] for prompt, wish in zip(PROMPTS, WISHES)]
        assert essence(found) == alone()
    assert llm.pool.num_evictions > 0


def test_streaming_is_generating_piece_by_piece():
    llm = make_llm(num_blocks=15)
    told: dict[tuple[str, int], list] = {}
    for delta in llm.stream(list(PROMPTS), list(WISHES)):
        told.setdefault((delta.request_id, delta.index), []).append(delta)
    for i, request in enumerate(alone()):
        for index, ids, text, reason, _ in request:
            deltas = told.pop((str(i), index))
            assert [t for d in deltas for t in d.token_ids] == ids
            assert "".join(d.text for d in deltas) == text
            assert [d.finish_reason for d in deltas] == [None] * (len(deltas) - 1) + [reason]
    assert told == {}
    assert llm.stats.num_preemptions > 0
    assert_idle(llm)


def test_a_request_that_comes_late_changes_nobody_and_gets_the_same():
    llm = make_llm(num_blocks=40)
    requests = []
    for prompt, wish in zip(PROMPTS, WISHES):
        requests.append(llm.add(prompt, wish))
        llm.step()
        llm.step()
    while llm.has_unfinished:
        llm.step()
    found = [[(s.index, s.output_token_ids) for s in r.sequences] for r in requests]
    assert found == [[(index, ids) for index, ids, *_ in request] for request in alone()]


# --- samples --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four_alone():
    """n=4 of one prompt."""
    return tokens(make_llm().generate(PROMPTS[0], SamplingParams(n=4, seed=5, max_tokens=8)))[0]


def test_samples_of_one_prompt_differ(four_alone):
    assert len({tuple(ids) for ids in four_alone}) == 4


@pytest.mark.invariant(12)
def test_n_samples_are_the_same_in_a_batch(four_alone):
    wishes = [GREEDY, SamplingParams(n=4, seed=5, max_tokens=8), SEEDED]
    found = make_llm(num_blocks=40).generate([PROMPTS[1], PROMPTS[0], PROMPTS[0]], wishes)
    assert tokens(found)[1] == four_alone


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.invariant(12)
def test_sample_i_does_not_depend_on_n(four_alone, n):
    found = make_llm().generate(PROMPTS[0], SamplingParams(n=n, seed=5, max_tokens=8))
    assert tokens(found)[0] == four_alone[:n]


def test_equal_seeds_draw_equally_and_others_do_not():
    wishes = [SamplingParams(seed=seed, max_tokens=8) for seed in (5, 6, 5)]
    a, b, c = tokens(make_llm().generate([PROMPTS[0]] * 3, wishes))
    assert a == c != b


def test_without_a_seed_two_requests_differ():
    a, b = tokens(make_llm().generate([PROMPTS[0]] * 2, SamplingParams(max_tokens=12)))
    assert a != b


def test_samples_fork_the_prompt_and_copy_only_their_last_block():
    """Four samples of a prompt that ends inside a block: it is computed once and copied 3 times."""
    llm = make_llm()
    ids = llm.tokenizer.encode(PROMPTS[0])[:21]
    llm.generate(ids, SamplingParams(n=4, seed=1, max_tokens=2, ignore_eos=True))
    assert llm.stats.prompt_tokens_computed == 21
    assert llm.stats.blocks_copied == 3


# --- log-probabilities ----------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", ["blocks of 3", "chunks of 5", "recompute", "swap", "no caching"])
def test_log_probabilities_are_the_same(knobs):
    wish = SamplingParams(temperature=0, max_tokens=6, logprobs=3, prompt_logprobs=2)
    wishes = [wish, SEEDED, wish, GREEDY]
    expected = [make_llm().generate(prompt, wish)[0] for prompt in (PROMPTS[0], PROMPTS[2])]
    llm = make_llm(**KNOBS[knobs])
    for _ in range(2):  # with a cold cache and with a warm one
        found = llm.generate(list(PROMPTS), wishes)
        for output, right in zip((found[0], found[2]), expected):
            assert output.num_cached_tokens == 0  # every prompt token is computed
            assert_close(output.prompt_logprobs, right.prompt_logprobs)
            assert_close(output.outputs[0].logprobs, right.outputs[0].logprobs)
            told = output.outputs[0].cumulative_logprob
            assert told == pytest.approx(right.outputs[0].cumulative_logprob, abs=1e-9)


def assert_close(found: list, expected: list) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        if theirs is None:
            assert mine is None
            continue
        assert list(mine) == list(theirs)
        for token_id in theirs:
            assert mine[token_id].rank == theirs[token_id].rank
            assert mine[token_id].logprob == pytest.approx(theirs[token_id].logprob, abs=1e-9)


# --- a sliding window -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    """A random model that sees 5 positions, and ``transformers``' own copy of it."""
    directory = tmp_path_factory.mktemp("window")
    reference = make_reference("mistral-window", directory)
    return load_tiny(directory), in_float64(reference)


WINDOW_PROMPTS = [[7, 3, 9, 9, 1, 4, 80, 6, 5, 3, 5, 90, 2], [7, 3, 9, 9, 1, 4, 80, 1], [50]]


def continued(reference, prompt: list[int], num_tokens: int) -> list[int]:
    """The likeliest continuation, all computed anew for every token."""
    ids = torch.tensor([prompt])
    for _ in range(num_tokens):
        with torch.no_grad():
            ids = torch.cat((ids, reference(ids).logits[:, -1:].argmax(-1)), 1)
    return ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize(
    "knobs",
    [{}, {"block_size": 1}, {"block_size": 3, "max_num_batched_tokens": 4}]
    + [{"block_size": 2, "num_blocks": 9, "preemption": p} for p in ("recompute", "swap")],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_window_of_few_blocks_is_enough(windowed, knobs):
    model, reference = windowed
    llm = make_llm(model, **({"num_blocks": 40} | knobs))
    wish = SamplingParams(temperature=0, max_tokens=5)
    found = llm.generate(WINDOW_PROMPTS, wish)
    assert tokens(found) == [[continued(reference, prompt, 5)] for prompt in WINDOW_PROMPTS]
    if llm.pool.num_blocks < 40:
        assert llm.stats.num_preemptions > 0
    assert_idle(llm)


# --- random models --------------------------------------------------------------------------------

RANDOM_PROMPTS = [[7, 3, 9, 9, 1, 4, 80, 6, 5, 3, 5], [7, 3, 9, 9, 1, 4, 80, 1], [50], [7, 3, 9, 9]]
RANDOM_KNOBS = {
    "blocks of 1": {"block_size": 1},
    "blocks of 3, chunks of 2": {"block_size": 3, "max_num_batched_tokens": 2},
    "no caching": {"prefix_caching": False},
    "recompute": {"block_size": 2, "num_blocks": 14},
    "swap": {"block_size": 2, "num_blocks": 14, "preemption": "swap"},
}


@pytest.fixture(scope="module", params=["llama-biases", "qwen3"])
def random_model(request, tmp_path_factory):
    """Weights without sense make every token a surprise, and none a near tie."""
    directory = tmp_path_factory.mktemp(request.param)
    make_reference(request.param, directory)
    return load_tiny(directory)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_knob_changes_a_token_of_a_random_model(random_model):
    sound = make_llm(random_model, prefix_caching=False)
    alone = [sound.generate(prompt, wish)[0] for prompt, wish in zip(RANDOM_PROMPTS, WISHES)]
    for knobs in RANDOM_KNOBS:
        llm = make_llm(random_model, **RANDOM_KNOBS[knobs])
        found = llm.generate(RANDOM_PROMPTS, list(WISHES))
        assert essence(found) == essence(alone), knobs
        assert (llm.stats.num_preemptions > 0) == (knobs in ("recompute", "swap"))
        assert_idle(llm)


# --- float32 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", ["blocks of 16", "chunks of 5", "recompute", "swap"])
def test_in_float32_these_prompts_give_the_same_tokens_too(knobs):
    llm = make_llm(bundled("float32"), **KNOBS[knobs])
    assert essence(llm.generate(list(PROMPTS), list(WISHES))) == alone()
