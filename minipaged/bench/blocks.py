"""Times the bookkeeping alone: no model, no attention; what a step costs in Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from minipaged.cache import PagedBatch
from minipaged.core import BlockPool, BlockTable, root_hash
from minipaged.engine.params import SamplingParams
from minipaged.engine.scheduler import Scheduler
from minipaged.engine.sequence import Request, Sequence

BLOCK_SIZE = 16


def decode_step_ms(num_seqs: int = 256, num_blocks: int = 8192, steps: int = 64) -> float:
    """Milliseconds of bookkeeping in one decode step: schedule, reserve, batch, commit.

    Over ``steps`` steps every sequence starts new blocks and publishes full ones several times.
    """
    pool, root = BlockPool(num_blocks), root_hash()
    scheduler = Scheduler(pool, BLOCK_SIZE, max_num_seqs=num_seqs, max_num_batched_tokens=10**6)
    for i in range(num_seqs):
        prompt = [i, *range(100 + i % BLOCK_SIZE)]
        params = SamplingParams(max_tokens=None)
        request = Request(str(i), i, None, prompt, params, 10**6, frozenset(), root)
        scheduler.add(Sequence(request, 0, prompt, BlockTable(pool, BLOCK_SIZE, root)))
    scheduler.commit(scheduler.schedule())
    seconds = []
    for _ in range(steps):
        for sequence in scheduler.running:
            sequence.token_ids.append(7)
        started = time.perf_counter()
        step = scheduler.schedule()
        PagedBatch.build([s.table for s, _ in step.work])
        scheduler.commit(step)
        seconds.append(time.perf_counter() - started)
        assert len(step.work) == num_seqs
    return median(seconds) * 1e3


def operation_us(num_blocks: int, repeats: int = 2000) -> dict[str, float]:
    """Microseconds per block of each operation, in a pool where half of the blocks are cached."""
    pool = BlockPool(num_blocks)
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
