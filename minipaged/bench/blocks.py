"""Times the bookkeeping alone: no model, no attention; what a step costs in Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from minipaged.cache import PagedBatch
from minipaged.core import BlockPool, BlockTable, root_hash
from minipaged.engine.params import SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request, Sequence

from .share import cpu_share
from .stats import Figure

BLOCK_SIZE = 16
STEPS = 64  # in which every sequence starts new blocks and publishes full ones several times
PROMPT = 100
Say = Callable[[str], None]


def measure_scale(rounds: int, say: Say, on_trial: bool = False) -> list[Figure]:
    """Microseconds per token and per operation: they must not grow with the pool or the batch."""
    figures, sizes = [], (1_000, 10_000, 100_000, 1_000_000)
    sizes = sizes[:2] if on_trial else sizes
    for num_blocks in sizes:
        for num_seqs in (1, 10, 100, 1000):
            if num_seqs * (PROMPT + BLOCK_SIZE + STEPS) // BLOCK_SIZE < num_blocks:
                name = f"decode step, per token: {num_seqs:,} running, {num_blocks:,} blocks"
                say(name)
                act = partial(_per_token, num_seqs, num_blocks)
                figures.append(_figure(name, rounds, act))
    for num_blocks in sizes:
        say(f"single operations, {num_blocks:,} blocks")
        figures += _operations(num_blocks, rounds)
    return figures


def decode_seconds(num_seqs: int, num_blocks: int, steps: int = STEPS) -> float:
    """Seconds of bookkeeping in so many decode steps: schedule, reserve, batch, commit."""
    pool, root = BlockPool(num_blocks), root_hash()
    scheduler = Scheduler(pool, BLOCK_SIZE, max_num_seqs=num_seqs, max_num_batched_tokens=10**6)
    for i in range(num_seqs):
        prompt = [i, *range(PROMPT + i % BLOCK_SIZE)]
        params = SamplingParams(max_tokens=None)
        request = Request(str(i), i, None, prompt, params, 10**6, frozenset(), root)
        scheduler.add(Sequence(request, 0, prompt, BlockTable(pool, BLOCK_SIZE, root)))
    scheduler.commit(scheduler.schedule())
    seconds = 0.0
    for _ in range(steps):
        for sequence in scheduler.running:
            sequence.token_ids.append(7)
        started = time.perf_counter()
        step = scheduler.schedule()
        PagedBatch.build([s.table for s, _ in step.work])
        scheduler.commit(step)
        seconds += time.perf_counter() - started
        assert len(step.work) == num_seqs
    return seconds


def operation_us(num_blocks: int, repeats: int = 2000) -> dict[str, float]:
    """Microseconds per block of each operation, in a pool where half of the blocks are cached."""
    pool, repeats = BlockPool(num_blocks), min(repeats, num_blocks // 2)
    for block_id in pool.allocate(num_blocks // 2):
        pool.publish(block_id, block_id.to_bytes(8, "little"), None)
        pool.release(block_id)
    found = [pool.lookup(i.to_bytes(8, "little")) or 0 for i in range(1, repeats)]

    def timed(act: Callable[[], object]) -> float:
        started = time.perf_counter()
        act()
        return (time.perf_counter() - started) / repeats * 1e6

    held: list[int] = []
    return {
        "share a cached block": timed(lambda: [pool.share(b) for b in found]),
        "release it": timed(lambda: [pool.release(b) for b in found]),
        "allocate": timed(lambda: held.extend(pool.allocate(repeats))),
        "free": timed(lambda: [pool.release(b) for b in held]),
    }


def _per_token(num_seqs: int, num_blocks: int) -> float:
    return decode_seconds(num_seqs, num_blocks) / STEPS / num_seqs * 1e6


def _figure(name: str, rounds: int, act: Callable[[], float]) -> Figure:
    with cpu_share() as share:
        values = [act() for _ in range(rounds + 1)][1:]
    return Figure(name, "minipaged", "µs", tuple(values), share())


def _operations(num_blocks: int, rounds: int) -> list[Figure]:
    with cpu_share() as share:
        columns = [operation_us(num_blocks) for _ in range(rounds + 1)][1:]
    return [
        Figure(f"{name}: {num_blocks:,} blocks", "minipaged", "µs",
               tuple(column[name] for column in columns), share())
        for name in columns[0]
    ]  # fmt: skip
