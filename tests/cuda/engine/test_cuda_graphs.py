"""The thin file between us and torch's graphs: what it asks for, in order; and on a card, that."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from minipaged.attention import paged_attention
from minipaged.engine.llm import LLM
from minipaged.engine.params import SamplingParams
from minipaged_cuda.graphs import Gpu
from support.engine_models import PROMPTS, bundled, essence

SEEDED = SamplingParams(n=2, seed=3, max_tokens=12)
GREEDY = SamplingParams(temperature=0, max_tokens=12)


class FakeCuda:
    """The parts of ``torch.cuda`` that are used, writing down how."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = self.Stream("main")

    def Stream(self, name) -> SimpleNamespace:  # noqa: N802
        name = name if isinstance(name, str) else "side"
        wait = lambda other: self.log.append(f"{name} waits for {other.name}")  # noqa: E731
        return SimpleNamespace(name=name, wait_stream=wait)

    def CUDAGraph(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    def graph_pool_handle(self) -> str:
        return "pool"

    def current_stream(self) -> SimpleNamespace:
        return self.current

    @contextmanager
    def device(self, device):
        yield

    @contextmanager
    def stream(self, stream):
        self.current, before = stream, self.current
        yield
        self.current = before

    @contextmanager
    def graph(self, graph, pool, stream):
        self.log.append(f"record on {stream.name} into {pool}")
        with self.stream(stream):
            yield
        self.log.append("recorded")


def test_work_runs_once_beside_and_is_then_recorded(monkeypatch):
    cuda = FakeCuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    gpu = Gpu(torch.device("cuda"))

    def work() -> str:
        cuda.log.append(f"work on {cuda.current_stream().name}")
        return "result"

    replay = gpu.capture(work)
    assert cuda.log == [
        "side waits for main",  # the inputs are there
        "work on side",  # compiles and allocates, which a recording must not
        "main waits for side",
        "record on side into pool",
        "work on side",
        "recorded",
    ]
    cuda.log.clear()
    assert replay() == "result"
    assert cuda.log == ["replay"]


@pytest.mark.gpu
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_card_gives_the_tokens_of_the_reference(preemption):
    wishes = [SEEDED, GREEDY, SEEDED, GREEDY]
    sizes = {"num_blocks": 20, "block_size": 4, "preemption": preemption}
    expected = LLM(bundled("float32"), paged_attention, device="cpu", **sizes)
    llm = LLM("bundled", device="cuda", dtype="float32", **sizes)
    found = essence(llm.generate(list(PROMPTS), wishes))
    assert found == essence(expected.generate(list(PROMPTS), wishes))
    llm.executor.records = False
    assert essence(llm.generate(list(PROMPTS), wishes)) == found
