"""Finds how many steps can be taken at once, because nothing can happen between them.

    step        1    2    3    4    5          everybody gets a token in each of them:
    A           .    .    .    .    end        nobody ends before the last,
    B           .    .    .    .    .          nobody comes in, nobody has to leave
    who waits   did not fit before, and nothing was given back since

Changes nothing: the simulator then asks the scheduler for all of these tokens in one step.
"""

from __future__ import annotations

from collections import Counter

from minipaged.core import BlockPool
from minipaged.engine.scheduler import Scheduler, Step
from minipaged.engine.sequence import Sequence

from .cost import CostModel, Load
from .occupancy import Bounds, contiguous_bounds, paged_bounds
from .steps import num_held


class Leaps:
    """What is known of the steps to come.

    Attributes:
        nobody_fits: the oldest who waits did not fit, and nothing was given back since.
    """

    def __init__(self, scheduler: Scheduler, cost: CostModel, is_paged: bool):
        self.scheduler, self.cost, self.is_paged = scheduler, cost, is_paged
        self.nobody_fits = False

    def learn(self, step: Step) -> None:
        """Whether this step, before anybody ends, had no room for the oldest who waits.

        The scheduler tried to admit him unless somebody had to leave, or the step's budget was
        used up; then it is used up in the next steps too, and each is taken by itself.
        """
        decodes = all(count == 1 for _, count in step.work)
        self.nobody_fits = bool(self.scheduler.waiting) and decodes and not step.preempted

    def loads(self, now: float, next_arrival: float) -> list[Load]:
        """Of the steps that can be taken at once, the next one included; empty: no more than it."""
        scheduler = self.scheduler
        if not scheduler.running or (scheduler.waiting and not self.nobody_fits):
            return []
        most, num_seqs = self._fewest_to_come(), len(scheduler.running)
        until = float("inf") if scheduler.waiting else next_arrival
        attended, loads = sum(len(s.token_ids) for s in scheduler.running), list[Load]()
        while len(loads) < most and (not loads or now < until):
            loads.append(Load(num_seqs, attended, num_seqs))
            now += self.cost.seconds(loads[-1])
            attended += num_seqs
        while len(loads) > 1 and not self._has_room(len(loads)):
            del loads[len(loads) // 2 :]
        return loads

    def bounds(self, num_steps: int) -> list[Bounds]:
        """What the pool holds in each of the steps, before they are scheduled."""
        running, block_size = self.scheduler.running, self.scheduler.block_size
        tokens, num_seqs = sum(s.table.num_tokens for s in running), len(running)
        if not self.is_paged:
            now = contiguous_bounds((s.table, final_len(s)) for s in running)
            return [now._replace(tokens=tokens + num_seqs * i) for i in range(1, num_steps + 1)]
        # A sequence whose tokens fill its blocks takes a new one in the next step, others later.
        take = Counter(-s.table.num_tokens % block_size for s in running)
        held, bounds = num_held(self.scheduler.pool), []
        for i in range(num_steps):
            held += take[i % block_size]
            tokens += num_seqs
            bounds.append(paged_bounds(tokens, held * block_size))
        return bounds

    def _fewest_to_come(self) -> int:
        """Steps until somebody ends; 0 if not everybody is about to get a token."""
        running = self.scheduler.running
        if any(s.num_remaining != 1 for s in running):
            return 0
        to_come = min(s.request.max_tokens + s.num_prompt - len(s.token_ids) for s in running)
        return min(to_come, self.scheduler.max_num_batched_tokens // len(running))

    def _has_room(self, num_steps: int) -> bool:
        tables = (s.table for s in self.scheduler.running)
        needed = sum(table.num_missing_blocks(num_steps) for table in tables)
        return needed <= self.scheduler.pool.num_free


def present_bounds(scheduler: Scheduler, pool: BlockPool, is_paged: bool) -> Bounds:
    """What the pool holds now, once a step has its slots."""
    if not is_paged:
        return contiguous_bounds((s.table, final_len(s)) for s in scheduler.running)
    tokens = sum(s.table.num_reserved for s in scheduler.running)
    return paged_bounds(tokens, num_held(pool) * scheduler.block_size)


def final_len(sequence: Sequence) -> int:
    """Positions that it will have in the end; the last token has none."""
    return sequence.num_prompt + sequence.request.max_tokens - 1
