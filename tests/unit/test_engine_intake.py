"""A prompt becomes a request: how much it may generate, whom it may share with, what it draws."""

from __future__ import annotations

import pytest

from minipaged.core import BlockPool
from minipaged.engine.intake import Intake
from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_shadow import ShadowLLM, ShadowTokenizer

LONG = SamplingParams(max_tokens=None)


def intake(
    num_blocks: int = 8, block_size: int = 4, max_model_len: int = 100, caching: bool = True
):
    keys = {"model": "m"} if caching else None
    return Intake(ShadowTokenizer(), 3, max_model_len, BlockPool(num_blocks), block_size, keys)


# --- how much -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "allowed"),
    [
        (1, None, 32),  # 32 slots, and the last token needs none
        (1, 32, 32),
        (1, 5, 5),
        (32, None, 1),
        (31, None, 2),
    ],
)
@pytest.mark.invariant(10, 11)
def test_a_request_may_fill_an_empty_pool(num_prompt, max_tokens, allowed):
    request = intake().request([0] * num_prompt, SamplingParams(max_tokens=max_tokens))
    assert request.max_tokens == allowed


@pytest.mark.parametrize(("num_prompt", "allowed"), [(1, 9), (8, 2), (9, 1)])
def test_prompt_and_output_fit_the_model(num_prompt, allowed):
    request = intake(max_model_len=10).request([0] * num_prompt, SamplingParams(max_tokens=50))
    assert request.max_tokens == allowed


@pytest.mark.parametrize("num_prompt", [10, 11])
def test_a_prompt_that_leaves_no_token_to_generate_is_refused(num_prompt):
    with pytest.raises(ValueError, match=f"has {num_prompt} tokens, prompt and output .* 10"):
        intake(max_model_len=10).request([0] * num_prompt, LONG)


@pytest.mark.parametrize("max_tokens", [1, None, 3])
@pytest.mark.invariant(11)
def test_a_prompt_that_no_pool_could_hold_is_refused(max_tokens):
    with pytest.raises(ValueError, match=r"need .* blocks of 4, the whole pool has 8"):
        intake().request([0] * 33, SamplingParams(max_tokens=max_tokens))


@pytest.mark.parametrize(
    ("num_prompt", "width", "caching", "allowed"),
    [
        (8, 1, True, 25),
        (8, 2, True, 13),  # 2 blocks are shared, each beam gets 3 of the other 6: 20 slots
        (9, 2, True, 12),
        (8, 2, False, 9),  # nothing is certain to be shared: 4 blocks each, 16 slots
        (8, 3, True, 9),  # 2 of the other 6 each
        (3, 8, True, 2),  # 1 block each
    ],
)
def test_beams_may_fill_it_together(num_prompt, width, caching, allowed):
    wish = BeamSearchParams(beam_width=width, max_tokens=None)
    assert intake(caching=caching).request([0] * num_prompt, wish).max_tokens == allowed


# --- who shares -----------------------------------------------------------------------------------


@pytest.mark.invariant(6)
def test_only_equal_salts_share():
    llm = ShadowLLM(num_blocks=30, block_size=2)
    found = []
    for salt in (None, "a", "b", "a", None, ""):
        request = llm.add([0, 1, 1, 0, 1], SamplingParams(max_tokens=1), salt=salt)
        llm.step()
        found.append(request.num_cached_tokens)
    assert found == [0, 0, 0, 4, 4, 0]
    llm.check_idle()


def test_a_salt_is_no_other_key():
    one, other = intake(), intake()
    other.keys = {"model": "m", "dtype": "float16"}
    roots = {one.request([0], LONG, salt=salt).root for salt in (None, "m", "float16")}
    roots |= {other.request([0], LONG, salt=salt).root for salt in (None, "m")}
    assert len(roots) == 5


def test_without_caching_there_is_no_chain():
    assert intake(caching=False).request([0], LONG, salt="a").root is None


# --- what is drawn --------------------------------------------------------------------------------


def test_a_seed_is_kept_and_without_one_each_request_gets_its_own():
    door = intake()
    seeds = [door.request([0], SamplingParams(seed=seed)).seed for seed in (7, 7, None, None)]
    assert seeds[:2] == [7, 7]
    assert len(set(seeds)) == 3


def test_requests_are_numbered_in_order():
    door = intake()
    requests = [door.request([0], LONG, given) for given in (None, "x", None)]
    assert [r.request_id for r in requests] == ["0", "x", "2"]
    assert [r.order for r in requests] == [0, 1, 2]


def test_a_refused_prompt_takes_no_number():
    door = intake()
    with pytest.raises(ValueError, match="empty"):
        door.request([], LONG)
    assert door.request([0], LONG).request_id == "0"
