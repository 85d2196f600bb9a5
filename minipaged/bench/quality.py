"""What fewer bits cost: the loss of one text under one model, for several types of weights.

The text is ten chapters of the King James Bible that the bundled model was not trained on. It is
read by the engine itself, in windows, through the paged cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from minipaged.engine.llm import LLM
from minipaged.engine.params import SamplingParams

from .stats import Figure

TEXT = Path(__file__).with_name("held_out.txt")
WINDOW = 512  # tokens; each begins without a past


class Reading(NamedTuple):
    """How one model reads the text."""

    nats: tuple[float, ...]  # of every token but each window's first
    best: tuple[int, ...]  # the token that it would have put there

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss: among how many tokens it is undecided."""
        return math.exp(sum(self.nats) / len(self.nats))


def read(model: str, dtype: str, num_tokens: int | None = None) -> Reading:
    """Let a model predict each token of the text from those before it in its window."""
    llm = LLM(model, dtype=dtype, prefix_caching=False, device="cpu")
    ids = llm.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[:num_tokens]
    size = min(WINDOW, llm.max_model_len - 1)
    windows = [ids[i : i + size] for i in range(0, len(ids), size)]
    wish = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    nats, best = [], []
    for window, answer in zip(windows, llm.generate(windows, wish)):
        for token, scores in zip(window[1:], (answer.prompt_logprobs or [])[1:]):
            nats.append(-scores[token].logprob)
            best.append(next(t for t, score in scores.items() if score.rank == 1))
    return Reading(tuple(nats), tuple(best))


def measure_quality(
    model: str, dtypes: Sequence[str], say: Callable[[str], None], num_tokens: int | None = None
) -> tuple[list[Figure], list[str]]:
    """Perplexity for every type, and how far each is from the first of them."""
    readings = {}
    for dtype in dtypes:
        say(f"reading the text in {dtype} ...")
        readings[dtype] = read(model, dtype, num_tokens)
    first, *others = dtypes
    figures = [
        Figure("perplexity of a held-out text", name, "", (reading.perplexity,))
        for name, reading in readings.items()
    ]
    notes = [_compare(first, readings[first], name, readings[name]) for name in others]
    return figures, [f"{len(readings[first].nats)} tokens in windows of {WINDOW}", *notes]


def _compare(first: str, its: Reading, name: str, mine: Reading) -> str:
    change = mine.perplexity / its.perplexity - 1
    same = sum(a == b for a, b in zip(mine.best, its.best)) / len(its.best)
    return f"{name}: {change:+.2%} of {first}'s perplexity; the same likeliest token {same:.1%}"
