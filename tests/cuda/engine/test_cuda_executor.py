"""An engine on the GPU's executor gives what the plain one gives, and waits once per token."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from minipaged.core import InvalidBatch, InvalidRequest
from minipaged.engine import devices
from minipaged.engine.executor import Executor
from minipaged.engine.llm import LLM
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.linear import PLAIN
from minipaged_cuda.buckets import Bucket
from minipaged_cuda.executor import CudaExecutor
from support.cuda_device import NAME, DeviceTensor, FakeDevice, WaitsInGraph
from support.cuda_engine import (
    bundled_on,
    cuda_executor_on_cpu,
    fake_gpu,
    on_fake_gpu,
    windowed_on,
)
from support.engine_models import PROMPTS, assert_idle, essence, make_llm

torch.set_num_threads(1)

GREEDY = SamplingParams(temperature=0, max_tokens=7)
SEEDED = SamplingParams(n=2, seed=11, max_tokens=5, top_p=0.95, frequency_penalty=0.4)
WISHES = [
    GREEDY,
    replace(SEEDED, logprobs=1),
    BeamSearchParams(beam_width=2, max_tokens=3),
]
NUMBERS = [[7, 3, 22, 41, 9, 9, 13], [7, 3, 22, 41, 9, 9, 13, 2, 30], [48]]
KNOBS = {
    "as it is": {},
    "tight": {"num_blocks": 15},
    "swapping": {"num_blocks": 15, "preemption": "swap"},
    "chunks of 7": {"block_size": 3, "max_num_batched_tokens": 7},
    "three at a time": {"max_num_seqs": 3},
}


@functools.cache
def expected() -> list:
    return essence(make_llm().generate(PROMPTS[1:], WISHES))


@pytest.mark.parametrize("knobs", KNOBS)
def test_the_tokens_are_those_of_the_plain_executor(knobs):
    with fake_gpu() as device:
        llm = on_fake_gpu(bundled_on, **KNOBS[knobs])
        assert essence(llm.generate(PROMPTS[1:], WISHES)) == expected()
        assert (llm.stats.num_preemptions > 0) == ("num_blocks" in KNOBS[knobs])
        assert device.counts["replay"] >= 3
        if KNOBS[knobs].get("preemption"):
            assert llm.stats.blocks_swapped > 0
            assert not isinstance(llm.executor.host_cache.key, DeviceTensor)
        assert llm.stats.prompt_tokens_cached > 0
    assert_idle(llm)


def test_with_a_window_too():
    plain = make_llm(windowed_on("cpu"), sanitize=False).generate(NUMBERS, GREEDY)
    with fake_gpu() as device:
        llm = on_fake_gpu(windowed_on)
        assert essence(llm.generate(NUMBERS, GREEDY)) == essence(plain)
        assert device.counts["replay"] >= 3


# --- the host waits once ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [GREEDY, SamplingParams(seed=1, max_tokens=9), SEEDED, SamplingParams(top_k=5, min_p=0.1)],
    ids=["greedy", "seeded", "top_p", "top_k"],
)
def test_the_host_waits_once_per_step(wish):
    with fake_gpu() as device:
        llm = on_fake_gpu(windowed_on)
        for prompt in NUMBERS:
            llm.add(prompt, wish)
        while llm.has_unfinished:
            device.counts.clear()
            llm.step()
            assert device.counts["wait"] == 1


def test_a_decode_step_is_one_upload_and_one_launch_before_sampling():
    with fake_gpu() as device:
        llm = on_fake_gpu(windowed_on)
        llm.add(NUMBERS[0], GREEDY)
        llm.step()
        llm.step()  # recorded
        device.counts.clear()
        llm.step()
        assert device.counts["upload"] == 1
        assert device.counts["replay"] == 1


# --- what a recording reads ---------------------------------------------------------------------


def test_a_recording_reads_weights_cache_and_inputs_and_nothing_else():
    """Whatever else was there when it was recorded may be gone when it is replayed."""
    with fake_gpu() as device:
        llm = on_fake_gpu(windowed_on)
        llm.generate(NUMBERS, GREEDY)
        executor = llm.executor
        stays = [llm.cache.key, llm.cache.value, *weights(executor.decoder)]
        stays += [inputs._buffer for inputs, _ in executor._recorded.values()]
        addresses = {tensor.numbers.untyped_storage().data_ptr() for tensor in stays}
        for recording in device.recordings:
            assert recording.outside.keys() <= addresses
            assert recording.num_replays > 0


def weights(decoder) -> list[DeviceTensor]:
    found, todo = [], [vars(decoder)]
    while todo:
        for value in todo.pop().values():
            if isinstance(value, DeviceTensor):
                found.append(value)
            elif isinstance(value, list):
                todo += [{f: getattr(layer, f) for f in layer.__slots__} for layer in value]
            elif isinstance(value, PLAIN.linear):
                todo.append(vars(value))
    return found


def test_a_shape_is_recorded_once():
    with fake_gpu() as device:
        llm = on_fake_gpu(windowed_on, max_num_seqs=4)
        llm.generate(NUMBERS, GREEDY)
        seen, num = dict(llm.executor._recorded), len(device.recordings)
        llm.generate(NUMBERS, GREEDY)
        assert len(device.recordings) == num == len(seen)
        assert all(llm.executor._recorded[bucket] is seen[bucket] for bucket in seen)
        assert set(seen) <= {Bucket(rows, 16) for rows in (1, 2, 3, 4)}


def test_where_every_write_must_be_seen_nothing_is_recorded():
    right = expected()
    with cuda_executor_on_cpu() as machine:
        llm = make_llm(attention=None, num_blocks=15, preemption="swap", sanitize=True)
        assert essence(llm.generate(PROMPTS[1:], WISHES)) == right
        assert llm.stats.blocks_swapped > 0
        assert machine.num_captures == 0


@pytest.mark.parametrize("name", ["token_ids", "slot_mapping", "block_tables", "seq_lens"])
def test_the_test_would_see_an_input_that_is_not_filled(name, monkeypatch):
    """A replay that leans on one tensor of the step that was recorded gives other tokens."""
    from minipaged_cuda.buckets import Inputs

    fill, frozen = Inputs.fill, {}

    def forgetful(self, token_ids, batch):
        fill(self, token_ids, batch)
        tensor = self.token_ids if name == "token_ids" else getattr(self.batch, name)
        if id(self) in frozen:
            tensor.copy_(frozen[id(self)][1])
        frozen[id(self)] = self, tensor.clone()  # the object too: a dead one's id is given again

    plain = make_llm(windowed_on("cpu"), sanitize=False).generate(NUMBERS, GREEDY)
    monkeypatch.setattr(Inputs, "fill", forgetful)
    with fake_gpu():
        try:
            found = essence(on_fake_gpu(windowed_on).generate(NUMBERS, GREEDY))
        except InvalidBatch:  # lengths and tables that contradict each other
            return
    assert found != essence(plain)


# --- the fake is no weaker than a GPU -----------------------------------------------------------


def test_the_fake_device_refuses_and_counts_what_a_gpu_does():
    with FakeDevice() as device:
        x = torch.ones(3).to(NAME)
        assert device.counts["wait"] == 1
        with pytest.raises(RuntimeError, match="some of its tensors are on the device"):
            x + torch.ones(3)
        assert x.sum().item() == 3
        assert x.cpu().tolist() == [1, 1, 1]
        assert device.counts["wait"] == 3
        with pytest.raises(WaitsInGraph):
            device.capture(partial(torch.nonzero, x))


def test_a_replay_reads_what_lies_there_now():
    with FakeDevice() as device:
        x = torch.zeros(2).to(NAME)
        replay = device.capture(lambda: (x + 1) * 2)
        x.fill_(4)
        y = replay()
        assert y.cpu().tolist() == [10, 10]
        x.fill_(0)
        assert replay() is y
        assert y.cpu().tolist() == [2, 2]


# --- who computes -------------------------------------------------------------------------------


def test_the_package_says_who_computes_on_a_gpu():
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)["project"]["entry-points"][devices.GROUP]
    assert EntryPoint("cuda", entries["cuda"], devices.GROUP).load() is CudaExecutor


def test_a_missing_extra_is_named_with_its_command(monkeypatch):
    class Distant(CudaExecutor):
        requires = ("no_such_module", "nowhere.at_all")

    monkeypatch.setattr(devices, "_executors", lambda name: [Distant])
    with pytest.raises(InvalidRequest, match=r"no_such_module, nowhere.at_all: pip install 'minip"):
        devices.executor_for(torch.device("cuda"))
    assert devices.executor_for(torch.device("cuda"), attention=len) is Executor
    assert devices.executor_for(torch.device("cpu")) is Executor
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert devices.choose_device(None, None).type == "cpu"
    assert devices.choose_device(None, len).type == "cuda"
    Distant.requires = ("torch",)
    assert devices.choose_device(None, None).type == "cuda"


def test_a_device_that_nobody_computes_on():
    with pytest.raises(InvalidRequest, match="an executor for xpu: there are 'cpu' and 'cuda'; or"):
        devices.executor_for(torch.device("xpu"))


def test_a_card_that_is_too_old_is_refused():
    with fake_gpu() as device:
        device.capability = (7, 0)
        with pytest.raises(InvalidRequest, match=r"capability 7\.0, the kernels need 7\.5"):
            on_fake_gpu(windowed_on)


def test_the_pool_of_a_gpu_is_what_it_has_free(monkeypatch):
    from minipaged.engine.memory import default_bytes, step_bytes

    config, gpu = windowed_on("cpu").config, torch.device("cuda")
    needed = step_bytes(config, 512, 64)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (10**9, 2 * 10**9))
    assert default_bytes(gpu, config, 512, 64) == 9 * 10**8 - needed
    assert default_bytes(torch.device("cpu"), config, 512, 64) == 2**30
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (needed, 10**9))
    with pytest.raises(InvalidRequest, match=f"{needed:,} of 1,000,000,000 bytes free, of which"):
        default_bytes(gpu, config, 512, 64)


def test_an_attention_function_of_one_s_own_is_computed_with_plainly():
    with fake_gpu():
        llm = LLM(bundled_on("cpu"), attention=len, device="cpu", num_blocks=4)
    assert type(llm.executor) is Executor
