"""Cases of the kernels that write, copy and merge; see ``cuda_cases``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minipaged.attention.online_softmax import merge_states as merge_reference
from minipaged_cuda import merge_states, swap_blocks, write_kv
from support.cuda_kernels import launch
from support.cuda_planted import Case, PlantedLauncher

AXES = ("layer", "token", "head")
FLOAT8 = torch.float8_e4m3fn


def far_blocks(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Two blocks of one-byte numbers, 2**31 apart."""
    inner = torch.empty(shape[1:], device="meta").stride()
    return torch.empty(2**31 + 4096, dtype=dtype).as_strided(shape, (2**31, *inner))


# --- writing -----------------------------------------------------------------------------------

SLOTS = [9, -1, 4, 5, 0, 11, -1]


def write(name: str, dim: int, new: torch.dtype, stored: torch.dtype, scaled: bool = False) -> Case:
    """Writing into caches of two memory orders, which begin in the middle of their storage."""

    def run(launcher: PlantedLauncher) -> None:
        torch.manual_seed(dim)
        wide = (8 * torch.randn(7, 4, 2, dim)).to(new)
        key, value = wide[:, 1], wide[:, 2:, 0]  # of a fused projection, in two memory orders
        key[0, 0, 0], key[2, 1, 1] = 3e4, -3e4
        scales = torch.tensor([0.5, 4.0]), torch.tensor([2.0, 0.25])  # exact, so no ties move
        caches, right = blank_caches(dim, stored), blank_caches(dim, stored)
        for rows, cache, scale in zip((key, value), right, scales):
            store(rows.float() / scale[:, None] if scaled else rows, cache)
        names = ("k_scale", "v_scale")
        write_kv(
            key, value, *caches, torch.tensor(SLOTS), launcher=launcher,
            **(dict(zip(names, scales)) if scaled else {}),
        )  # fmt: skip
        assert all(map(same_storage, caches, right))

    return Case(name, run)


