"""One step of sampling, case by case: the generator, the stages, bad rows and log-probabilities."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

import minipaged.engine.rng as rng
import minipaged.engine.sampling as sampling
from minipaged.core.errors import InvalidBatch
from minipaged.engine.params import SamplingParams

torch.set_num_threads(1)

GREEDY = SamplingParams(temperature=0)


def row(params=None, seed=0, sample_index=0, prompt=(), output=(), eos=(), **wishes):
    params = params or SamplingParams(**wishes)
    return sampling.Row(params, seed, sample_index, [*prompt, *output], len(prompt), eos)


def greedy(logits, **kw):
    """The likeliest token once the stages before the temperature have done their work."""
    keys = ("prompt", "output", "eos")
    context = {key: kw.pop(key) for key in keys if key in kw}
    rows = [row(temperature=0, **context, **kw)]
    return sampling.sample(torch.tensor([logits], dtype=torch.float64), rows).token_ids[0]


def on_grid(logits, num_points, monkeypatch, **wishes):
    """The tokens drawn at u = 0/num_points, 1/num_points, …, all in one batch."""
    monkeypatch.setattr(
        sampling, "uniform", lambda draws: np.array([seed / num_points for seed, _, _ in draws])
    )
    rows = [row(seed=i, **wishes) for i in range(num_points)]
    batch = torch.as_tensor(logits, dtype=torch.float64).repeat(num_points, 1)
    return sampling.sample(batch, rows).token_ids


# --- the generator -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the published answers of Random123 for philox4x32-10
        ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers(counter, key, words):
    def parse(text):
        return np.array([[int(word, 16)] for word in text.split()], np.uint64)

    assert rng.philox4x32(parse(counter), parse(key)).tolist() == parse(words).tolist()


def test_a_draw_is_made_of_the_first_two_words():
    # Counter (output index, sample index, stream, 0), key (seed low, seed high): all zero here.
    expected = ((0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)) / 2**53
    assert rng.uniform([(0, 0, 0)]).tolist() == [expected]


def test_the_largest_draw_is_below_one_and_the_smallest_is_zero(monkeypatch):
    for word, u in ((0xFFFFFFFF, 1 - 2.0**-53), (0, 0.0)):
        words = np.full((4, 1), word, np.uint64)
        monkeypatch.setattr(rng, "philox4x32", lambda counter, key, words=words: words)
        assert rng.uniform([(0, 0, 0)]).tolist() == [u]


def test_every_draw_is_its_own():
    seeds = [0, 1, -1, 2**32, 2**63 - 1, -(2**63)]
    draws = list(itertools.product(seeds, range(8), [0, 1, 2, 1000, 2**32 - 1]))
    numbers = [*rng.uniform(draws), *rng.uniform(draws, stream=1)]
    assert len(set(numbers)) == 2 * len(draws)
    assert rng.uniform(draws[::-1]).tolist() == rng.uniform(draws)[::-1].tolist()
    assert [rng.uniform([draw])[0] for draw in draws] == rng.uniform(draws).tolist()
    assert rng.uniform([]).tolist() == []


def test_draws_are_even_over_seeds_samples_and_outputs():
    for axis in range(3):
        draws = np.zeros((4000, 3), int)
        draws[:, axis] = np.arange(4000)
        tenths = Counter((rng.uniform(draws.tolist()) * 10).astype(int).tolist())
        # 400 each; the sum of squared deviations is chi-square with 9 degrees of freedom.
        assert sum((tenths[i] - 400) ** 2 for i in range(10)) / 400 < 30


# --- the draw ----------------------------------------------------------------------------------


def test_frequencies_are_the_probabilities_exactly(monkeypatch):
    weights = [4, 1, 0, 8, 2, 0, 1]  # powers of two, so that no weight is rounded
    logits = [math.log(w) if w else -math.inf for w in weights]
    assert Counter(on_grid(logits, 1600, monkeypatch)) == {
        t: 100 * w for t, w in enumerate(weights) if w
    }


def test_tokens_come_in_order_of_their_ids(monkeypatch):
    tokens = on_grid(torch.randn(9), 64, monkeypatch)
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("temperature", [5e-324, 1e-6, 0.5, 2.0, 1e6, 1e308])
def test_any_temperature_is_computed(temperature, monkeypatch):
    logits = torch.tensor([1.0, -2.0, 3.0, 4.0])
    tokens = Counter(on_grid(logits, 1000, monkeypatch, temperature=temperature))
    expected = ((logits.double() - 4) / temperature).softmax(-1)
    for token, probability in enumerate(expected.tolist()):
        assert tokens[token] == pytest.approx(1000 * probability, abs=1.001)


@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_has_no_probability_is_never_drawn(u, dtype, monkeypatch):
    monkeypatch.setattr(sampling, "uniform", lambda draws: np.full(len(draws), u))
    inf = math.inf
    for logits, possible in [
        ([-inf, -inf, 0.0, -inf, 0.0, -inf], {2, 4}),
        ([-1e30, 0.0, -1e30], {1}),
        ([0.0, -inf, 0.0], {0, 2}),
        ([-800.0, 0.0, 5.0, -800.0], {1, 2}),
        ([1e30, -1e30], {0}),
    ]:
        [token] = sampling.sample(torch.tensor([logits], dtype=dtype), [row()]).token_ids
        assert token in possible


def test_a_draw_of_a_large_vocabulary_ends_inside(monkeypatch):
    monkeypatch.setattr(sampling, "uniform", lambda draws: np.full(len(draws), 1 - 2.0**-53))
    assert sampling.sample(torch.zeros(1, 300_001), [row()]).token_ids == [300_000]


def test_the_same_who_draws_the_same_and_others_do_not():
    logits = torch.zeros(1, 50_000)

    def draw(**who):
        return sampling.sample(logits, [row(**who)]).token_ids[0]

    base = {"seed": 7, "sample_index": 1, "prompt": [1, 2], "output": [3]}
    assert draw(**base) == draw(**base)
    others = [{"seed": 8}, {"sample_index": 0}, {"output": [3, 4]}, {"seed": -7}]
    assert len({draw(**base), *(draw(**base | other) for other in others)}) == 5
    # Only how many tokens came, not which, and not how long the prompt is.
    assert draw(**base) == draw(**base | {"prompt": [9], "output": [5]})


# --- the stages --------------------------------------------------------------------------------


def test_greedy_takes_the_lowest_of_equals_and_ignores_what_only_concerns_draws():
    assert greedy([1.0, 3.0, 3.0, -math.inf]) == 1
    assert greedy([1.0, 3.0, 2.0], top_k=1, top_p=0.1, min_p=1.0, seed=5) == 1
    logits = torch.zeros(3, 1000)
    logits[1, 900] = logits[1, 901] = 1
    assert sampling.sample(logits, [row(GREEDY)] * 3).token_ids == [0, 900, 0]


def test_bias_is_added_to_the_ids_it_names():
    assert greedy([1.0, 3.0, 2.0], logit_bias={0: 2.5}) == 0
    assert greedy([1.0, 3.0, 2.0], logit_bias={2: 1.5, 0: 0.25}) == 2
    assert greedy([1.0, -math.inf], logit_bias={1: 100}) == 0


def test_nothing_stops_before_min_tokens():
    wishes = {"logits": [1.0, 9.0, 8.0, 7.0], "eos": (1,), "stop_token_ids": [2]}
    assert greedy(**wishes) == 1
    assert greedy(**wishes, min_tokens=2) == 3
    assert greedy(**wishes, min_tokens=2, output=[0]) == 3
    assert greedy(**wishes, min_tokens=2, output=[0, 0]) == 1
    assert greedy(**wishes, min_tokens=2, prompt=[0, 0]) == 3  # the prompt does not count
    assert greedy(**wishes, min_tokens=2, ignore_eos=True) == 1  # it would not stop
    assert greedy([9.0, 1.0], eos=(0,), min_tokens=1) == 1  # an id of 0 is an id
    assert greedy([9.0, 8.0, 1.0], eos=(0, 1), min_tokens=1) == 2


def test_repetition_divides_positive_and_multiplies_negative_logits():
    assert greedy([4.0, 3.0], prompt=[0], repetition_penalty=2.0) == 1
    assert greedy([4.0, 3.0], output=[0], repetition_penalty=2.0) == 1
    assert greedy([4.0, 3.0], output=[0, 0, 0], repetition_penalty=1.25) == 0  # once, not thrice
    assert greedy([-1.0, -1.5], prompt=[0], repetition_penalty=2.0) == 1
    assert greedy([-1.0, -1.5], prompt=[1], repetition_penalty=0.5) == 1
    assert greedy([-math.inf, -9.0], prompt=[0, 1], repetition_penalty=3.0) == 1


def test_presence_and_frequency_concern_the_output_only():
    assert greedy([3.0, 2.5], prompt=[0, 0], presence_penalty=2.0, frequency_penalty=2.0) == 0
    assert greedy([3.0, 2.5], output=[0], presence_penalty=0.4) == 0
    assert greedy([3.0, 2.5], output=[0], presence_penalty=0.6) == 1
    assert greedy([3.0, 2.5], output=[0, 0], presence_penalty=0.4) == 0  # once
    assert greedy([3.0, 2.5], output=[0], frequency_penalty=0.4) == 0
    assert greedy([3.0, 2.5], output=[0, 0], frequency_penalty=0.4) == 1  # per occurrence
    assert greedy([3.0, 2.5], output=[1], frequency_penalty=-1.0) == 1


def test_stages_before_the_temperature_come_in_order():
    # Bias before repetition: (2 + 2) / 4 = 1 < 1.5; the other order gives 2 / 4 + 2 = 2.5.
    assert greedy([2.0, 1.5], prompt=[0], logit_bias={0: 2.0}, repetition_penalty=4.0) == 1
    # Repetition before presence: 2 / 2 - 0.4 = 0.6 < 0.7; the other order gives (2 - .4) / 2 = 0.8.
    wishes = {"repetition_penalty": 2.0, "presence_penalty": 0.4}
    assert greedy([2.0, 0.7], output=[0], **wishes) == 1
    # The mask comes after the bias, whatever the bias.
    assert greedy([0.0, 1.0], eos=(0,), logit_bias={0: 100}, min_tokens=1) == 1


def test_the_temperature_comes_before_the_cuts(monkeypatch):
    logits = [math.log(8), math.log(4), math.log(2), math.log(1)]
    kept = {
        (1.0, 0.2): {0, 1, 2},  # shares of the best: 1, 1/2, 1/4, 1/8
        (3.0, 0.2): {0, 1, 2, 3},  # 1, 0.79, 0.63, 0.5
        (0.5, 0.2): {0, 1},  # 1, 1/4, 1/16, 1/64
    }
    for (temperature, min_p), tokens in kept.items():
        wishes = {"temperature": temperature, "min_p": min_p}
        assert set(on_grid(logits, 256, monkeypatch, **wishes)) == tokens


def test_ties_at_a_cut_stay(monkeypatch):
    logits = [2.0, 1.0, 1.0, 1.0, 0.0]
    assert set(on_grid(logits, 500, monkeypatch, top_k=2)) == {0, 1, 2, 3}
    assert set(on_grid(logits, 500, monkeypatch, top_k=1)) == {0}
    assert set(on_grid(logits, 500, monkeypatch, top_p=0.5)) == {0, 1, 2, 3}
    assert set(on_grid(logits, 500, monkeypatch, top_p=0.4)) == {0}


def test_top_p_counts_only_what_top_k_and_min_p_left(monkeypatch):
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    # Alone, 0.6 needs the first two; of the first two, the first has 4/7 < 0.6: both; of 0.5 one.
    assert set(on_grid(logits, 100, monkeypatch, top_p=0.6)) == {0, 1}
    assert set(on_grid(logits, 100, monkeypatch, top_p=0.5, top_k=2)) == {0}
    assert set(on_grid(logits, 100, monkeypatch, top_p=0.5)) == {0, 1}
    assert set(on_grid(logits, 100, monkeypatch, top_p=0.5, min_p=0.7)) == {0}
    assert set(on_grid(logits, 100, monkeypatch, top_p=0.9, top_k=3)) == {0, 1, 2}
    assert set(on_grid(logits, 100, monkeypatch, top_p=0.75, top_k=3)) == {0, 1}


def test_a_mass_that_reaches_top_p_exactly_is_enough(monkeypatch):
    logits = [math.log(p) for p in (8, 4, 2, 2)]  # sixteenths, so that nothing is rounded
    assert set(on_grid(logits, 64, monkeypatch, top_p=0.5)) == {0}
    assert set(on_grid(logits, 64, monkeypatch, top_p=0.75)) == {0, 1}
    assert set(on_grid(logits, 64, monkeypatch, min_p=0.5)) == {0, 1}
    assert set(on_grid(logits, 64, monkeypatch, min_p=0.25)) == {0, 1, 2, 3}


@pytest.mark.parametrize("wishes", [{"top_k": 0}, {"top_k": -1}, {"top_k": 99}, {"min_p": 0.0}])
def test_idle_cuts_keep_everything(wishes, monkeypatch):
    assert set(on_grid([0.0] * 5, 50, monkeypatch, **wishes)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("wishes", [{"top_p": 5e-324}, {"min_p": 1.0}, {"top_k": 1}])
def test_the_strictest_cuts_keep_the_likeliest(wishes, monkeypatch):
    assert set(on_grid([0.0, 1.0, 0.5], 50, monkeypatch, **wishes)) == {1}


# --- rows --------------------------------------------------------------------------------------


def test_bad_rows_are_reported_and_harm_nobody():
    torch.manual_seed(0)
    logits = torch.randn(7, 11)
    kinds = [GREEDY, SamplingParams(top_p=0.9, logprobs=1), SamplingParams(top_k=3)]
    rows = [row(kinds[i % 3], seed=i) for i in range(7)]
    healthy = sampling.sample(logits, rows)
    assert healthy.bad_rows == []
    for sickness in (math.nan, -math.inf, math.inf):
        for i in range(7):
            sick = logits.clone()
            sick[i] = sickness
            if not sickness < 0:
                sick[i, :5] = 1.0  # one such entry is enough
            found = sampling.sample(sick, rows)
            assert found.bad_rows == [i]
            assert found.token_ids[i] == -1
            assert found.logprobs[i] is None
            for j in set(range(7)) - {i}:
                assert found.token_ids[j] == healthy.token_ids[j]
                assert found.logprobs[j] == healthy.logprobs[j]


def test_a_row_whose_every_token_is_masked_is_bad():
    stuck = row(min_tokens=1, eos=(0, 1))
    assert sampling.sample(torch.zeros(2, 2), [stuck, row()]).bad_rows == [0]


def test_logits_stay_as_they_were():
    logits = torch.randn(6, 30, dtype=torch.float64)
    before = logits.clone()
    wishes = [{}, {"logit_bias": {3: 1.0}}, {"repetition_penalty": 2.0}, {"frequency_penalty": 1.0}]
    wishes += [{"min_tokens": 1, "top_k": 3}, {"top_p": 0.5, "temperature": 0.3, "logprobs": 2}]
    sampling.sample(logits, [row(output=[1, 2], eos=(5,), **w) for w in wishes])
    sampling.sample(logits, [row(GREEDY)] * 6)
    assert torch.equal(logits, before)


def test_nothing_to_do():
    assert sampling.sample(torch.zeros(0, 5), []) == sampling.SampleResult([], [], [])


def test_one_row_of_logits_per_row():
    with pytest.raises(InvalidBatch, match=r"logits \[2, 5\] for 1 rows: must be \[num_rows"):
        sampling.sample(torch.zeros(2, 5), [row()])
    with pytest.raises(InvalidBatch):
        sampling.sample(torch.zeros(5), [row()] * 5)


def test_a_row_depends_on_itself_only_bit_by_bit():
    """Large enough that the work is cut into parts, and of an odd size, so no row is aligned."""
    torch.manual_seed(1)
    num_rows, vocab_size = 37, 1013
    logits = torch.randn(num_rows, vocab_size) * 3
    kinds = [
        {},
        {"temperature": 0},
        {"temperature": 0.7, "top_p": 0.9, "logprobs": 3},
        {"top_k": 40},
        {"min_p": 0.05, "repetition_penalty": 1.3},
        {"top_k": 700, "top_p": 0.99, "frequency_penalty": 0.3, "logprobs": 0},
        {"temperature": 0, "presence_penalty": 1.0, "logit_bias": {5: 3.0}},
    ]
    rows = [
        row(seed=i, prompt=[i, 2 * i], output=list(range(i)), **kinds[i % len(kinds)])
        for i in range(num_rows)
    ]
    together = sampling.sample(logits, rows)
    order = torch.randperm(num_rows).tolist()
    shuffled = sampling.sample(logits[order], [rows[i] for i in order])
    for place, i in enumerate(order):
        alone = sampling.sample(logits[i : i + 1], [rows[i]])
        assert alone.token_ids[0] == together.token_ids[i] == shuffled.token_ids[place]
        assert alone.logprobs[0] == together.logprobs[i] == shuffled.logprobs[place]


# --- log-probabilities -------------------------------------------------------------------------


def test_logprobs_are_those_of_the_raw_distribution():
    logits = torch.tensor([[0.0, 2.0, 1.0, 3.0]])
    expected = logits.double().log_softmax(-1)[0].tolist()
    wishes = {"logit_bias": {0: 100.0}, "temperature": 0.2, "output": [3], "frequency_penalty": 2.0}
    [found] = sampling.sample(logits, [row(logprobs=2, **wishes)]).logprobs
    assert list(found) == [3, 1, 0]  # the best by rank, then the one that was chosen
    assert {t: entry.rank for t, entry in found.items()} == {3: 1, 1: 2, 0: 4}
    for token, entry in found.items():
        assert entry.logprob == pytest.approx(expected[token], abs=1e-14)


@pytest.mark.parametrize("k", [0, 1, 3, 4, 9])
def test_the_chosen_token_is_always_among_them(k):
    logits = torch.tensor([[1.0, 5.0, 4.0, 1.0]])
    result = sampling.sample(logits, [row(temperature=0, logprobs=k)])
    [found] = result.logprobs
    assert result.token_ids == [1]
    assert list(found) == [1, 2, 0, 3][: max(1, min(k, 4))]
    assert sampling.sample(logits, [row(temperature=0)]).logprobs == [None]


def test_equal_logprobs_rank_by_id():
    logits = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0]])
    [found] = sampling.sample(logits, [row(logprobs=2, logit_bias={3: 50.0})]).logprobs
    assert {t: entry.rank for t, entry in found.items()} == {1: 1, 2: 2, 3: 5}


def test_prompt_logprobs_cover_every_position():
    torch.manual_seed(0)
    logits = torch.randn(5, 12)
    tokens = [3, 11, 0, 0, 7]
    found = sampling.prompt_logprobs(logits, tokens, 2)
    expected = logits.double().log_softmax(-1)
    assert len(found) == 5
    for i, (entry, token) in enumerate(zip(found, tokens)):
        assert len(entry) in (2, 3)
        assert entry[token].logprob == pytest.approx(float(expected[i, token]), abs=1e-14)
        assert entry[token].rank == 1 + int((expected[i] > expected[i, token]).sum())
        assert list(entry)[:2] == expected[i].topk(2).indices.tolist()
    with pytest.raises(ValueError, match="zip"):
        sampling.prompt_logprobs(logits, [1], 2)
