"""What callers get back is true: lengths, reasons, texts, and the figures of what it cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from minipaged.engine.llm import LLM
from minipaged.engine.outputs import RequestOutput
from minipaged.engine.params import BeamSearchParams, SamplingParams
from support.engine_models import PROMPTS, bundled, make_llm, tokens
from support.engine_shadow import EOS, MAX_MODEL_LEN, ShadowLLM

torch.set_num_threads(1)

FREE = {"ignore_eos": True, "seed": 1}
AT_ONCE = {0: 100.0}  # of the bundled model, token 0 is the end


@pytest.fixture(scope="module")
def llm() -> LLM:
    return make_llm(sanitize=False)


def one(llm: LLM, prompt, **wishes) -> RequestOutput:
    return llm.generate(prompt, SamplingParams(**wishes))[0]


# --- how it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_never_more_than_max_tokens(llm, max_tokens):
    (completion,) = one(llm, PROMPTS[0], max_tokens=max_tokens, **FREE).outputs
    assert (len(completion.token_ids), completion.finish_reason) == (max_tokens, "length")


def test_an_end_of_sequence_id_of_zero_ends_it(llm):
    output = one(llm, PROMPTS[0], logit_bias=AT_ONCE, temperature=0)
    (completion,) = output.outputs
    assert (completion.token_ids, completion.text, completion.finish_reason) == ([0], "", "stop")
    assert completion.stop_reason is None
    assert output.finished
    assert output.text == ""


def test_the_end_is_like_any_other_token_where_eos_is_ignored(llm):
    wish = {"logit_bias": AT_ONCE, "temperature": 0, "ignore_eos": True, "max_tokens": 4}
    (completion,) = one(llm, PROMPTS[0], **wish).outputs
    assert (completion.token_ids, completion.finish_reason) == ([0] * 4, "length")
    shown = one(llm, PROMPTS[0], skip_special_tokens=False, **wish).text
    assert shown == llm.tokenizer.decode([0] * 4, skip_special_tokens=False) != ""


def test_a_stop_id_ends_it_and_is_named_even_where_eos_is_ignored(llm):
    wish = {"logit_bias": AT_ONCE, "temperature": 0, "ignore_eos": True, "stop_token_ids": [0]}
    (completion,) = one(llm, PROMPTS[0], **wish).outputs
    assert (completion.token_ids, completion.stop_reason) == ([0], 0)


def test_one_of_several_stop_ids_is_enough(llm):
    free = one(llm, PROMPTS[0], temperature=0, max_tokens=6).outputs[0].token_ids
    wish = {"temperature": 0, "max_tokens": 6, "stop_token_ids": [7, free[2], 9]}
    (completion,) = one(llm, PROMPTS[0], **wish).outputs
    assert completion.token_ids == free[:3]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", free[2])


@pytest.mark.parametrize("min_tokens", [0, 1, 3])
def test_nothing_ends_it_within_min_tokens(llm, min_tokens):
    wish = {"logit_bias": AT_ONCE, "temperature": 0, "min_tokens": min_tokens}
    (completion,) = one(llm, PROMPTS[0], **wish).outputs
    assert len(completion.token_ids) == min_tokens + 1
    assert 0 not in completion.token_ids[:min_tokens]
    assert (completion.token_ids[-1], completion.finish_reason) == (0, "stop")


def test_as_long_as_the_model_allows_where_max_tokens_is_none():
    llm = ShadowLLM(num_blocks=30, block_size=2)
    (completion,) = one(llm, [0] * 7, max_tokens=None, **FREE).outputs
    assert len(completion.token_ids) == MAX_MODEL_LEN - 7
    assert completion.finish_reason == "length"


@pytest.mark.invariant(10)
def test_as_long_as_the_pool_allows_where_it_is_smaller():
    """4 blocks of 2 hold 8 tokens; the last token takes no slot, so 9 in all."""
    llm = ShadowLLM(num_blocks=4, block_size=2)
    (completion,) = one(llm, [0] * 7, max_tokens=None, **FREE).outputs
    assert (len(completion.token_ids), completion.finish_reason) == (2, "length")
    llm.check_idle()


@pytest.mark.parametrize(("num_prompt", "num_output"), [(35, 5), (38, 2), (39, 1)])
def test_prompt_and_output_never_exceed_the_model_s_length(num_prompt, num_output):
    llm = ShadowLLM(num_blocks=30, block_size=2)
    (completion,) = one(llm, [0] * num_prompt, max_tokens=9, **FREE).outputs
    assert (len(completion.token_ids), completion.finish_reason) == (num_output, "length")


def test_samples_end_each_at_its_own_time_and_all_are_delivered():
    llm = ShadowLLM(num_blocks=40, block_size=2)
    wish = SamplingParams(n=6, seed=4, max_tokens=6)
    request = llm.add([0, 1, 1], wish)
    request.inbox = []
    while llm.has_unfinished:
        llm.step()
    output = RequestOutput.of(request)
    assert [c.index for c in output.outputs] == list(range(6))
    assert len({len(c.token_ids) for c in output.outputs}) > 2
    for completion in output.outputs:
        assert (completion.token_ids[-1] == EOS) == (completion.finish_reason == "stop")
        news = [d for d in request.inbox if d.index == completion.index]
        assert [t for d in news for t in d.token_ids] == completion.token_ids
    llm.check_idle()


# --- text -----------------------------------------------------------------------------------------


def test_a_stop_string_is_cut_off_and_never_streamed(llm):
    free = one(llm, PROMPTS[0], temperature=0, max_tokens=12).text
    stop = free[9:13]  # across tokens, somewhere
    wish = {"temperature": 0, "max_tokens": 12, "stop": [stop, "zzz"]}
    (completion,) = one(llm, PROMPTS[0], **wish).outputs
    assert completion.text == free[: free.index(stop)]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    told = ""
    for delta in llm.stream(PROMPTS[0], SamplingParams(**wish)):
        told += delta.text
        assert completion.text.startswith(told), "more was told than stays"
    assert told == completion.text


def test_a_stop_string_stays_where_that_is_asked_for(llm):
    free = one(llm, PROMPTS[0], temperature=0, max_tokens=12).text
    wish = {"temperature": 0, "max_tokens": 12, "stop": free[9:13]}
    text = one(llm, PROMPTS[0], include_stop_str_in_output=True, **wish).text
    assert text == free[: free.index(free[9:13]) + 4]


def test_what_was_held_back_comes_out_at_the_end(llm):
    free = one(llm, PROMPTS[0], temperature=0, max_tokens=5).text
    wish = {"temperature": 0, "max_tokens": 5, "stop": free[-1] + "never"}
    assert one(llm, PROMPTS[0], **wish).text == free


class Script:
    """Logits that say what they are told to say."""

    def __init__(self, token_ids: list[int], vocab_size: int):
        self.token_ids, self.vocab_size = iter(token_ids), vocab_size

    def logits(self, hidden: torch.Tensor, rows: list[int]) -> torch.Tensor:
        row = torch.zeros(len(rows), self.vocab_size)
        row[:, next(self.token_ids)] = 1
        return row


def test_characters_of_several_tokens_are_told_whole(llm, monkeypatch):
    """The bundled tokenizer spells in bytes what it does not know."""
    ids = llm.tokenizer.encode("ø☃😀")
    assert len(ids) == 9
    monkeypatch.setattr(llm.executor, "logits", Script(ids, 2048).logits)
    wish = SamplingParams(temperature=0, max_tokens=9)
    pieces = [delta.text for delta in llm.stream(PROMPTS[2], wish)]
    assert [piece for piece in pieces if piece] == ["ø", "☃", "😀"]


# --- outputs are complete in themselves -----------------------------------------------------------


def test_an_output_says_what_was_asked(llm):
    output = one(llm, PROMPTS[2], max_tokens=2, **FREE)
    assert output.prompt == PROMPTS[2]
    assert output.prompt_token_ids == llm.tokenizer.encode(PROMPTS[2])
    assert (output.error, output.num_preemptions, output.prompt_logprobs) == (None, 0, None)
    assert output.outputs[0].logprobs is None
    assert one(llm, output.prompt_token_ids, max_tokens=1, **FREE).prompt is None


def test_results_come_in_the_order_of_the_prompts(llm):
    wishes = [SamplingParams(max_tokens=n, **FREE) for n in (5, 1, 3)]
    outputs = llm.generate([PROMPTS[0], PROMPTS[1], PROMPTS[0]], wishes)
    assert [o.prompt for o in outputs] == [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    assert [len(o.outputs[0].token_ids) for o in outputs] == [5, 1, 3]


def test_a_single_prompt_is_text_or_ids(llm):
    ids = llm.tokenizer.encode(PROMPTS[2])
    a, b, c = (one(llm, prompt, max_tokens=3, **FREE) for prompt in (PROMPTS[2], ids, [ids]))
    assert a.outputs == b.outputs == c.outputs


def test_generating_twice_gives_new_names(llm):
    names = [one(llm, PROMPTS[2], max_tokens=1).request_id for _ in range(3)]
    assert len(set(names)) == 3


def test_log_probabilities_are_those_of_the_tokens(llm):
    output = one(llm, PROMPTS[0], temperature=0, max_tokens=4, logprobs=2)
    (completion,) = output.outputs
    assert completion.logprobs is not None
    for token_id, found in zip(completion.token_ids, completion.logprobs, strict=True):
        assert found[token_id].rank == 1
        assert len(found) == 2
    total = sum(f[t].logprob for t, f in zip(completion.token_ids, completion.logprobs))
    assert completion.cumulative_logprob == pytest.approx(total)
    assert total < 0


def test_prompt_log_probabilities_are_those_of_generating_the_prompt(llm):
    """A generated text, given as a prompt, gets the log-probabilities it was generated with."""
    ids = llm.tokenizer.encode(PROMPTS[0])
    made = one(llm, ids, max_tokens=6, logprobs=1, **FREE).outputs[0]
    for knobs in ({}, {"max_num_batched_tokens": 4}):
        asked = make_llm(**knobs)
        whole = one(asked, ids + made.token_ids, max_tokens=1, prompt_logprobs=1)
        assert whole.prompt_logprobs is not None
        assert len(whole.prompt_logprobs) == len(ids) + 6
        assert whole.prompt_logprobs[0] is None
        for token_id, mine, theirs in zip(
            made.token_ids, whole.prompt_logprobs[-6:], made.logprobs or [], strict=True
        ):
            assert mine[token_id].rank == theirs[token_id].rank
            assert mine[token_id].logprob == pytest.approx(theirs[token_id].logprob, abs=1e-9)


def test_who_wants_prompt_log_probabilities_reads_no_cache_but_fills_it(llm):
    for k in (0, 2):
        llm.pool.forget_prefixes()
        for _ in range(2):
            output = one(llm, PROMPTS[1], max_tokens=1, prompt_logprobs=k)
            assert output.num_cached_tokens == 0
            assert len(output.prompt_logprobs or ()) == len(output.prompt_token_ids)
        assert one(llm, PROMPTS[1], max_tokens=1).num_cached_tokens == 24


def test_beams_come_best_first_and_only_as_many_as_were_asked_for(llm):
    wish = BeamSearchParams(beam_width=4, max_tokens=5, length_penalty=0.0)
    every = llm.generate(PROMPTS[0], wish)
    scores = [c.cumulative_logprob for c in every[0].outputs]
    assert scores == sorted(scores, reverse=True)
    wish = BeamSearchParams(beam_width=4, max_tokens=5, length_penalty=0.0, n=2)
    assert tokens(llm.generate(PROMPTS[0], wish))[0] == tokens(every)[0][:2]


def test_a_beam_is_told_once_it_is_final():
    llm = make_llm()
    deltas = list(llm.stream(PROMPTS[0], BeamSearchParams(beam_width=2, max_tokens=4)))
    assert [d.index for d in deltas] == [0, 1]
    assert all(d.finish_reason and len(d.token_ids) <= 4 for d in deltas)
    assert [d.text for d in deltas] == [llm.tokenizer.decode(d.token_ids) for d in deltas]


# --- what it cost ---------------------------------------------------------------------------------


def test_found_and_computed_prompt_tokens_are_all_prompt_tokens():
    llm = ShadowLLM(num_blocks=40, block_size=2)
    prompts = [[0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 1], [0, 1, 1, 0, 1, 1, 1], [1]]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=2, **FREE))
    assert [o.num_cached_tokens for o in outputs] == [0, 4, 4, 0]
    assert llm.stats.prompt_tokens_cached == 8
    assert llm.stats.prompt_tokens_computed == sum(map(len, prompts)) - 8
    assert (llm.stats.tokens_recomputed, llm.stats.num_preemptions) == (0, 0)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("budget", [3, 16])
def test_so_they_are_after_preemptions(preemption, caching, budget):
    llm = ShadowLLM(
        num_blocks=9,
        block_size=2,
        preemption=preemption,
        prefix_caching=caching,
        max_num_batched_tokens=budget,
    )
    prompts = [[0, 1, 1, 0, 1, 0, 0, 1][:n] for n in (3, 8, 7, 5, 8)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=8, **FREE))
    stats = llm.stats
    assert stats.prompt_tokens_computed + stats.prompt_tokens_cached == sum(map(len, prompts))
    assert sum(o.num_preemptions for o in outputs) == stats.num_preemptions > 0
    assert (stats.blocks_swapped > 0) == (preemption == "swap")
    assert stats.tokens_recomputed > 0 or preemption == "swap" or caching
    assert stats.tokens_generated == 5 * 8


def test_tokens_computed_again_are_counted_apart():
    """The second is preempted with 4 tokens computed, and nothing of it is found again."""
    llm = ShadowLLM(num_blocks=5, block_size=2, prefix_caching=False)
    llm.generate([[0, 1, 1], [1, 0, 0]], SamplingParams(max_tokens=5, **FREE))
    stats = llm.stats
    assert (stats.num_preemptions, stats.tokens_recomputed) == (1, 4)
    assert stats.prompt_tokens_computed == 6
    assert stats.tokens_generated == 10


def test_beams_that_leave_together_are_one_preemption():
    llm = ShadowLLM(num_blocks=12, block_size=1, prefix_caching=False)
    search = BeamSearchParams(beam_width=2, max_tokens=4, ignore_eos=True)
    older, beams = llm.generate([[0], [0, 1, 0]], [SamplingParams(max_tokens=6, **FREE), search])
    assert (older.num_preemptions, beams.num_preemptions, llm.stats.num_preemptions) == (0, 1, 1)


def test_decodes_are_counted_in_the_steps_that_only_decode():
    llm = ShadowLLM(num_blocks=40, block_size=2)
    llm.add([0, 1], SamplingParams(max_tokens=5, **FREE))
    for _ in range(3):
        llm.step()  # a prompt, and two decodes
    llm.add([1], SamplingParams(max_tokens=2, **FREE))
    while llm.has_unfinished:
        llm.step()  # a prompt of one token beside a decode, and two decodes
    stats = llm.stats
    assert (stats.num_steps, stats.tokens_generated, stats.decode_tokens) == (5, 7, 4)
    assert stats.prefill_seconds > 0 < stats.decode_seconds


def test_blocks_in_use_peak_and_are_copied_as_counted():
    """6 tokens in 3 blocks of 2; samples 1 and 2 copy none, for the prompt ends with a block."""
    llm = ShadowLLM(num_blocks=40, block_size=2)
    llm.generate([0, 1, 0, 1, 0, 1], SamplingParams(n=3, max_tokens=2, **FREE))
    assert (llm.stats.peak_blocks, llm.stats.blocks_copied) == (6, 0)
    llm.generate([0, 1, 0, 1, 0], SamplingParams(n=3, max_tokens=2, **FREE))
    assert llm.stats.blocks_copied == 2


def test_a_difference_of_figures_is_what_happened_between():
    llm = ShadowLLM(num_blocks=40, block_size=2)
    llm.generate([0, 1, 1], SamplingParams(max_tokens=3, **FREE))
    before = replace(llm.stats)
    llm.generate([1, 1, 1, 0], SamplingParams(max_tokens=2, **FREE))
    since = llm.stats.since(before)
    assert (since.num_steps, since.prompt_tokens_computed, since.tokens_generated) == (2, 4, 2)
    assert since.peak_blocks == llm.stats.peak_blocks
    assert since.load_seconds == llm.stats.load_seconds


def test_a_given_model_costs_no_time_to_load():
    given, read = make_llm(bundled()), LLM("bundled", len)
    assert given.stats.load_seconds < read.stats.load_seconds


# --- looking inside -------------------------------------------------------------------------------


def test_pictures_name_requests_and_samples():
    llm = ShadowLLM(num_blocks=20, block_size=2)
    llm.add([0, 1, 1], SamplingParams(n=2, max_tokens=3, **FREE), request_id="x")
    llm.add([1, 1], SamplingParams(max_tokens=3, **FREE), request_id="y")
    assert [view.name for view in llm.snapshot().tables] == ["x", "y"]
    llm.step()
    assert [view.name for view in llm.snapshot().tables] == ["x.0", "x.1", "y"]
    ledger = llm.ledger()
    assert (ledger.num_slots, ledger.live + ledger.shared) == (40, 5)


def test_a_swapped_sequence_is_in_no_picture_of_the_pool():
    llm = ShadowLLM(num_blocks=5, block_size=2, prefix_caching=False, preemption="swap")
    for prompt in ([0, 1, 1], [1, 0, 0]):
        llm.add(prompt, SamplingParams(max_tokens=5, **FREE))
    while not llm.stats.num_preemptions:
        llm.step()
    assert [view.name for view in llm.snapshot().tables] == ["0"]
    while llm.has_unfinished:
        llm.step()
    llm.check_idle()
