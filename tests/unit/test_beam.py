"""Beam search decides as transformers does; the rules one by one on hand-made log-probabilities."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections import Counter

import pytest
import torch

from minipaged.engine.beam import Beam, BeamSearch, Hypothesis
from minipaged.engine.params import BeamSearchParams

torch.set_num_threads(1)

WIDTHS = (1, 2, 3, 4, 5)
MODES = (True, False, "never")
PENALTIES = (0.0, 0.6, 1.0, 2.0, -1.0)
FILL = 1
CASES = list(itertools.product(WIDTHS, MODES, PENALTIES))


# --- against transformers -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.utils import logging

    logging.set_verbosity_error()
    found = []
    for seed, vocab_size in enumerate((20, 33, 60)):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
        found.append(LlamaForCausalLM(config).double().eval())
    return found


def theirs(model, prompt, width, mode, penalty, stops, max_tokens, min_tokens):
    """Sequences without the prompt and scores, by transformers."""

    def beam_search(model, input_ids, **kw):  # also for one beam, which would be greedy otherwise
        return model._beam_search(input_ids, **kw)

    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        custom_generate=beam_search,
        num_beams=width,
        num_return_sequences=width,
        do_sample=False,
        early_stopping=mode,
        length_penalty=penalty,
        eos_token_id=stops or None,
        pad_token_id=FILL,
        max_new_tokens=max_tokens,
        min_new_tokens=min_tokens or None,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return out.sequences[:, len(prompt) :].tolist(), out.sequences_scores.tolist()


@torch.no_grad()
def ours(model, prompt, width, mode, penalty, stops, max_tokens, min_tokens, seen):
    """The same by `BeamSearch`, with the whole of every beam computed anew at every step."""
    params = BeamSearchParams(
        width,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        length_penalty=penalty,
        early_stopping=mode,
        stop_token_ids=stops[1:],
    )
    search = BeamSearch.start(params, stops[:1], max_tokens)
    while not search.done:
        batch = torch.tensor([[*prompt, *beam.token_ids] for beam in search.beams])
        logits = model(batch).logits[:, -1]
        before, search = search, search.advance([search.candidates(row) for row in logits])
        for beam in search.beams:
            assert beam.token_ids[:-1] == before.beams[beam.parent].token_ids
        seen["reordered"] += [b.parent for b in search.beams] != list(range(width))
    num_steps = len(before.beams[0].token_ids) + 1
    seen["ended early"] += num_steps < max_tokens
    seen["went on"] += num_steps > max(len(h.token_ids) for h in search.hypotheses)
    seen.update(h.finish_reason for h in search.hypotheses)
    return search.results


def test_it_finds_what_transformers_finds(tiny_models):
    seen = Counter()
    draw = random.Random(0)
    for number, (width, mode, penalty) in enumerate(CASES * 4):
        model = draw.choice(tiny_models)
        vocab_size = model.config.vocab_size
        prompt = [draw.randrange(vocab_size) for _ in range(draw.randint(1, 4))]
        likely = model(torch.tensor([prompt])).logits[0, -1].topk(12).indices.tolist()
        stops = draw.sample(likely, draw.choice([0, 1, 2, 3, 3]))
        max_tokens = draw.choice([1, 3, 8, 12, 12])
        min_tokens = draw.choice([0, 0, 0, min(3, max_tokens)])
        case = (model, prompt, width, mode, penalty, stops, max_tokens, min_tokens)
        sequences, scores = theirs(*case)
        found = ours(*case, seen)
        assert len(found) == width
        for hypothesis, sequence, score in zip(found, sequences, scores):
            tokens = list(hypothesis.token_ids)
            assert tokens == sequence[: len(tokens)], (number, case)
            assert set(sequence[len(tokens) :]) <= {FILL, -1}, (number, case)
            assert hypothesis.score == pytest.approx(score, abs=1e-4, rel=1e-4), (number, case)
    # Nothing is proved by cases that never came to the point.
    assert number + 1 >= 200
    assert min(seen[event] for event in ("ended early", "reordered", "stop", "length")) > 20, seen
    assert seen["went on"] > 5, seen


# --- rule by rule ---------------------------------------------------------------------------------

EOS = 9


def start(width=2, max_tokens=10, eos=(EOS,), **wishes):
    return BeamSearch.start(
        BeamSearchParams(width, max_tokens=max_tokens, **wishes), eos, max_tokens
    )


def tokens_of(search):
    return [beam.token_ids for beam in search.beams]


def test_the_best_of_all_beams_go_on_and_name_their_parents():
    search = start().advance([[(1, -1.0), (2, -2.0), (3, -3.0), (4, -4.0)]])
    assert search.beams == (Beam((1,), -1.0, 0), Beam((2,), -2.0, 0))
    search = search.advance([[(5, -5.0), (6, -6.0)], [(7, -0.5), (8, -1.0)]])
    assert search.beams == (Beam((2, 7), -2.5, 1), Beam((2, 8), -3.0, 1))
    assert not search.hypotheses
    assert not search.done


def test_how_many_candidates_are_needed():
    assert start(3, eos=()).num_candidates == 6
    assert start(3, eos=(1,)).num_candidates == 6
    assert start(3, eos=(1, 2), stop_token_ids=[3]).num_candidates == 12
    assert start(3, eos=(1, 2), stop_token_ids=[3], ignore_eos=True).num_candidates == 6


def test_a_stop_id_finishes_a_hypothesis_only_among_the_first_width():
    search = start().advance([[(1, -1.0), (EOS, -2.0), (3, -3.0), (4, -4.0)]])
    assert search.hypotheses == (Hypothesis((EOS,), -2.0, -2.0, "stop"),)
    assert tokens_of(search) == [(1,), (3,)]
    search = start().advance([[(1, -1.0), (2, -2.0), (EOS, -3.0), (4, -4.0)]])
    assert search.hypotheses == ()
    assert tokens_of(search) == [(1,), (2,)]


def test_the_score_counts_generated_tokens_and_the_stop_id():
    search = start(1, length_penalty=2.0, early_stopping=True)
    search = search.advance([[(1, -1.0), (2, -5.0)]]).advance([[(EOS, -3.0), (2, -4.0)]])
    assert search.results == (Hypothesis((1, EOS), -4.0, -4.0 / 2**2, "stop"),)


def test_at_max_tokens_the_first_width_candidates_are_hypotheses():
    search = start(2, max_tokens=1).advance([[(1, -1.0), (EOS, -2.0), (3, -3.0), (4, -4.0)]])
    assert search.done
    assert [(h.token_ids, h.finish_reason) for h in search.results] == [
        ((1,), "length"),
        ((EOS,), "stop"),
    ]


@pytest.mark.parametrize(
    ("mode", "penalty", "best", "done"),
    [  # of the best beam, after two tokens of ten; hypotheses score -1 and -2.5 / 2**penalty
        (True, 1.0, -2.2, True),  # two are there, whatever the beams promise
        (False, 1.0, -3.0, True),  # -3 / 2 is no better than -1.25
        (False, 1.0, -2.2, False),  # -2.2 / 2 is
        ("never", 1.0, -3.0, False),  # -3 / 10 is
        (False, 0.0, -3.0, True),
        ("never", 0.0, -3.0, True),  # length does not help
        (False, 3.0, -3.0, False),  # -3 / 8 is better than -1
        (False, 3.0, -9.0, True),
        ("never", 3.0, -9.0, False),
        ("never", -1.0, -3.0, True),  # -3 * 2 is no better than -5
        ("never", -1.0, -2.2, False),  # -2.2 * 2 is: hope for the present length, not for ten
    ],
)
def test_when_the_search_ends(mode, penalty, best, done):
    search = start(2, early_stopping=mode, length_penalty=penalty)
    search = search.advance([[(EOS, -1.0), (1, -2.0), (2, -3.0), (3, -4.0)]])
    assert not search.done  # one hypothesis of two
    search = search.advance([[(EOS, -0.5), (4, best + 2.0)], [(5, -9.0), (6, -9.5)]])
    worst = min(-1.0, -2.5 / 2**penalty)
    assert len(search.hypotheses) == 2
    assert search.hypotheses[-1].score == worst
    assert search.beams[0].logprob == pytest.approx(best)
    assert search.done is done


def test_the_worst_hypothesis_gives_way():
    search = start(1, early_stopping="never")
    search = search.advance([[(EOS, -2.0), (1, -2.5)]])
    assert not search.done
    search = search.advance([[(EOS, -0.5), (2, -1.0)]])
    assert search.results == (Hypothesis((1, EOS), -3.0, -1.5, "stop"),)


def test_candidates_are_log_probabilities_without_early_stops():
    logits = torch.tensor([0.0, 3.0, 2.0, 1.0])
    expected = logits.double().log_softmax(-1).tolist()
    search = start(1, eos=(1,), min_tokens=1)
    assert [t for t, _ in search.candidates(logits)] == [2, 3]
    for token, logprob in search.candidates(logits):  # not made to sum to one again
        assert logprob == pytest.approx(expected[token], abs=1e-14)
    search = search.advance([search.candidates(logits)])
    assert [t for t, _ in search.candidates(logits)] == [1, 2]
    assert len(start(3, eos=(1,), min_tokens=1).candidates(logits)) == 3  # all that are possible


@pytest.mark.parametrize("sickness", [math.nan, math.inf])
def test_sick_logits_have_no_candidates(sickness):
    assert start(2).candidates(torch.tensor([0.0, sickness, 1.0])) == []
    assert start(2, eos=()).candidates(torch.full((3,), -math.inf)) == []


def test_fewer_results_may_be_asked_for():
    search = start(3, max_tokens=1, n=2, eos=())
    search = search.advance([[(t, -float(t)) for t in range(1, 7)]])
    assert [h.token_ids for h in search.results] == [(1,), (2,)]
    assert len(search.hypotheses) == 3


def test_a_vocabulary_of_stop_ids_ends_the_search():
    search = start(2, eos=(0, 1)).advance([[(0, -0.5), (1, -1.0)]])
    assert search.done
    assert [h.token_ids for h in search.results] == [(0,), (1,)]


def test_a_vocabulary_smaller_than_the_width():
    search = start(4, eos=()).advance([[(0, -0.5), (1, -1.0)]])
    assert tokens_of(search) == [(0,), (1,)]
    search = search.advance([[(0, -0.5), (1, -1.0)]] * 2)
    assert len(search.beams) == 4
    assert math.isclose(search.beams[0].logprob, -1.0)
