"""Whatever fails in the middle, no block is lost, others go on, and trying again gives the same."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
from types import SimpleNamespace

import pytest
import torch

from minipaged.core import InvalidRequest
from minipaged.engine.devices import choose_dtype
from minipaged.engine.llm import LLM
from minipaged.engine.outputs import Delta
from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_faulty import FailingAttention, poison_attention_of, raiser
from support.engine_models import PROMPTS, assert_idle, essence, make_llm
from support.engine_shadow import Broken, ShadowLLM

torch.set_num_threads(1)

SEEDED = SamplingParams(n=2, seed=3, max_tokens=4)
GREEDY = SamplingParams(temperature=0, max_tokens=5)
BEAMS = BeamSearchParams(beam_width=2, max_tokens=3)
WISHES = [SEEDED, GREEDY, BEAMS]


@functools.cache
def undisturbed() -> list:
    return essence(make_llm().generate(list(PROMPTS[:3]), WISHES))


def finish(llm: LLM) -> None:
    while llm.has_unfinished:
        llm.step()


# --- the model raises -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("at_call", [1, 4, 5, 6, 12, 23])
def test_after_a_failed_step_everybody_goes_on_as_if_nothing_had_been(at_call, error):
    attention = FailingAttention(at_call, raiser(error))
    llm = make_llm(attention=attention)
    requests = [llm.add(prompt, wish) for prompt, wish in zip(PROMPTS, WISHES)]
    with pytest.raises(type(error)):
        finish(llm)
    llm.scheduler.check()
    assert llm.has_unfinished
    finish(llm)
    found = [[(s.index, s.output_token_ids) for s in r.sequences] for r in requests]
    assert found == [[(index, ids) for index, ids, *_ in request] for request in undisturbed()]
    assert_idle(llm)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_every_step_may_fail_once_under_pressure(preemption):
    """Also the steps that swap, and those that preempt."""
    llm = make_llm(num_blocks=15, preemption=preemption)
    requests = [llm.add(prompt, wish) for prompt, wish in zip(PROMPTS, WISHES)]
    num_failures = 0
    while llm.has_unfinished:
        right, llm.executor.attention = llm.executor.attention, raiser(Broken())
        with pytest.raises(Broken):
            finish(llm)  # more than one step only where one made room and computed nothing
        llm.scheduler.check()
        num_failures += 1
        llm.executor.attention = right
        llm.step()
    assert num_failures >= 5
    found = [[(s.index, s.output_token_ids) for s in r.sequences] for r in requests]
    assert found == [[(index, ids) for index, ids, *_ in request] for request in undisturbed()]
    assert_idle(llm)


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("streaming", [False, True])
def test_who_asked_for_results_and_got_an_error_leaves_nothing_behind(error, streaming):
    llm = make_llm(attention=FailingAttention(7, raiser(error)))
    ask = llm.stream if streaming else llm.generate
    with pytest.raises(type(error)):
        list(ask(list(PROMPTS[:3]), WISHES))
    assert_idle(llm)
    assert essence(llm.generate(list(PROMPTS[:3]), WISHES)) == undisturbed()


def test_a_failure_of_one_caller_s_step_does_not_end_others_requests():
    llm = make_llm(attention=FailingAttention(7, raiser(Broken())))
    other = llm.add(PROMPTS[1], GREEDY)
    with pytest.raises(Broken):
        llm.generate(PROMPTS[0], SEEDED)
    llm.scheduler.check()
    finish(llm)
    assert other.sequences[0].output_token_ids == undisturbed()[1][0][1]
    assert_idle(llm)


# --- interrupts -----------------------------------------------------------------------------------


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_takes_effect_after_the_step_and_the_engine_goes_on_serving():
    llm = make_llm(attention=FailingAttention(7, press_ctrl_c))  # in the second step
    with pytest.raises(KeyboardInterrupt):
        llm.generate(list(PROMPTS[:3]), WISHES)
    assert llm.executor.attention.num_calls == 10, "the step, of 5 layers, was not finished"
    assert llm.stats.num_steps == 2
    assert_idle(llm)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert essence(llm.generate(list(PROMPTS[:3]), WISHES)) == undisturbed()


def test_ctrl_c_between_two_steps_loses_nothing_that_was_generated():
    llm = make_llm(attention=FailingAttention(2, press_ctrl_c))
    request = llm.add(PROMPTS[1], GREEDY)
    with pytest.raises(KeyboardInterrupt):
        llm.step()
    assert len(request.sequences[0].output_token_ids) == 1
    finish(llm)
    assert request.sequences[0].output_token_ids == undisturbed()[1][0][1]


def test_a_second_ctrl_c_breaks_through_and_still_loses_no_block():
    def press_twice() -> None:
        press_ctrl_c()
        press_ctrl_c()

    llm = make_llm(attention=FailingAttention(7, press_twice))
    with pytest.raises(KeyboardInterrupt):
        llm.generate(list(PROMPTS[:3]), WISHES)
    assert llm.executor.attention.num_calls == 7
    assert_idle(llm)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert essence(llm.generate(list(PROMPTS[:3]), WISHES)) == undisturbed()


def test_a_handler_of_the_caller_s_own_is_left_in_place():
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        llm = make_llm(attention=FailingAttention(2, press_ctrl_c))
        llm.generate(PROMPTS[1], GREEDY)
        assert pressed == [1]
    finally:
        signal.signal(signal.SIGINT, before)


# --- leaving early --------------------------------------------------------------------------------


def test_leaving_a_stream_early_ends_its_requests():
    llm = make_llm()
    for delta in llm.stream(list(PROMPTS[:3]), WISHES):
        assert isinstance(delta, Delta)
        break
    assert_idle(llm)


def test_leaving_a_stream_early_ends_nobody_else():
    llm = make_llm()
    other = llm.add(PROMPTS[1], GREEDY)
    stream = llm.stream([PROMPTS[0]], SEEDED)
    next(stream)
    stream.close()
    assert llm.scheduler.sequences == other.sequences
    finish(llm)
    assert other.sequences[0].output_token_ids == undisturbed()[1][0][1]
    assert_idle(llm)


def test_two_streams_at_once_get_each_their_own():
    llm = make_llm()
    streams = [llm.stream([prompt], wish) for prompt, wish in zip(PROMPTS, WISHES)]
    told: list[list[Delta]] = [[] for _ in streams]
    going = list(enumerate(streams))
    while going:
        for i, stream in list(going):
            delta = next(stream, None)
            if delta is None:
                going.remove((i, stream))
            else:
                told[i].append(delta)
    for deltas, request in zip(told, undisturbed()):
        for index, ids, text, *_ in request:
            mine = [d for d in deltas if d.index == index]
            assert [t for d in mine for t in d.token_ids] == ids
            assert "".join(d.text for d in mine) == text
    assert_idle(llm)


@pytest.mark.parametrize("num_steps", range(6))
def test_aborting_gives_all_blocks_back_in_whatever_state(num_steps):
    """Waiting, in the middle of a prompt, sampling, forked."""
    llm = make_llm(max_num_batched_tokens=10, prefix_caching=False)
    names = [llm.add(prompt, wish).request_id for prompt, wish in zip(PROMPTS, WISHES)]
    for _ in range(num_steps):
        llm.step()
    for name in names:
        if name in llm._requests:
            output = llm.abort(name)
            assert {c.finish_reason for c in output.outputs} <= {"abort", "length", "stop"}
            llm.scheduler.check()
    assert_idle(llm)
    assert essence(llm.generate(list(PROMPTS[:3]), WISHES)) == undisturbed()


def test_an_aborted_request_has_what_was_generated_by_then():
    llm = make_llm()
    request = llm.add(PROMPTS[1], GREEDY)
    llm.step()
    llm.step()
    (completion,) = llm.abort(request.request_id).outputs
    expected = undisturbed()[1][0]
    assert completion.token_ids == expected[1][:2]
    assert expected[2].startswith(completion.text)
    assert completion.text


# --- logits that are no numbers -------------------------------------------------------------------


def test_nan_ends_only_the_request_it_came_to():
    llm = make_llm()
    poison_attention_of(llm, "1")
    found = llm.generate(list(PROMPTS[:3]), WISHES)
    assert found[1].outputs[0].finish_reason == "error"
    assert "request '1' have no finite maximum" in found[1].error
    assert "attention" in found[1].error
    others = essence([found[0], found[2]])
    assert others == [undisturbed()[0], undisturbed()[2]]
    assert found[0].error is found[2].error is None
    assert_idle(llm)


def test_nan_in_the_middle_keeps_the_tokens_before_it():
    llm = make_llm()
    poison_attention_of(llm, "0", lambda: llm.stats.num_steps >= 3)
    (output,) = llm.generate(PROMPTS[1], GREEDY)
    assert output.outputs[0].token_ids == undisturbed()[1][0][1][:3]
    assert output.outputs[0].finish_reason == "error"
    assert_idle(llm)


@pytest.mark.parametrize("wish", [SEEDED, BEAMS], ids=["samples", "beams"])
def test_every_sequence_is_told_once_that_it_has_failed(wish):
    llm = make_llm()
    poison_attention_of(llm, "0", lambda: llm.stats.num_steps >= 2)
    ends = [d for d in llm.stream([PROMPTS[0]], wish) if d.finish_reason]
    assert [(d.index, d.finish_reason) for d in ends] == [(0, "error"), (1, "error")]
    assert_idle(llm)


def test_what_a_failed_request_computed_is_found_by_nobody():
    """One bad moment, and not one bad prefix for ever."""
    llm = make_llm()
    poison_attention_of(llm, "0")
    assert llm.generate(PROMPTS[0], SEEDED)[0].error
    again = llm.generate(list(PROMPTS[:3]), WISHES)
    assert essence(again) == undisturbed()


# --- the tokenizer, or the sampler, raises --------------------------------------------------------


THREE = SamplingParams(n=3, seed=1, max_tokens=4, ignore_eos=True)


def shadow_deltas(fuse: int | None, wish) -> list[list[Delta]]:
    """What a streaming caller is told, sample by sample, if the tokenizer fails once."""
    llm = ShadowLLM(num_blocks=16, block_size=2)
    request = llm.add([0, 1, 0], wish)
    request.inbox, llm.words.fuse = [], fuse
    num_failures = 0
    while llm.has_unfinished:
        try:
            llm.step()
        except Broken:
            num_failures += 1
        llm.check()
    assert num_failures == (fuse is not None)
    llm.check_idle()
    return [[d for d in request.inbox if d.index == i] for i in range(3)]


@pytest.mark.parametrize("wish", [THREE, BeamSearchParams(beam_width=3, max_tokens=4)])
@pytest.mark.parametrize("fuse", range(9))
def test_a_tokenizer_that_failed_once_costs_no_token_and_repeats_none(wish, fuse):
    found, expected = shadow_deltas(fuse, wish), shadow_deltas(None, wish)
    for mine, theirs in zip(found, expected):
        assert [t for d in mine for t in d.token_ids] == [t for d in theirs for t in d.token_ids]
        assert "".join(d.text for d in mine) == "".join(d.text for d in theirs)
        assert [d.finish_reason for d in mine][-1] == theirs[-1].finish_reason is not None
        assert all(d.finish_reason is None for d in mine[:-1])


def test_the_last_token_is_not_followed_by_another_because_its_text_failed():
    llm = ShadowLLM(num_blocks=16, block_size=2)
    request = llm.add([0, 1, 0], SamplingParams(max_tokens=1, seed=1))
    llm.words.fuse = 0
    with pytest.raises(Broken):
        llm.step()
    finish(llm)
    assert len(request.sequences[0].output_token_ids) == 1


def test_no_tokenizer_keeps_a_request_from_giving_its_blocks_back(monkeypatch):
    llm = ShadowLLM(num_blocks=16, block_size=2)
    monkeypatch.setattr(llm.words, "decode", raiser(Broken()))
    with pytest.raises(Broken):
        llm.generate([[0, 1, 0], [1, 1]], THREE)
    llm.check_idle()


def test_siblings_whose_first_sampling_failed_are_sampled_in_the_next_step():
    llm = ShadowLLM(num_blocks=16, block_size=2)
    request = llm.add([0, 1, 0], THREE)
    llm.shadow.logits_fail = True
    with pytest.raises(Broken):
        llm.step()
    llm.step()
    assert [len(s.output_token_ids) for s in request.sequences] == [1, 1, 1]
    finish(llm)
    llm.check_idle()


def test_a_model_is_computed_where_it_is():
    model = LLM("bundled", num_blocks=8).model
    assert LLM(model, num_blocks=8).device == model.decoder.device
    elsewhere = dataclasses.replace(model, decoder=SimpleNamespace(device=torch.device("cuda")))
    with pytest.raises(InvalidRequest, match=r"device='cpu': the model given is on cuda already"):
        LLM(elsewhere, num_blocks=8, device="cpu")


@pytest.mark.parametrize(
    ("capability", "dtype"), [((7, 5), torch.float16), ((8, 0), torch.bfloat16)]
)
def test_a_gpu_computes_in_16_bits_that_it_has(monkeypatch, capability, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_dtype(None, torch.device("cuda")) == dtype
