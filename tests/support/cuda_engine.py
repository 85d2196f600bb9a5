"""Engines whose executor is the GPU's, on the fake device, with kernels that are plain torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from minipaged.attention import paged_attention
from minipaged.cache import write_kv
from minipaged.engine import devices
from minipaged.engine import llm as llm_module
from minipaged.engine.llm import LLM
from minipaged.models import Decoder, Model, ModelConfig, load_model
from minipaged.models.weights import tensor_shapes
from minipaged_cuda.executor import CudaExecutor

from .cuda_device import NAME, FakeDevice
from .engine_models import NumberTokenizer


class PlainKernels:
    """The four operations of ``minipaged_cuda.operations`` in torch; ``launch`` runs each."""

    def __init__(self, launch: Callable[..., Any]):
        for kernel in (self.paged_attention, self.write_kv, self.copy_blocks, self.swap_blocks):
            setattr(self, kernel.__name__, partial(launch, kernel))

    @staticmethod
    def paged_attention(*args: Any, max_query_len: int | None = None, **options: Any) -> Any:
        if max_query_len == 1:
            assert args[5].tolist() == list(range(len(args[4]) + 1)), "the promise is not kept"
        return paged_attention(*args, **options)

    @staticmethod
    def write_kv(*args: Tensor) -> None:
        write_kv(*args)

    @staticmethod
    def copy_blocks(key_cache: Tensor, value_cache: Tensor, pairs: Tensor) -> None:
        for cache in (key_cache, value_cache):
            PlainKernels.swap_blocks(cache, cache, pairs)

    @staticmethod
    def swap_blocks(source: Tensor, destination: Tensor, pairs: Tensor) -> None:
        assert pairs.dtype == torch.int32
        read, written = (set(column.tolist()) for column in pairs.T)
        assert source is not destination or not read & written
        destination[:, pairs[:, 1].long()] = source[:, pairs[:, 0].long()]


class Cpu:
    """What an executor asks of a GPU, where there is none and nothing is pretended."""

    device, capability, num_captures = torch.device("cpu"), (9, 0), 0

    def host_memory(self, num_bytes: int) -> Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def finish(self) -> None: ...

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        self.num_captures += 1
        return work


@contextmanager
def cuda_executor_on_cpu(operations: Any = None) -> Iterator[Cpu]:
    """Inside, an ``LLM`` without ``attention=`` computes by ``CudaExecutor`` on the CPU."""
    machine = Cpu()
    operations = operations or PlainKernels(lambda kernel, *args, **kwargs: kernel(*args, **kwargs))
    make = partial(CudaExecutor, operations=operations, gpu=machine)
    with mock.patch.object(llm_module, "executor_for", return_value=make):
        yield machine


@contextmanager
def fake_gpu() -> Iterator[FakeDevice]:
    """Inside, ``LLM(..., device=NAME)`` computes by ``CudaExecutor``, and the device counts."""
    device = FakeDevice()

    class OnFakeDevice(CudaExecutor):
        requires = ()

        def __init__(self, *args: Any, **options: Any):
            super().__init__(
                *args, **options, operations=PlainKernels(device.launch_kernel), gpu=device
            )

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(devices, "_executors", return_value=[OnFakeDevice]))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", lambda tensor: tensor))
        stack.enter_context(device)
        yield device


def on_fake_gpu(model: Callable[[str], Model], **knobs: Any) -> LLM:
    """An engine in float64 on the fake device, whose crossings are counted from now on."""
    defaults = {"num_blocks": 96, "block_size": 4, "device": NAME, "dtype": "float64"}
    return LLM(model(NAME), **(defaults | knobs))


@functools.cache
def bundled_on(device: str) -> Model:
    return load_model("bundled", dtype="float64", device=device)


@functools.cache
def windowed_on(device: str, dtype: torch.dtype = torch.float64, num_layers: int = 2) -> Model:
    """Random weights and a window of six positions; no tokenizer."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 24}
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 4}
    limits = {"max_position_embeddings": 64, "sliding_window": 6}
    config = ModelConfig("mistral", num_layers=num_layers, **sizes, **heads, **limits)
    generator = torch.Generator().manual_seed(5)
    weights = {
        name: torch.randn(shape, generator=generator, dtype=dtype)
        for name, shape in tensor_shapes(config).items()
    }
    decoder = Decoder(config, weights, dtype=dtype, device=device)
    return Model(decoder, NumberTokenizer(config.vocab_size), config)  # type: ignore[arg-type]
