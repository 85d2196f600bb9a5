"""What a GPU gets out of the kernels, beside what it could: rates, tokens, launches.

Every figure stands beside the rate at which this card copies memory, measured in the same run:
decoding reads K, V and weights once and computes little, so that rate is the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.engine.llm import LLM
from minipaged.engine.params import SamplingParams
from minipaged.models import Model

from .clock import Clock, in_turns, launch_seconds
from .random_model import weight_bytes

BLOCK_SIZE = 16


class Shape(NamedTuple):
    """One decode step's attention."""

    num_seqs: int
    context: int
    group: int  # query heads per kv head
    num_kv_heads: int = 8
    head_dim: int = 128

    def kv_bytes(self, dtype: torch.dtype) -> int:
        """What must be read: K and V of every token."""
        per_token = 2 * self.num_kv_heads * self.head_dim * dtype.itemsize
        return self.num_seqs * self.context * per_token


@dataclass(frozen=True)
class Sizes:
    """How much is measured; the default is for a GPU."""

    copied_bytes: int = 2**30
    shapes: tuple[Shape, ...] = tuple(
        Shape(num_seqs, context, group)
        for num_seqs in (1, 16, 64, 256)
        for context in (512, 4096, 32768)
        for group in (1, 4, 8)
    )
    rounds: int = 20
    num_seqs: tuple[int, ...] = (1, 64)  # of generating
    num_prompt: int = 64
    num_output: int = 128
    launches: int = 1000


TRIAL = Sizes(2**16, (Shape(2, 32, 2, 1, 16),), 2, (2,), 4, 4, 3)


@dataclass
class Section:
    """A table of the report."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)


Attention = Callable[..., Any]


def copy_rate(clock: Clock, sizes: Sizes) -> float:
    """Bytes per second that the device moves, read and written, from one place to another."""
    source = torch.zeros(sizes.copied_bytes, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    (seconds,) = in_turns(clock, [lambda: target.copy_(source)], sizes.rounds)
    return 2 * sizes.copied_bytes / seconds


# --- attention ---------------------------------------------------------------------------------


def measure_attention(
    clock: Clock, attention: Attention, dtype: torch.dtype, rate: float, sizes: Sizes
) -> Section:
    """Decode attention over paged K and V, in turns with torch's over contiguous ones."""
    columns = ("sequences", "context", "G", "K, V GB/s", "of copying", "SDPA GB/s", "SDPA / paged")
    section = Section("decode attention, and torch's SDPA on contiguous K and V", columns)
    for shape in sizes.shapes:
        fits = 5 * shape.kv_bytes(dtype) <= 2 * clock.release()  # paged, contiguous, and some air
        cells = ("does not fit", "", "", "")
        if fits:
            cells = _compare(clock, attention, dtype, rate, shape, sizes.rounds)
        section.rows.append((str(shape.num_seqs), str(shape.context), str(shape.group), *cells))
    return section


def _compare(
    clock: Clock, attention: Attention, dtype: torch.dtype, rate: float, shape: Shape, rounds: int
) -> tuple[str, str, str, str]:
    works = [_paged(attention, shape, dtype, clock), _contiguous(shape, dtype, clock)]
    paged, contiguous = in_turns(clock, works, rounds)
    ours, theirs = (shape.kv_bytes(dtype) / seconds for seconds in (paged, contiguous))
    return (
        f"{ours / 1e9:,.1f}",
        f"{ours / rate:.0%}",
        f"{theirs / 1e9:,.1f}",
        f"{contiguous / paged:.2f}x",
    )


