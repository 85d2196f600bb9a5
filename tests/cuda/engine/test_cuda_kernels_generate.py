"""The kernels' own text generates: an engine whose launches run lane by lane in the simulator."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from minipaged.engine.params import SamplingParams
from support.cuda_engine import cuda_executor_on_cpu, windowed_on
from support.engine_models import assert_idle, essence, make_llm

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")

GREEDY = SamplingParams(temperature=0, max_tokens=3)
FORKS = SamplingParams(n=2, seed=3, max_tokens=3)
PROMPTS, WISHES = [[7, 3, 22, 41, 9], [48, 2, 5]], [FORKS, GREEDY]
SIZES = {"num_blocks": 3, "block_size": 4, "max_model_len": 16, "preemption": "swap"}


def test_the_kernels_give_the_tokens_of_the_reference():
    """Attention, writes, copies on write and swaps, through prompts and decode steps."""
    from minipaged_cuda import operations
    from minipaged_cuda.launch.simulated import SimulatedLauncher

    launcher = SimulatedLauncher()
    simulated = {
        name: partial(getattr(operations, name), launcher=launcher)
        for name in ("paged_attention", "write_kv", "copy_blocks", "swap_blocks")
    }
    model = windowed_on("cpu", torch.float32, num_layers=1)  # a launch takes a second
    expected = essence(make_llm(model, sanitize=False, **SIZES).generate(PROMPTS, WISHES))
    with cuda_executor_on_cpu(SimpleNamespace(**simulated)) as machine:
        llm = make_llm(model, attention=None, sanitize=False, **SIZES)
        assert essence(llm.generate(PROMPTS, WISHES)) == expected
    assert machine.num_captures > 0
    assert llm.stats.blocks_copied > 0
    assert llm.stats.blocks_swapped > 0
    assert_idle(llm)
