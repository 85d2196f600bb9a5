"""C6: what the size of blocks costs, in memory by the simulator and in time by the real kernel.

Small blocks waste less of their ends; large ones are fewer, so a kernel looks up fewer of them.
Paper: section 7.2, figure 18b.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from statistics import median

import torch
from torch import Tensor

from minipaged.attention.cpu import cpu_paged_attention, warm_up
from minipaged.cache import KVCache
from minipaged.core import BlockPool, BlockTable, reserve

from .claim import Claim, Context, Row, Tolerance
from .generators import alpaca_like, sharegpt_like
from .managers import PAPER_NUM_SLOTS, Manager
from .outcome import Setting
from .simulator import simulate
from .verdicts import counted
from .waste import law, law_row
from .workload import Workload

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEFAULT = 16
NUM_SEQS, CONTEXT = 16, 512  # of the kernel's step: each sequence has one query
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 8, 2, 64
LAW_POINTS = 1.0
MOST_BY_LAW = 50.0  # per cent
# To work well means here: nine tenths of the batch that blocks of 1 would allow are kept. The
# paper means latency, to which a small batch does less harm than it does to the batch.
_WELL, _WORSE = Tolerance.at_least(90.0), Tolerance.at_most(90.0)
_ABOUT_LATENCY = "the paper's measure is latency at a rate that is sustained, not the batch"
PAPER_GOOD: dict[str, list[tuple[int, str, Tolerance | None]]] = {
    "ShareGPT-like": [
        (16, "16 to 128 are best", _WELL),
        (128, "16 to 128 are best", _WELL),
        (256, "", None),
    ],
    "Alpaca-like": [
        (16, "16 and 32 work well", _WELL),
        (32, "16 and 32 work well", _WELL),
        (64, "larger ones degrade significantly", _WORSE),
        (256, "larger ones degrade significantly", _WORSE),
    ],
}

Sweep = dict[str, list[float]]


def measure(context: Context) -> Claim:
    """Waste and batch for every block size, and the kernel's time."""
    few = context.quick
    workloads = (
        sharegpt_like(100 if few else 160, seed=context.seed),
        alpaca_like(200 if few else 600, seed=context.seed),
    )
    sizes = BLOCK_SIZES[::4] if few else BLOCK_SIZES
    sweeps = {w.name: _sweep(w, sizes, context) for w in workloads}
    context.tell("the kernel at every block size")
    kernel = kernel_times(sizes, rounds=5 if few else 25, seed=context.seed)
    rows = [row for w in workloads for row in _memory_rows(w, sweeps[w.name], few)]
    rows += _kernel_rows(kernel, few)
    return Claim(
        key="block_size",
        title="C6 The size of blocks",
        said="16 tokens are enough for the kernel and few enough for the memory.",
        source="Kwon et al., SOSP 2023, section 7.2 and figure 18b",
        rows=tuple(rows),
        left_out="most requests, and six of nine sizes, so no best one" if few else "",
        notes=_notes(workloads),
        series={
            "sweep": sweeps,
            "wall": {
                "kernel_ms": {
                    "block_size": list(kernel),
                    "ms": [1000 * seconds for seconds in kernel.values()],
                },
            },
        },
    )


# --- memory --------------------------------------------------------------------------------------


