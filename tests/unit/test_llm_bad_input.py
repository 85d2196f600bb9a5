"""What no step could ever serve is refused at once, with the numbers, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from minipaged.attention import paged_attention
from minipaged.core import InvalidBatch, InvalidRequest, ModelError
from minipaged.engine.llm import LLM
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.models.catalog import BUNDLED
from support.engine_models import assert_idle, bundled, make_llm
from support.engine_shadow import ShadowLLM

torch.set_num_threads(1)

ONE = SamplingParams(max_tokens=1)


@pytest.fixture(scope="module")
def shared_llm():
    """16 blocks of 4 tokens, and a model made for 1024."""
    return make_llm(num_blocks=16)


@pytest.fixture
def llm(shared_llm):
    """After every refusal the engine is idle and still serves."""
    yield shared_llm
    assert_idle(shared_llm)
    assert len(shared_llm.generate([5], ONE)[0].outputs[0].token_ids) == 1
    assert_idle(shared_llm)


# --- prompts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompts", ["", [""], [[]], [[5], []]])
def test_an_empty_prompt(llm, prompts):
    with pytest.raises(InvalidRequest, match="the prompt is empty: it must hold at least one"):
        llm.generate(prompts, ONE)


def test_no_prompts_are_no_work(llm):
    assert llm.generate([], ONE) == []
    assert list(llm.stream([], ONE)) == []


@pytest.mark.parametrize("num_tokens", [1024, 1025, 5000])
def test_a_prompt_longer_than_the_model_was_made_for(llm, num_tokens):
    with pytest.raises(InvalidRequest, match=f"has {num_tokens} tokens.* 1024: at least one"):
        llm.generate([5] * num_tokens, ONE)


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "needed"), [(64, 2, 17), (60, 6, 17), (65, 1, 17), (1, 100, 25)]
)
@pytest.mark.invariant(10, 11)
def test_more_than_an_empty_pool_could_hold(llm, num_prompt, max_tokens, needed):
    """The last token takes no slot: 64 tokens and one more need 16 blocks, two more need 17."""
    says = rf"{num_prompt} prompt tokens and max_tokens={max_tokens} need {needed} blocks of 4.* 16"
    with pytest.raises(InvalidRequest, match=says):
        llm.generate([5] * num_prompt, SamplingParams(max_tokens=max_tokens))


def test_just_what_an_empty_pool_can_hold_is_served(llm):
    wish = SamplingParams(max_tokens=5, ignore_eos=True)
    assert len(llm.generate([5] * 60, wish)[0].outputs[0].token_ids) == 5


def test_beams_that_an_empty_pool_could_not_hold(llm):
    """30 and 6 more tokens: 7 full blocks of the prompt are shared, 2 more each are not."""
    with pytest.raises(InvalidRequest, match=r"with beam_width=5 need 17 blocks of 4.* 16"):
        llm.generate([5] * 30, BeamSearchParams(beam_width=5, max_tokens=6))
    found = llm.generate([5] * 30, BeamSearchParams(beam_width=4, max_tokens=6, ignore_eos=True))
    assert len(found[0].outputs) == 4


@pytest.mark.parametrize("token", [2048, -1, 1.5, "a", None])
def test_a_token_that_the_model_does_not_know(llm, token):
    with pytest.raises(InvalidRequest, match=r"token .* of the prompt.* 2048"):
        llm.generate([[5, token]], ONE)


def test_of_many_prompts_the_bad_one_is_named_and_none_is_started(llm):
    with pytest.raises(InvalidRequest, match="prompt 2 of 3: the prompt is empty"):
        llm.generate([[5], [], [6]], ONE)
    assert not llm.has_unfinished


def test_as_many_parameters_as_prompts(llm):
    with pytest.raises(InvalidRequest, match="3 prompts, but 2 params"):
        llm.generate([[5], [6], [7]], [ONE, ONE])


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"max_tokens": 0}, "max_tokens=0: must be an integer in [1, inf)"),
        ({"max_tokens": -5}, "max_tokens=-5"),
        ({"max_tokens": 1.5}, "max_tokens=1.5"),
        ({"temperature": -1}, "temperature=-1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_p": 0}, "top_p=0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"repetition_penalty": 0}, "repetition_penalty=0"),
        ({"n": 0}, "n=0"),
        ({"stop": ""}, "stop=''"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens=5: must be at most max_tokens=4"),
    ],
    ids=str,
)
def test_sampling_parameters_out_of_range(wrong, says):
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**wrong)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "wish",
    [
        SamplingParams(stop_token_ids=[2048]),
        SamplingParams(logit_bias={2048: 1.0}),
        BeamSearchParams(beam_width=1, stop_token_ids=[5, 9999]),
    ],
)
def test_ids_beyond_the_vocabulary(llm, wish):
    with pytest.raises(InvalidRequest, match="below the vocabulary's size, 2048"):
        llm.generate([5], wish)


# --- names ----------------------------------------------------------------------------------------


def test_aborting_whom_nobody_knows(llm):
    with pytest.raises(InvalidRequest, match="no unfinished request 'x'; unfinished are: none"):
        llm.abort("x")


def test_aborting_twice_or_too_late(llm):
    llm.add([5], request_id="x")
    llm.add([6], request_id="y")
    assert llm.abort("x").outputs[0].finish_reason == "abort"
    with pytest.raises(InvalidRequest, match="no unfinished request 'x'; unfinished are: y"):
        llm.abort("x")
    llm.abort("y")


def test_a_name_is_taken_until_its_request_has_ended(llm):
    llm.add([5], ONE, request_id="x")
    with pytest.raises(InvalidRequest, match="'x' is still unfinished: choose another name"):
        llm.add([6], ONE, request_id="x")
    llm.step()
    llm.add([6], ONE, request_id="x")
    llm.step()


def test_a_number_chosen_as_a_name_is_not_given_to_another():
    llm = ShadowLLM(num_blocks=8)
    long = SamplingParams(max_tokens=5, ignore_eos=True)
    names = [llm.add([0], long, request_id=given).request_id for given in ("1", "2", None, None)]
    names += [output.request_id for output in llm.generate([[1], [1]], ONE)]
    assert len(set(names)) == 6
    while llm.has_unfinished:
        llm.step()
    llm.check_idle()


# --- engines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: 0} for name in ("block_size", "max_num_seqs", "max_num_batched_tokens")),
        *({name: 0} for name in ("num_blocks", "num_host_blocks")),
        *({"block_size": value} for value in (-1, 2.5, "16", None)),
        {"max_model_len": 1},
        {"num_host_blocks": -3},
    ],
    ids=str,
)
def test_sizes_that_make_no_engine(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidRequest, match=f"{name}={value!r}: must be a whole number of"):
        make_llm(**({"preemption": "swap"} | wrong))


def test_choices_that_do_not_exist():
    with pytest.raises(InvalidRequest, match="preemption='swop': must be 'recompute' or 'swap'"):
        make_llm(preemption="swop")
    with pytest.raises(InvalidRequest, match="dtype='float7': must be float32"):
        LLM("bundled", attention=len, dtype="float7")


def test_memory_too_small_for_one_block_shows_the_arithmetic():
    says = r"memory='1KiB' is 1,024 bytes, one block takes 40,960.*: 5 layers x 2 \(K, V\) x "
    says += "16 tokens x 2 heads x 32 dims x 4 bytes"
    with pytest.raises(InvalidRequest, match=says):
        LLM("bundled", attention=len, memory="1KiB")


@pytest.mark.parametrize(("memory", "blocks"), [("80KiB", 2), (40960, 1), ("1MiB", 25)])
def test_memory_becomes_blocks(memory, blocks):
    assert LLM(bundled("float32"), attention=len, memory=memory).pool.num_blocks == blocks


@pytest.mark.parametrize("memory", ["lots", "-5MB", "1 TiBs", ""])
def test_memory_that_is_no_size(memory):
    with pytest.raises(InvalidRequest, match="must be bytes, such as '512MiB'"):
        LLM(bundled("float32"), attention=len, memory=memory)


def test_the_pool_s_size_is_given_once():
    with pytest.raises(InvalidRequest, match="num_blocks=4 and memory='1MiB'"):
        LLM(bundled("float32"), attention=len, memory="1MiB", num_blocks=4)


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"), [("bundeld", "did you mean 'bundled'"), ("/no/such/model", "no model")]
)
def test_a_model_that_is_not_there(name, says):
    with pytest.raises(ModelError, match=says):
        LLM(name, attention=len)


@pytest.fixture
def copy(tmp_path):
    """The bundled model, to be damaged."""
    for path in BUNDLED.glob("*.*"):
        if path.suffix in (".json", ".safetensors"):
            shutil.copy(path, tmp_path)
    return tmp_path


def test_an_undamaged_copy_is_a_model(copy):
    assert LLM(str(copy), attention=len, num_blocks=1).config == bundled("float32").config


@pytest.mark.parametrize("size", [0, 4, 100, 100_000, -1])
def test_truncated_weights(copy, size):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        LLM(str(copy), attention=len)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ["", "{", "\x00\x01"])
def test_a_damaged_file_is_named(copy, name, text):
    (copy / name).write_text(text)
    with pytest.raises(ModelError, match=name):
        LLM(str(copy), attention=len)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "mamba"),
        ({"hidden_size": 128}, "embed_tokens|hidden_size|shape"),
        ({"num_hidden_layers": 6}, r"layers\.5"),
    ],
)
def test_weights_that_are_not_what_the_config_says(copy, changes, says):
    path = copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ModelError, match=f"(?i){says}"):
        LLM(str(copy), attention=len)


def test_what_is_no_prompt_or_no_conversation_is_refused(llm):
    with pytest.raises(InvalidRequest, match="None is no prompt"):
        llm.generate(None)
    with pytest.raises(InvalidRequest, match="must be a list such as"):
        llm.chat("hi")
    with pytest.raises(InvalidRequest, match="must be a function"):
        LLM("bundled", attention="fast")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda out: None, "returned a NoneType, not a tensor"),
        (lambda out: (out, out), "returned a tuple, not a tensor"),
        (lambda out: out.transpose(1, 2), "num_heads, head_dim"),
        (lambda out: out.flatten(1), "num_heads, head_dim"),
        (lambda out: out.double(), "torch.float64"),
    ],
)
def test_what_an_attention_function_returns_is_checked(spoil, message):
    """Some of these have the right number of elements, and would pass unnoticed."""
    llm = LLM("bundled", lambda *args, **options: spoil(paged_attention(*args, **options)))
    with pytest.raises(InvalidBatch, match=message):
        llm.generate("In the beginning", SamplingParams(max_tokens=2))
    llm.scheduler.check()
    assert llm.pool.num_free == llm.pool.num_blocks
