"""Paged batches and launchers for the tests of operations and conformance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.plan import H200, Card


@dataclass
class Recorder:
    """Takes launches down, with the arguments of each; nothing runs."""

    card: Card = H200
    calls: list[tuple[Specialisation, tuple[int, int, int], int]] = field(default_factory=list)
    arguments: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, specialisation, grid, num_threads, arguments, *, dynamic_shared=0):
        self.calls.append((specialisation, grid, num_threads))
        self.arguments.append(dict(arguments))


def simulated_launcher(**options: Any) -> Any:
    """A launcher that runs texts lane by lane; the test is skipped where greenlet is missing."""
    pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")
    from minipaged_cuda.launch.simulated import SimulatedLauncher

    return SimulatedLauncher(**options)


def emulated_launcher(**options: Any) -> Any:
    """A launcher that runs PTX; the test is skipped where the compiler is missing."""
    pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'minipaged[cuda]'")
    from minipaged_cuda.launch.emulated import EmulatedLauncher

    return EmulatedLauncher(**options)


def batch(
    *lengths: tuple[int, int],  # (query_len, seq_len) of each sequence
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    spare_rows: int = 0,
    seed: int = 0,
) -> tuple[Tensor, ...]:
    """The six tensors of a call; blocks in any order, NaN wherever no position is stored."""
    dice = torch.Generator().manual_seed(seed)
    counts = [-(-seq_len // block_size) for _, seq_len in lengths]
    num_blocks, width = sum(counts) + 2, max([1, *counts]) + 1
    ids = torch.randperm(num_blocks, generator=dice, dtype=torch.int32)
    tables = torch.full((len(lengths), width), -1, dtype=torch.int32)
    shape = num_blocks, block_size, num_kv_heads, head_dim
    key, value = (torch.full(shape, torch.nan, dtype=cache_dtype or dtype) for _ in range(2))
    for s, (_, seq_len) in enumerate(lengths):
        tables[s, : counts[s]], ids = ids[: counts[s]], ids[counts[s] :]
        for p in range(seq_len):
            block = int(tables[s, p // block_size])
            for cache in (key, value):
                row = torch.randn(num_kv_heads, head_dim, generator=dice)
                cache[block, p % block_size] = row.to(cache.dtype)
    query_lens = torch.tensor([n for n, _ in lengths], dtype=torch.int32)
    starts = torch.cat([query_lens.new_zeros(1), query_lens.cumsum(0, dtype=torch.int32)])
    rows = int(starts[-1]) + spare_rows
    query = torch.randn(rows, num_heads, head_dim, generator=dice).to(dtype)
    seq_lens = torch.tensor([n for _, n in lengths], dtype=torch.int32)
    return query, key, value, tables, seq_lens, starts
