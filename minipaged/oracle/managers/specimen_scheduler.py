"""A scheduler to plant faults in, over the specimen's pool; first come, first served.

Every method is a place where the museum can plant a fault.
"""

# ruff: noqa: D102 - what each method means is said in ``protocol``

from __future__ import annotations

from dataclasses import dataclass

from .contract import Size
from .protocol import Plan
from .specimen_pool import Pool


@dataclass
class Job:
    """One request in the scheduler."""

    name: str
    order: int
    tokens: list[int]
    stop: int  # tokens at which it is finished
    key: str | None


class Scheduler:
    """First come, first served, over a ``Pool``; speaks the protocol of ``SchedulerAdapter``."""

    pool_class = Pool

    def __init__(self, size: Size):
        self.size, self.pool = size, self.pool_class(size)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.work: list[tuple[Job, int]] = []
        self.copies: list[tuple[int, int]] = []
        self.num_taken = 0

    def add(
        self, name: str, tokens: list[int], max_tokens: int, key: str | None, num_samples: int
    ) -> None:
        needed = self.blocks_ever(tokens, max_tokens)
        if not tokens or max_tokens < 1 or needed > self.size.num_blocks:
            raise ValueError(f"{needed} blocks needed, the pool has {self.size.num_blocks}")
        self.num_taken += 1
        stop = len(tokens) + max_tokens
        self.waiting.append(Job(name, self.num_taken, tokens, stop, key))

    def blocks_ever(self, tokens: list[int], max_tokens: int) -> int:
        return self.pool.blocks_for(len(tokens) + max_tokens - 1)

    def left(self, job: Job) -> int:
        return len(job.tokens) - self.pool.entries[job.name].computed

    def step(self) -> Plan:
        self.work, self.copies = [], []
        preempted = False
        for job, count in sorted(self.shares(), key=self.memory_order):
            while job in self.running:
                copies = self.pool.reserve([(job.name, job.tokens, count)])
                if copies is not None:
                    self.copies += copies
                    self.work.append((job, count))
                    break
                self.preempt(self.victim())
                preempted = True
        if not preempted:
            self.admit()
        entries = self.pool.entries
        work = [(j.name, entries[j.name].computed, entries[j.name].reserved) for j, _ in self.work]
        return Plan(work, self.copies)

    def memory_order(self, share: tuple[Job, int]) -> int:
        return share[0].order

    def turn(self) -> list[Job]:
        """The oldest, then single tokens, then prompts."""
        rest = sorted(self.running[1:], key=lambda job: self.left(job) > 1)
        return [*self.running[:1], *rest]

    def shares(self) -> list[tuple[Job, int]]:
        budget, shares = self.size.budget, []
        singles = sum(self.left(job) == 1 for job in self.running[1:])
        for job in self.turn()[: self.size.max_seqs]:
            most = budget if shares else max(1, budget - singles)
            count = min(self.left(job), most)
            if count:
                shares.append((job, count))
            budget = self.spend(budget, count)
        return shares

    def spend(self, budget: int, count: int) -> int:
        return budget - count

    def victim(self) -> Job:
        return self.running[-1]

    def preempt(self, job: Job) -> None:
        self.pool.free(job.name)
        self.running.remove(job)
        self.requeue(job)

    def requeue(self, job: Job) -> None:
        self.waiting.append(job)
        self.waiting.sort(key=lambda job: job.order)

    def admit(self) -> None:
        budget = self.size.budget - sum(count for _, count in self.work)
        while self.waiting and budget and len(self.work) < self.size.max_seqs:
            job = self.waiting[0]
            known = self.pool.known(job.tokens, self.pool.root(job.key))
            if not self.fits(job, known):
                break
            hit = self.pool.add(job.name, job.tokens, job.key, budget)
            if hit is None:
                break
            self.running.append(self.waiting.pop(0))
            count = min(budget, len(job.tokens) - hit)
            self.work.append((job, count))
            budget = self.spend(budget, count)

    def fits(self, job: Job, known: list[int]) -> bool:
        return self.pool.has_room(self.pool.blocks_for(len(job.tokens)), known)

    def feed(self, tokens: dict[str, list[int]]) -> list[str]:
        for job, _ in self.work:
            self.pool.commit(job.name, job.tokens, self.pool.entries[job.name].reserved)
            job.tokens = [*job.tokens, *tokens.get(job.name, ())]
        finished = [job for job in self.running if self.is_finished(job)]
        for job in finished:
            self.finish(job)
        return [job.name for job in finished]

    def is_finished(self, job: Job) -> bool:
        return len(job.tokens) >= job.stop

    def finish(self, job: Job) -> None:
        self.running.remove(job)
        self.pool.free(job.name)

    def abort(self, name: str) -> None:
        for queue in (self.running, self.waiting):
            queue[:] = [job for job in queue if job.name != name]
        self.pool.free(name)

    def rollback(self) -> None:
        for job, _ in self.work:
            self.pool.cancel(job.name)

    def tables(self) -> dict[str, list[int]]:
        return self.pool.tables()

    def num_free(self) -> int:
        return self.pool.num_free()

    def reset(self) -> None:
        self.pool.reset()
