"""Attention functions that fail at a chosen call, or for a chosen request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from minipaged.attention import paged_attention
from minipaged.engine.llm import LLM


class FailingAttention:
    """The right attention, but at call ``at_call`` (from 1) it does something else first.

    Args:
        at_call: counted over all layers and steps; 0 is never.
        fail: what happens then, such as raising.
    """

    def __init__(self, at_call: int, fail: Callable[[], Any]):
        self.at_call, self.fail, self.num_calls = at_call, fail, 0

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        self.num_calls += 1
        if self.num_calls == self.at_call:
            self.fail()
        return paged_attention(*args, **options)  # type: ignore[return-value]


def poison_attention_of(
    llm: LLM, request_id: str, is_bad: Callable[[], bool] = lambda: True
) -> None:
    """From now on attention returns NaN in the rows of one request, as long as ``is_bad()``."""
    schedule, attention, names = llm.scheduler.schedule, llm.executor.attention, list[str]()

    def noting():
        step = schedule()
        names[:] = [sequence.request.request_id for sequence, _ in step.work]
        return step

    def poisoned(*args: Any, **options: Any) -> Tensor:
        out, starts = attention(*args, **options), args[5].tolist()
        for i, name in enumerate(names):
            if name == request_id and is_bad():
                out[starts[i] : starts[i + 1]] = torch.nan
        return out

    llm.scheduler.schedule, llm.executor.attention = noting, poisoned  # type: ignore[method-assign]


def raiser(error: BaseException) -> Callable[..., Any]:
    """A function that raises, whatever it is given."""

    def fail(*args: Any, **options: Any) -> Any:
        raise error

    return fail