def blank_caches(dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """[4, 3, 2, dim] each: one HND, one with gaps, both without their storage's first block."""
    hnd = torch.full((5, 2, 3, dim), 7.0).to(dtype).transpose(1, 2)[1:]
    gaps = torch.full((5, 4, 2, dim + 16), 7.0).to(dtype)[1:, :3, :, :dim]
    return hnd, gaps


def store(rows: Tensor, cache: Tensor) -> None:
    """What write_kv must do, in torch; float8 holds at most 448."""
    if cache.dtype == FLOAT8:
        rows = rows.float().clamp(-448, 448)
    for slot, row in zip(SLOTS, rows):
        if slot >= 0:
            cache[slot // 3, slot % 3] = row.to(cache.dtype)


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bits, also between and before their elements."""
    return bytes(a.untyped_storage()) == bytes(b.untyped_storage())


def write_far(launcher: PlantedLauncher) -> None:
    cache = far_blocks(torch.Size([2, 2, 1, 8]), FLOAT8)
    row = torch.arange(8.0).to(FLOAT8)[None, None]
    write_kv(row, row, cache, cache, torch.tensor([3]), launcher=launcher)
    assert torch.equal(cache[1, 1].float(), row[0].float())


# --- copying and merging -----------------------------------------------------------------------


def copy(name: str, layout: str, pairs: list[tuple[int, int]]) -> Case:
    """Copying within two caches of two layers."""

    def run(launcher: PlantedLauncher) -> None:
        torch.manual_seed(0)
        caches, right = ([in_memory(layout, seed) for seed in (1, 2)] for _ in range(2))
        for cache in right:
            before = cache.clone()
            for source, destination in pairs:
                if source >= 0:
                    cache[:, destination] = before[:, source]
        operation = launcher.planted.module("minipaged_cuda.operations.copies").copy_blocks
        operation(*caches, torch.tensor(pairs), launcher=launcher)
        assert all(map(same_storage, caches, right))

    return Case(name, run)


def in_memory(layout: str, seed: int) -> Tensor:
    """[layers, blocks, tokens, heads, dim], every number another one."""
    dice = torch.Generator().manual_seed(seed)
    if layout == "HND":
        return torch.randn(2, 5, 2, 3, 4, generator=dice).transpose(2, 3)
    return torch.randn(2, 6, 4, 3, 5, generator=dice)[:, :5, :3, :2, :3]


def swap(launcher: PlantedLauncher) -> None:
    cache, host = in_memory("HND", 1), in_memory("gaps", 2)[..., :2, :]
    cache = cache[..., :3]
    right = host.clone()
    right[:, 4], right[:, 0] = cache[:, 1], cache[:, 3]
    swap_blocks(cache, host, [(1, 4), (3, 0)], launcher=launcher)
    assert torch.equal(host, right)


def copy_padded(launcher: PlantedLauncher) -> None:
    """Pairs that lie on the card, where nobody could take out those of -1."""
    cache = torch.arange(40.0).reshape(5, 8)[1:]  # four blocks of one row
    right = cache.clone()
    right[2] = cache[3]
    steps = {f"{side}_block_stride": 8 for side in ("source", "destination")}
    steps |= {f"{side}_{axis}_stride": 0 for side in ("source", "destination") for axis in AXES}
    given = {
        f"{what}_{side}": cache for what in ("key", "value") for side in ("source", "destination")
    }
    pairs = torch.tensor([[3, 2], [-1, -1]], dtype=torch.int32)
    constants = {"TOKENS": 1, "HEADS": 1, "ROW": 8, "WIDE": 0, "VALUES": 0, "WORD": "float32"}
    launch(launcher, "copy_blocks", (1, 2, 1), 32, {**given, **steps, "pairs": pairs}, constants)
    assert torch.equal(cache, right)


def copy_far(launcher: PlantedLauncher) -> None:
    cache = far_blocks(torch.Size([2, 1, 1, 3]), FLOAT8)
    cache[0], cache[1] = torch.ones(3).to(FLOAT8), torch.zeros(3).to(FLOAT8)
    operation = launcher.planted.module("minipaged_cuda.operations.copies").copy_blocks
    operation(cache, cache, [(0, 1)], launcher=launcher)
    assert bool((cache[1].float() == 1).all())


def merge_two(launcher: PlantedLauncher) -> None:
    """Rows with both states, one, none, and states so far apart that one is nothing."""
    torch.manual_seed(0)
    states = [torch.randn(5, 2, 5), torch.randn(5, 2), torch.randn(5, 2, 5), torch.randn(5, 2)]
    for empty_rows, (out, lse) in (([1, 3], states[:2]), ([2, 3], states[2:])):
        out[empty_rows], lse[empty_rows] = torch.nan, -torch.inf
    states[1][4], states[3][4] = 3e4, -3e4
    out, lse = merge_states(*states, launcher=launcher)
    want = merge_reference(*(x.double().nan_to_num(neginf=-torch.inf) for x in states))
    torch.testing.assert_close((out.double(), lse.double()), want, rtol=1e-6, atol=1e-6)


def merge_splits(name: str, sinks: Tensor | None) -> Case:
    """Four splits of rows with keys in all, in some, in none, and of a row of nobody."""

    def run(launcher: PlantedLauncher) -> None:
        torch.manual_seed(0)
        parts, part_lse = torch.randn(4, 2, 4, 5), 5 * torch.randn(4, 2, 4)
        for empty in ((0, slice(None), 1), (1, slice(None), slice(2)), 2, 3):
            parts[empty], part_lse[empty] = torch.nan, -1e30
        part_lse[1] += 1000  # beyond what 2**x can hold
        got = torch.empty(4, 2, 5), torch.empty(4, 2)
        given = {
            **dict(zip(("out", "lse"), got)),
            **{"partial_out": parts, "partial_lse": part_lse, "sinks": sinks},
            **{"query_start_loc": torch.tensor([0, 3], dtype=torch.int32), "num_seqs": 1},
            **{"num_heads": 2, "num_splits": 4},
        }
        constants = {"D": 5, "SINKS": int(sinks is not None), "OUT": "float32"}
        constants |= {"store_out": "store_float32"}
        launch(launcher, "merge", (4, 2), 32, given, constants)
        logits = torch.full((4, 2, 1), -torch.inf, dtype=torch.float64)
        if sinks is not None:
            logits[:3, :, 0] = sinks.double()
        natural = torch.where(part_lse > -1e30, part_lse.double() * math.log(2), -torch.inf)
        lse = torch.logsumexp(torch.cat([natural, logits], -1), -1)
        weights = torch.exp(natural - torch.where(lse == -torch.inf, 0.0, lse)[..., None])
        out = (weights[..., None] * parts.double().nan_to_num()).sum(2)
        found = tuple(x.double() for x in got)
        torch.testing.assert_close(found, (out, lse), rtol=1e-6, atol=1e-6)

    return Case(name, run)


CACHE_CASES: dict[str, tuple[Case, ...]] = {
    "write_kv": (
        write("16 bytes", 16, torch.float16, torch.float16),
        write("elements", 5, torch.float16, torch.float16),
        write("rounded", 5, torch.bfloat16, torch.float16),
        write("float8", 4, torch.float32, FLOAT8, scaled=True),
        Case("far", write_far, is_far=True),
    ),
    "copy_blocks": (
        copy("whole blocks", "HND", [(3, 0), (-1, -1), (3, 4), (1, 2)]),
        copy("gaps", "gaps", [(3, 0), (1, 2)]),
        Case("two caches", swap),
        Case("padded pairs", copy_padded),
        Case("far", copy_far, is_far=True),
    ),
    "operations.copies": (copy("chain", "HND", [(0, 1), (1, 2), (2, 0)]),),
    "merge": (
        merge_splits("plain", None),
        merge_splits("sinks", torch.tensor([0.5, 300.0])),
    ),
    "merge_states": (Case("states", merge_two),),
}
