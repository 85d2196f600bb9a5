"""copy_blocks: every pair in every layer, whatever the memory order, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from support.cuda_kernels import LAUNCHERS, element, launch, strides

NUM_LAYERS, NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, DIM = 2, 5, 3, 2, 8
PAIRS = [[3, 0], [-1, -1], [3, 4], [1, 2]]


def cache(layout: str, dtype: torch.dtype = torch.float16, num_blocks: int = NUM_BLOCKS) -> Tensor:
    """[layers, blocks, tokens, heads, dim], every number another one."""
    shape = [NUM_LAYERS, num_blocks, BLOCK_SIZE, NUM_HEADS, DIM]
    if layout == "HND":
        shape[2], shape[3] = shape[3], shape[2]
    if layout == "padded":
        shape = [n + (i > 1) for i, n in enumerate(shape)]
    memory = torch.randn(shape).to(dtype)
    if layout == "padded":
        return memory[:, :, :BLOCK_SIZE, :NUM_HEADS, :DIM]
    return memory.transpose(2, 3) if layout == "HND" else memory


def copy(
    launcher: Any, sources: list[Tensor], destinations: list[Tensor], *, whole: bool, wide: bool
) -> None:
    """Blocks without gaps as one row, or row by row, in 16-byte words or elements."""
    words = 16 // sources[0].itemsize if wide else 1
    unit = 4 // sources[0].itemsize if wide else 1
    rows = (1, 1) if whole else (BLOCK_SIZE, NUM_HEADS)
    row = BLOCK_SIZE * NUM_HEADS * DIM // (rows[0] * rows[1]) // words
    constants: dict[str, int | str] = {"TOKENS": rows[0], "HEADS": rows[1], "ROW": row}
    constants |= {"WIDE": int(wide), "VALUES": int(len(sources) > 1)}
    constants |= {"WORD": "uint32" if wide else element(sources[0])}
    arguments = {
        "key_source": sources[0],
        "key_destination": destinations[0],
        "value_source": sources[-1],
        "value_destination": destinations[-1],
        "pairs": torch.tensor(PAIRS, dtype=torch.int32),
        **strides("source", sources[0], "layer block token head", unit),
        **strides("destination", destinations[0], "layer block token head", unit),
    }
    num_words = rows[0] * rows[1] * row
    grid = (-(-num_words // 32), len(PAIRS), NUM_LAYERS)
    launch(launcher, "copy_blocks", grid, 32, arguments, constants)


def expected(source: Tensor, destination: Tensor) -> Tensor:
    right = destination.clone()
    for a, b in PAIRS:
        if a >= 0:
            right[:, b] = source[:, a]
    return right


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
@pytest.mark.parametrize(
    ("layout", "whole", "wide"),
    [("NHD", True, True), ("HND", True, True), ("HND", False, True), ("padded", False, False)],
)
def test_every_pair_is_copied_and_nothing_else_changes(launcher, layout, whole, wide):
    caches = [cache(layout), cache(layout)]
    right = [expected(c, c) for c in caches]
    copy(launcher, caches, caches, whole=whole, wide=wide)
    assert all(map(torch.equal, caches, right))


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_blocks_swap_into_a_cache_of_another_size_and_memory_order(launcher):
    sources, hosts = [cache("padded"), cache("padded")], [cache("HND", num_blocks=9) for _ in "kv"]
    right = [expected(s, h) for s, h in zip(sources, hosts)]
    copy(launcher, sources, hosts, whole=False, wide=False)
    assert all(map(torch.equal, hosts, right))


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
def test_one_cache_alone(launcher):
    only = cache("NHD", torch.float32)
    right = expected(only, only)
    copy(launcher, [only], [only], whole=True, wide=True)
    assert torch.equal(only, right)
