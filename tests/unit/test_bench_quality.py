"""The figure that says what fewer bits cost is the loss of the text, and it is small."""

from __future__ import annotations

import math

import pytest
import torch

from minipaged.bench.quality import TEXT, WINDOW, measure_quality, read
from minipaged.models import load_model
from support.tiny_models import run_paged

NUM_TOKENS = WINDOW + 88  # a window, and a part of one


def test_it_is_the_loss_of_every_token_given_those_before_it_in_its_window():
    model = load_model("bundled")
    ids = model.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[:NUM_TOKENS]
    windows = [ids[:WINDOW], ids[WINDOW:]]
    expected = []
    for window, logits in zip(windows, run_paged(model.decoder, windows)):
        scores = logits[:-1].double().log_softmax(-1)
        expected += (-scores[range(len(window) - 1), window[1:]]).tolist()
    reading = read("bundled", "float32", NUM_TOKENS)
    torch.testing.assert_close(torch.tensor(reading.nats), torch.tensor(expected))
    assert reading.perplexity == pytest.approx(math.exp(sum(expected) / len(expected)))


def test_weights_of_8_bits_cost_less_than_a_hundredth():
    figures, notes = measure_quality("bundled", ["float32", "int8"], lambda _: None, NUM_TOKENS)
    whole, eight = (figure.median for figure in figures)
    assert eight != whole
    assert eight == pytest.approx(whole, rel=0.01)
    assert "the same likeliest token 9" in notes[-1]
