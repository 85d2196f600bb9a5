"""The engine says what ``transformers`` says: greedily and with beams, however it is pressed."""

from __future__ import annotations

import warnings

import pytest
import torch

from minipaged.engine.llm import LLM
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.engine.scheduler import Step
from minipaged.models.catalog import BUNDLED
from support.engine_models import PROMPTS, assert_idle, bundled, make_llm, tokens
from support.tiny_models import in_float64

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MODES = (True, False, "never")
WIDTH, MAX_TOKENS = 3, 7


@pytest.fixture(scope="module")
def reference():
    """The bundled model as ``transformers`` loads and computes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        transformers.utils.logging.set_verbosity_error()
        model = transformers.AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float64)
    return in_float64(model).eval()


def theirs(reference, prompt: str, **options) -> list[list[int]]:
    ids = bundled().tokenizer.encode(prompt)
    found = reference.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        do_sample=False,
        pad_token_id=-1,
        **options,
    )
    return [[t for t in row if t >= 0] for row in found[:, len(ids) :].tolist()]


# --- greedy ---------------------------------------------------------------------------------------


def test_greedy_is_theirs(reference):
    found = make_llm().generate(list(PROMPTS), SamplingParams(temperature=0, max_tokens=20))
    expected = [theirs(reference, prompt, max_new_tokens=20) for prompt in PROMPTS]
    assert tokens(found) == expected


def test_greedy_with_a_repetition_penalty_is_theirs(reference):
    wish = SamplingParams(temperature=0, max_tokens=20, repetition_penalty=1.3)
    found = make_llm().generate(list(PROMPTS), wish)
    options = {"max_new_tokens": 20, "repetition_penalty": 1.3}
    assert tokens(found) == [theirs(reference, prompt, **options) for prompt in PROMPTS]


# --- beams ----------------------------------------------------------------------------------------

STOPS = [12, 14]  # a comma and a full stop: hypotheses of different lengths
PENALTIES = (1.0, -0.5, 2.0)


@pytest.fixture(scope="module")
def expected(reference):
    """Their beams for every mode and two prompts."""
    return {
        mode: [
            theirs(
                reference,
                prompt,
                num_beams=WIDTH,
                num_return_sequences=WIDTH,
                early_stopping=mode,
                length_penalty=penalty,
                eos_token_id=STOPS,
                max_new_tokens=MAX_TOKENS,
            )
            for prompt, penalty in zip(PROMPTS, PENALTIES)
        ]
        for mode in MODES
    }


def wishes(mode) -> list[BeamSearchParams]:
    return [
        BeamSearchParams(
            beam_width=WIDTH,
            max_tokens=MAX_TOKENS,
            early_stopping=mode,
            length_penalty=penalty,
            stop_token_ids=STOPS,
            ignore_eos=True,
        )
        for penalty in PENALTIES
    ]


@pytest.mark.parametrize("mode", MODES)
def test_the_modes_are_worth_comparing(expected, mode):
    lengths = {len(ids) for beams in expected[mode] for ids in beams}
    assert len(lengths) > 2, lengths
    assert all(len({tuple(ids) for ids in beams}) == WIDTH for beams in expected[mode])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_beams_are_theirs(expected, mode, caching, block_size):
    llm = make_llm(block_size=block_size, num_blocks=400, prefix_caching=caching)
    found = llm.generate(list(PROMPTS[:3]), wishes(mode))
    assert tokens(found) == expected[mode]
    assert_idle(llm)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 57), (3, 17)])
def test_beams_that_were_preempted_are_theirs(expected, mode, preemption, block_size, num_blocks):
    """An older request and other beams compete for the pool; who had to leave comes back."""
    llm = make_llm(num_blocks=num_blocks, block_size=block_size, preemption=preemption)
    preempted = watch_preemptions(llm)
    older = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    found = llm.generate([PROMPTS[2], *PROMPTS[:3]], [older, *wishes(mode)])
    assert tokens(found)[1:] == expected[mode]
    assert max(preempted) >= WIDTH, "no three beams left together"
    assert (llm.stats.blocks_swapped > 0) == (preemption == "swap")
    assert_idle(llm)


def watch_preemptions(llm: LLM) -> list[int]:
    """A list that gets, step by step, the number of sequences that had to leave."""
    schedule, numbers = llm.scheduler.schedule, []

    def watched() -> Step:
        step = schedule()
        numbers.append(len(step.preempted))
        return step

    llm.scheduler.schedule = watched
    return numbers


@pytest.mark.parametrize("knobs", [{"max_num_seqs": 2}, {"max_num_batched_tokens": 2}], ids=str)
def test_beams_that_are_computed_in_several_steps_are_theirs(expected, knobs):
    llm = make_llm(**knobs)
    assert tokens(llm.generate(list(PROMPTS[:3]), wishes(False))) == expected[False]
    assert_idle(llm)
