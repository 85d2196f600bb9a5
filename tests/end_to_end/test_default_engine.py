"""What a user gets who chooses nothing: compiled attention, and still the same tokens."""

from __future__ import annotations

import pytest
import torch

from minipaged.engine.llm import LLM
from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_models import PROMPTS, assert_idle, bundled, essence, make_llm

torch.set_num_threads(1)

WISHES = [
    SamplingParams(temperature=0, max_tokens=8, frequency_penalty=0.7),
    SamplingParams(n=2, seed=11, max_tokens=8, top_p=0.95),
    SamplingParams(seed=2, max_tokens=8),
    BeamSearchParams(beam_width=3, max_tokens=6),
]
KNOBS = {
    "as it is": {},
    "tight": {"num_blocks": 15, "block_size": 4},
    "swapping": {"num_blocks": 15, "block_size": 4, "preemption": "swap"},
    "blocks of 3, chunks of 7": {"block_size": 3, "max_num_batched_tokens": 7},
    "sanitized": {"sanitize": True},
}


@pytest.fixture(scope="module")
def expected():
    """By the reference attention, in float64."""
    return essence(make_llm().generate(list(PROMPTS), WISHES))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("knobs", KNOBS)
def test_compiled_attention_gives_the_same_tokens(expected, knobs, dtype):
    llm = LLM(bundled(dtype), **KNOBS[knobs])
    assert llm.executor.attention.__module__ == "minipaged.attention.cpu"
    assert essence(llm.generate(list(PROMPTS), WISHES)) == expected
    assert (llm.stats.num_preemptions > 0) == (knobs in ("tight", "swapping"))
    assert_idle(llm)


def test_without_any_choice_there_is_a_model_a_pool_and_an_answer():
    llm = LLM()
    (output,) = llm.generate("In the beginning", SamplingParams(max_tokens=4, ignore_eos=True))
    assert len(output.outputs[0].token_ids) == 4
    assert output.text == llm.tokenizer.decode(output.outputs[0].token_ids)
    assert llm.pool.num_blocks * llm.cache.bytes_per_block <= 2**30
    assert llm.stats.compile_seconds > 0
    assert_idle(llm)