def _sweep(workload: Workload, sizes: tuple[int, ...], context: Context) -> Sweep:
    sweep: Sweep = {name: [] for name in ("block_size", "waste", "mean_len", "batch")}
    for block_size in sizes:
        context.tell(f"{workload.name}, blocks of {block_size}")
        manager = Manager("paged", PAPER_NUM_SLOTS // block_size, block_size)
        queued = simulate(workload, manager, setting=Setting(at_once=True)).queued
        sweep["block_size"].append(block_size)
        sweep["waste"].append(queued.split.waste)
        sweep["mean_len"].append(queued.split.tokens / queued.mean_running)
        sweep["batch"].append(queued.mean_running)
    return sweep


def _memory_rows(workload: Workload, sweep: Sweep, few: bool) -> list[Row]:
    places = {int(size): place for place, size in enumerate(sweep["block_size"])}
    name = f"{workload.name}, {counted(len(workload), 'request')}"
    rows = [
        _waste_row(name, size, sweep["waste"][at], sweep["mean_len"][at], few)
        for size, at in ((size, places[size]) for size in (1, DEFAULT, 256))
    ]
    for size, text, tolerance in PAPER_GOOD[workload.name]:
        if size in places:
            share = 100 * sweep["batch"][places[size]] / sweep["batch"][places[1]]
            what = f"{workload.name}, blocks of {size}: batch, of the largest"
            note = "" if few or not tolerance or tolerance.admits(share) else _ABOUT_LATENCY
            rows.append(Row(what, text, share, "%", tolerance, note=note, few=few))
    return rows


def _waste_row(name: str, size: int, waste: float, mean_len: float, few: bool) -> Row:
    """The law takes ends to be anywhere in a block: not where most sequences are shorter."""
    what = f"{name}, blocks of {size}: held and empty"
    if law(size, mean_len) < MOST_BY_LAW:
        return law_row(what, waste, size, mean_len, LAW_POINTS, few)
    return Row(what, "", waste, "%", note="no law, as most sequences are shorter than a block")


# --- the kernel ----------------------------------------------------------------------------------


def kernel_times(block_sizes: tuple[int, ...], rounds: int, seed: int = 0) -> dict[int, float]:
    """Seconds of one decode step's attention, the same numbers in blocks of every size.

    Blocks lie in a random order, sizes take turns, and the median counts.
    """
    warm_up(torch.float32)
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(NUM_SEQS, NUM_HEADS, HEAD_DIM, generator=generator)
    kv = torch.randn(2, NUM_SEQS, CONTEXT, NUM_KV_HEADS, HEAD_DIM, generator=generator)
    calls = {size: _call(query, kv, size, Random(seed)) for size in block_sizes}
    first = next(iter(calls.values()))()
    for size, call in calls.items():
        assert torch.equal(call(), first), f"blocks of {size} give another result"
    seconds: dict[int, list[float]] = {size: [] for size in block_sizes}
    for _ in range(rounds):
        for size, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[size].append(time.perf_counter() - begin)
    return {size: median(times) for size, times in seconds.items()}


def _call(query: Tensor, kv: Tensor, block_size: int, random: Random) -> Callable[[], Tensor]:
    """Attention over ``kv`` kept in a cache of such blocks."""
    per_seq = -(-CONTEXT // block_size)
    num_blocks = NUM_SEQS * per_seq
    cache = KVCache(1, num_blocks, block_size, NUM_KV_HEADS, HEAD_DIM)
    order = list(range(num_blocks))
    random.shuffle(order)
    pool = BlockPool(num_blocks)
    tables = [BlockTable(pool, block_size) for _ in range(NUM_SEQS)]
    reserve(tables, [CONTEXT] * NUM_SEQS)
    for i, table in enumerate(tables):
        table.block_ids = [order[block_id] for block_id in table.block_ids]
        slots = torch.tensor(table.slots(0, CONTEXT))
        cache.write(0, kv[0, i], kv[1, i], slots)
    block_tables = torch.tensor([table.block_ids for table in tables], dtype=torch.int32)
    lens = torch.full((NUM_SEQS,), CONTEXT, dtype=torch.int32)
    starts = torch.arange(NUM_SEQS + 1, dtype=torch.int32)
    arguments = query, cache.key[0], cache.value[0], block_tables, lens, starts
    return lambda: cpu_paged_attention(*arguments, scale=HEAD_DIM**-0.5)  # type: ignore[return-value]


def _kernel_rows(kernel: dict[int, float], few: bool) -> list[Row]:
    fastest = min(kernel.values())
    rows = [
        Row(f"the kernel, blocks of {size}: a step", "", 1000 * seconds, "ms", wall=True)
        for size, seconds in kernel.items()
        if size in (1, 16, 256)
    ]
    rows.append(
        Row(
            f"the kernel, blocks of {DEFAULT}: slower than with the best size by",
            "large enough to use the device",
            100 * (kernel[DEFAULT] / fastest - 1),
            "%",
            Tolerance.at_most(25.0),
            wall=True,
            few=few,
            note="at most a quarter slower is what we take these words to mean",
        )
    )
    return rows


def _notes(workloads: tuple[Workload, ...]) -> tuple[str, ...]:
    return (
        f"Pools of {PAPER_NUM_SLOTS:,} slots, everybody waits from the beginning; the batch, which "
        "are the sequences in a step, is what memory allows, with blocks of 1 all of it.",
        "Held and empty is the same share as under C1, of fewer requests, so that sequences are "
        "younger and L is smaller. The law stands there.",
        f"The kernel is the compiled one for CPUs: {NUM_SEQS} sequences of {CONTEXT} keys, "
        f"{NUM_HEADS} heads, {NUM_KV_HEADS} of K and V with {HEAD_DIM} numbers, blocks in a random "
        "order; its result is the same, bit for bit, for every block size.",
        *(f"{w.name}, {counted(len(w), 'request')}, {w.source}." for w in workloads),
    )