def _paged(
    attention: Attention, shape: Shape, dtype: torch.dtype, clock: Clock
) -> Callable[[], Any]:
    """A call over blocks in random order, as a pool has them after a while."""
    device, blocks = clock.device, -(-shape.context // BLOCK_SIZE)
    num_blocks = shape.num_seqs * blocks
    layout = (num_blocks, shape.num_kv_heads, BLOCK_SIZE, shape.head_dim)
    caches = [_random(layout, dtype, device).transpose(1, 2) for _ in range(2)]
    query = _random(
        (shape.num_seqs, shape.group * shape.num_kv_heads, shape.head_dim), dtype, device
    )
    tables = torch.randperm(num_blocks).to(device, torch.int32).view(shape.num_seqs, blocks)
    lens = torch.full((shape.num_seqs,), shape.context, dtype=torch.int32, device=device)
    starts = torch.arange(shape.num_seqs + 1, dtype=torch.int32, device=device)
    return partial(attention, query, *caches, tables, lens, starts, scale=shape.head_dim**-0.5)


def _contiguous(shape: Shape, dtype: torch.dtype, clock: Clock) -> Callable[[], Any]:
    num_heads = shape.group * shape.num_kv_heads
    query = _random((shape.num_seqs, num_heads, 1, shape.head_dim), dtype, clock.device)
    layout = (shape.num_seqs, shape.num_kv_heads, shape.context, shape.head_dim)
    key, value = (_random(layout, dtype, clock.device) for _ in range(2))
    return partial(F.scaled_dot_product_attention, query, key, value, enable_gqa=True)


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device).normal_()


# --- generating --------------------------------------------------------------------------------


def measure_generation(
    clock: Clock, models: dict[str, Model], rate: float, sizes: Sizes
) -> Section:
    """Decode speed of whole models, steps recorded and not."""
    columns = ("model", "sequences", "steps", "tokens/s", "bytes at the rate of copying")
    section = Section("generating", columns)
    for name, model in models.items():
        section.rows += [(name, *row) for row in _generations(clock, model, rate, sizes)]
    return section


def _generations(
    clock: Clock, model: Model, rate: float, sizes: Sizes
) -> Iterator[tuple[str, str, str, str]]:
    config, dtype = model.config, model.decoder.dtype
    clock.release()
    llm = LLM(model, device=clock.device, dtype=dtype, prefix_caching=False)
    token_bytes = llm.cache.bytes_per_block / llm.block_size
    for num_seqs in sizes.num_seqs:
        cache_bytes = num_seqs * (sizes.num_prompt + sizes.num_output / 2) * token_bytes
        step_bytes = weight_bytes(config, dtype) + cache_bytes
        for how, records in (("recorded", True), ("launched one by one", False)):
            llm.executor.records = records
            _decode(llm, num_seqs, sizes)  # compiles, records
            seconds = _decode(llm, num_seqs, sizes)
            share = f"{step_bytes / rate / seconds:.0%}"
            yield str(num_seqs), how, f"{num_seqs / seconds:,.0f}", share


def _decode(llm: LLM, num_seqs: int, sizes: Sizes) -> float:
    """Median seconds of the steps in which every sequence decodes, sampling included."""
    wish = SamplingParams(temperature=0, max_tokens=sizes.num_output, ignore_eos=True)
    for i in range(num_seqs):
        llm.add([(7 * i + j) % 50 for j in range(sizes.num_prompt)], wish)
    samples = []
    while llm.has_unfinished:
        tokens, seconds = llm.stats.decode_tokens, llm.stats.decode_seconds
        llm.step()
        if llm.stats.decode_tokens - tokens == num_seqs:
            samples.append(llm.stats.decode_seconds - seconds)
    return median(samples)


# --- launching ---------------------------------------------------------------------------------


def measure_launches(
    clock: Clock, attention: Attention, dtype: torch.dtype, sizes: Sizes
) -> Section:
    """What a launch costs the host: the least that torch can launch, and attention."""
    section = Section("time of the host per call", ("call", "µs"))
    number = torch.zeros(1, device=clock.device)
    shape = Shape(1, BLOCK_SIZE, 1)
    calls = {
        "torch, one number set to 0": number.zero_,
        "attention, 1 sequence of 16 tokens": _paged(attention, shape, dtype, clock),
    }
    for name, call in calls.items():
        seconds = launch_seconds(clock, call, sizes.launches)
        section.rows.append((name, f"{seconds * 1e6:.1f}"))
    return section
