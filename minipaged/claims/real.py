"""The real engine over any of the managers, with the bundled model; measures and decides nothing.

``LLM`` is not changed for it: a contiguous engine is the same one, whose pool and tables are
others when the first request comes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from minipaged.core import InvalidRequest
from minipaged.engine.llm import LLM
from minipaged.engine.params import SamplingParams
from minipaged.engine.sequence import Request
from minipaged.models import Model, load_model

from .managers import Manager
from .workload import Workload

BUNDLED = "the bundled model"


class ContiguousLLM(LLM):
    """An engine that reserves a run of memory for every request, and shares nothing.

    Args:
        manager: a contiguous one.
        model: see ``LLM``.
        options: of ``LLM``, beside its memory; not ``sanitize``, whose shadow knows blocks only.
    """

    def __init__(self, manager: Manager, model: str | Model = "bundled", **options: Any):
        if options.get("sanitize"):
            raise InvalidRequest("sanitize=True: the sanitizer watches blocks, here are runs")
        super().__init__(
            model,
            num_blocks=manager.num_blocks,
            block_size=manager.block_size,
            max_model_len=manager.max_len,
            prefix_caching=False,
            **options,
        )
        self.manager = replace(manager, max_len=self.max_model_len)
        self.pool = self.manager.new_pool()
        self.scheduler.pool = self._intake.pool = self.pool
        self.scheduler.headroom = 0  # whoever reserves everything at once needs none to grow

    def _request(self, prompt: Any, params: Any, *name_and_salt: str | None) -> Request:
        if not isinstance(params, SamplingParams) or params.n > 1:
            raise InvalidRequest(f"{params}: a run cannot be shared, so samples come one by one")
        request = super()._request(prompt, params, *name_and_salt)
        lens = len(request.prompt_token_ids), request.max_tokens
        request.sequences[0].table = self.manager.new_table(self.pool, *lens)
        return request


def engine(manager: Manager, model: str | Model = "bundled", **options: Any) -> LLM:
    """The real engine, its K/V kept by this manager.

    Args:
        manager: any of them.
        model: see ``LLM``.
        options: of ``LLM``, beside its memory; prefixes are cached only if they say so.
    """
    options.setdefault("device", "cpu")
    if not manager.is_paged:
        return ContiguousLLM(manager, model, **options)
    options.setdefault("prefix_caching", False)
    return LLM(
        model,
        num_blocks=manager.num_blocks,
        block_size=manager.block_size,
        max_model_len=manager.max_len,
        **options,
    )


@cache
def bundled() -> Model:
    """The model, loaded once for all claims and engines: nothing changes it."""
    return load_model("bundled")


def prompts(workload: Workload, vocab_size: int, seed: int = 0) -> list[list[int]]:
    """Random tokens, as many as the workload says."""
    random = Random(f"prompts {seed}")
    return [tokens(random, arrival.prompt_len, vocab_size) for arrival in workload.arrivals]


def tokens(random: Random, count: int, vocab_size: int) -> list[int]:
    """Any of the vocabulary but the first, each as likely."""
    return [1 + int(random.random() * (vocab_size - 1)) for _ in range(count)]


def sampled(output_len: int, **options: Any) -> SamplingParams:
    """Exactly so many tokens, drawn."""
    return SamplingParams(max_tokens=output_len, ignore_eos=True, **options)


def greedy(output_len: int, **options: Any) -> SamplingParams:
    """Exactly so many tokens, the likeliest ones."""
    return SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True, **options)
