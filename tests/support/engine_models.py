"""Engines over real models that load in a moment, in float64: there no rounding flips a token."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from minipaged.attention import paged_attention
from minipaged.engine.llm import LLM
from minipaged.engine.outputs import RequestOutput
from minipaged.models import Model, load_model

from .tiny_models import load_decoder

SAID = "And God said, Let there be "
PROMPTS = (
    SAID + "light: and there was light. And God saw the light, that it was good: and God divided",
    SAID + "a firmament in the midst of the waters, and let it divide",
    "The servant went",
    SAID + "light: and there was light. And God saw the earth",
)


@functools.cache
def bundled(dtype: str = "float64") -> Model:
    """The model that comes with the package."""
    return load_model("bundled", dtype=dtype)


class NumberTokenizer:
    """Text for models that have no tokenizer: their ids, as numbers."""

    def __init__(self, vocab_size: int, eos_token_ids: Sequence[int] = ()):
        self.vocab_size, self.eos_token_ids = vocab_size, tuple(eos_token_ids)

    def encode(self, text: str) -> list[int]:
        return [int(number) for number in text.split()]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        hidden = set(self.eos_token_ids) if skip_special_tokens else set()
        return "".join(f"{i} " for i in ids if i not in hidden)


def load_tiny(directory: Path) -> Model:
    """A model that ``tiny_models.make_reference`` saved."""
    decoder = load_decoder(directory, dtype=torch.float64)
    return Model(decoder, NumberTokenizer(decoder.config.vocab_size), decoder.config)  # type: ignore[arg-type]


def make_llm(model: Model | None = None, **knobs) -> LLM:
    """An engine that checks its books at every step, unless told otherwise."""
    defaults = {"attention": paged_attention, "num_blocks": 96, "block_size": 4, "sanitize": True}
    return LLM(model or bundled(), **(defaults | knobs))


def tokens(outputs: Sequence[RequestOutput]) -> list[list[list[int]]]:
    """Request by request, sample by sample."""
    return [[completion.token_ids for completion in output.outputs] for output in outputs]


def essence(outputs: Sequence[RequestOutput]) -> list:
    """All that a caller may rely on, whatever else happened in the engine."""
    return [
        [(c.index, c.token_ids, c.text, c.finish_reason, c.stop_reason) for c in output.outputs]
        for output in outputs
    ]


def assert_idle(llm: LLM) -> None:
    """All blocks are back and all books are closed."""
    llm.scheduler.check()
    assert not llm.has_unfinished
    assert llm.scheduler.sequences == []
    assert llm.pool.num_free == llm.pool.num_blocks
    host = llm.scheduler.host_pool
    assert host is None or host.num_free == host.num_blocks
