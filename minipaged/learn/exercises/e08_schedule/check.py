"""Judges ``schedule`` step by step on small workloads, those of few requests first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from types import ModuleType

from minipaged.core import BlockPool, BlockTable
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

from .starter import Sequence

BLOCK_SIZE = 2
LENGTHS = tuple(product((1, 3, 4), (1, 3)))  # of prompt and answer
MOST_STEPS = 200
Requests = tuple[tuple[int, int, int], ...]  # first step, length of the prompt and of the answer


def workloads() -> Iterator[tuple[int, int, Requests]]:
    """Blocks of the pool, tokens of a step, and up to three requests."""
    for size in (1, 2, 3):
        for lengths in product(LENGTHS, repeat=size):
            for later in combinations_with_replacement((0, 1, 2)[: 5 - size], size - 1):
                requests = tuple((t, *pair) for t, pair in zip((0, *later), lengths))
                yield from ((n, b, requests) for n, b in product((3, 4), (1, 2, 5)))


class Trial:
    """One workload under the learner's ``schedule``; every step is judged and written down."""

    def __init__(self, module: ModuleType, num_blocks: int, budget: int, requests: Requests):
        self.schedule, self.budget, self.requests = module.schedule, budget, requests
        self.pool = BlockPool(num_blocks)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.log: list[str] = []
        self.num_preempted = 0

    def run(self) -> None:
        """Until everybody is done."""
        now = 0
        while now == 0 or self.running or self.waiting or now <= self.requests[-1][0]:
            if now == MOST_STEPS:
                self.fail(f"after {now} steps they are not done: {self.running + self.waiting}")
            for name, (first, prompt_len, _) in zip("ABC", self.requests):
                if first == now:
                    table = BlockTable(self.pool, BLOCK_SIZE)
                    self.waiting.append(Sequence(name, prompt_len, table))
            self.step()
            now += 1

    def step(self) -> None:
        """Let the learner decide, judge it, and do what the engine does afterwards."""
        ran, waited = list(self.running), list(self.waiting)
        computed = {s: s.table.num_tokens for s in ran}
        self.log.append(f"step {len(self.log) + 1}: running {ran}, waiting {waited}")
        work = self.schedule(self.running, self.waiting, self.pool, self.budget)
        same_form(work, [], "schedule(...)")
        self.log[-1] += f" -> work {work}"
        self.judge_work(work)
        self.judge_queues(ran, waited)
        for s in ran:
            if s in self.running and s.table.num_tokens < computed[s]:
                self.fail(f"{s.name} had to leave and came back in the same step, all in vain")
        self.judge_memory(dict(work), ran, waited)
        self.judge_age(dict(work), ran, waited)
        self.num_preempted += sum(s in self.waiting for s in ran)
        self.advance(dict(work))

    def advance(self, work: dict[Sequence, int]) -> None:
        """Commit, sample, and take out who is done."""
        for s in work:
            s.table.commit([0] * s.num_tokens)
            if s.num_remaining == 0:
                s.num_tokens += 1
                _, prompt_len, output_len = self.requests["ABC".index(s.name)]
                if s.num_tokens == prompt_len + output_len:
                    self.running.remove(s)
                    s.table.release()

    # --- the laws --------------------------------------------------------------------------------

    def judge_work(self, work: list[tuple[Sequence, int]]) -> None:
        """What is computed is possible, and within the budget."""
        names = [s.name for s, _ in work]
        total = sum(count for _, count in work)
        if len(set(names)) < len(names):
            self.fail(f"a sequence is twice in the work: {names}")
        for s, count in work:
            if not 1 <= count <= s.num_remaining:
                self.fail(f"{s.name} is to compute {tokens(count)}, and lacks {s.num_remaining}")
        if total > self.budget:
            self.fail(f"{tokens(total)} in one step, the budget is {self.budget}")

    def judge_queues(self, ran: list[Sequence], waited: list[Sequence]) -> None:
        """Everybody stands in one queue, in order of age."""
        for s in ran + waited:
            places = self.running.count(s) + self.waiting.count(s)
            if places != 1:
                how = "neither runs nor waits" if places == 0 else "stands in the queues twice"
                self.fail(f"{s.name} {how} after this step")
        for name, queue in (("running", self.running), ("waiting", self.waiting)):
            if [s.name for s in queue] != sorted(s.name for s in queue):
                self.fail(f"{name} is no longer in order of age: {queue}")
        for late in self.running:
            for early in self.waiting:
                if early.name < late.name:
                    how = "had to leave" if early in ran else "waits"
                    self.fail(f"{early.name} {how}, and {late.name}, which is newer, runs")

    def judge_memory(
        self, work: dict[Sequence, int], ran: list[Sequence], waited: list[Sequence]
    ) -> None:
        """Blocks are held by those who run, and slots reserved for those who compute."""
        for s in self.waiting:
            if s.table.block_ids:
                self.fail(f"{s.name} waits, and still holds {blocks(len(s.table.block_ids))}")
        for s in self.running:
            slots = s.table.num_reserved - s.table.num_tokens
            if slots != work.get(s, 0):
                self.fail(
                    f"{s.name} computes {tokens(work.get(s, 0))}, but has {slots} slots reserved"
                )
        self.pool.check()
        num_free = self.pool.num_free
        for s in [s for s in ran if s in self.waiting][:1]:  # who left last, if newest goes first
            if needed(s) <= num_free:
                self.fail(f"{s.name} had to leave without need: all it has fits {blocks(num_free)}")
        for s in self.running:
            missing = s.table.num_missing_blocks(s.num_remaining)
            if s in waited and missing > num_free:
                self.fail(
                    f"{s.name} was let in and needs {blocks(missing)} more, {num_free} are free"
                )

    def judge_age(
        self, work: dict[Sequence, int], ran: list[Sequence], waited: list[Sequence]
    ) -> None:
        """The older are served first, and nothing is left that somebody could have used."""
        left = self.budget - sum(work.values())
        for s in ran:
            lacks = s.num_remaining - work.get(s, 0)
            newer = [other.name for other in work if other.name > s.name]
            if s in self.running and lacks and newer:
                self.fail(f"{newer[0]} was served, and {s.name}, which is older, lacks {lacks}")
            if s in self.running and lacks and left:
                self.fail(f"{s.name} still lacks {tokens(lacks)}, and the budget has {left} left")
        for s in self.waiting[:1]:
            if s in waited and left and needed(s) <= self.pool.num_free:
                self.fail(
                    f"{s.name} waits, though it would fit: it needs {blocks(needed(s))}, "
                    f"{self.pool.num_free} are free, and the budget has {left} left"
                )

    def fail(self, headline: str) -> None:
        """Reject, with all steps so far."""
        reject(headline, *self.log)


def needed(s: Sequence) -> int:
    """Blocks of all its present tokens."""
    return -(-s.num_tokens // BLOCK_SIZE)


def tokens(number: int) -> str:
    """A number of tokens in words."""
    return f"{number} token{'s' * (number != 1)}"


def blocks(number: int) -> str:
    """A number of blocks in words."""
    return f"{number} block{'s' * (number != 1)}"


def check(module: ModuleType) -> str | None:
    """Judge every step of every workload in which each request fits the pool alone."""
    num_workloads = num_steps = num_preempted = 0
    for num_blocks, budget, requests in workloads():
        if any(-(-(p + o - 1) // BLOCK_SIZE) > num_blocks for _, p, o in requests):
            continue
        told = [
            f"{name}: prompt {p}, answer {o}, comes in step {t + 1}"
            for name, (t, p, o) in zip("ABC", requests)
        ]
        trying(f"{num_blocks} blocks of {BLOCK_SIZE}, budget {budget}", *told)
        trial = Trial(module, num_blocks, budget, requests)
        trial.run()
        num_workloads += 1
        num_steps += len(trial.log)
        num_preempted += trial.num_preempted
    return f"{num_workloads:,} workloads, {num_steps:,} steps, {num_preempted:,} preemptions"


ADMISSION = """    while waiting and budget:
        newcomer = waiting[0]
        if newcomer.table.num_missing_blocks(newcomer.num_remaining) > pool.num_free:
            break
        running.append(waiting.pop(0))
"""
OVERTAKING = """    for newcomer in list(waiting):
        missing = newcomer.table.num_missing_blocks(newcomer.num_remaining)
        if not budget or missing > pool.num_free:
            continue
        waiting.remove(newcomer)
        running.append(newcomer)
"""

EXERCISE = Exercise(
    name="schedule",
    title="Decide one step",
    function="schedule",
    lines=24,
    hints=(
        "Two loops: over those who run, oldest first, and then over those who wait, as long as "
        "there is budget. In both, `count = min(sequence.num_remaining, budget)`.",
        "If `reserve` raises `OutOfBlocks`, take `running.pop()` out, release its table, put it "
        "back with `waiting.insert(0, ...)`, and try again; unless the one you took out is the "
        "one you are serving.",
        "Loop over `list(running)`, since `running` changes, and serve only who is still in it: "
        "`while count and sequence in running: try: ... except OutOfBlocks: ... else: ...; break`.",
        "A newcomer fits if `table.num_missing_blocks(num_remaining) <= pool.num_free`: all that "
        "it lacks counts, not only what it computes in this step.",
    ),
    learnt="One rule serves prompts, chunks, answers and recomputation: the running first, in "
    "order of age; the newest makes room; so the oldest always gets on, and nobody waits for ever.",
    check=check,
    wrong=(
        Wrong(
            "the oldest leaves",
            "victim = running.pop()",
            "victim = running.pop(0)",
            says="had to leave, and",
        ),
        Wrong(
            "who had to leave goes to the end of the queue",
            "waiting.insert(0, victim)",
            "waiting.append(victim)",
            says="B had to leave, and C, which is newer, runs",
        ),
        Wrong(
            "who had to leave keeps its blocks",
            "                victim.table.release()\n",
            "",
            says="waits, and still holds",
        ),
        Wrong(
            "who has made room for itself is not served",
            "                waiting.insert(0, victim)\n",
            "                waiting.insert(0, victim)\n                break\n",
            says="A still lacks 1 token, and the budget has",
        ),
        Wrong(
            "all newer ones leave",
            "            except OutOfBlocks:\n",
            "            except OutOfBlocks:\n"
            "                while len(running) > running.index(sequence) + 2:\n"
            "                    running[-1].table.release()\n"
            "                    waiting.insert(0, running.pop())\n",
            says="came back in the same step",
        ),
        Wrong(
            "who had to leave is served all the same",
            "while count and sequence in running:",
            "while count:",
            says="waits, and still holds",
        ),
        Wrong(
            "prompts go before answers",
            "for sequence in list(running):",
            "for sequence in sorted(running, key=lambda s: s.num_remaining == 1):",
            says="which is older, lacks",
        ),
        Wrong(
            "the budget of newcomers is not used up",
            "        budget -= count\n    return work",
            "    return work",
            says="tokens in one step, the budget is",
        ),
        Wrong(
            "the first chunk has to fit",
            "num_missing_blocks(newcomer.num_remaining)",
            "num_missing_blocks(min(newcomer.num_remaining, budget))",
            says="came back in the same step",
        ),
        Wrong(
            "a new batch when the old one is done",
            "while waiting and budget:",
            "while waiting and budget and not any(s.table.num_tokens for s in running):",
            says="waits, though it would fit",
        ),
        Wrong(
            "the last block stays free",
            "> pool.num_free:",
            ">= pool.num_free:",
            says="waits, though it would fit",
        ),
        Wrong("the small pass the large", ADMISSION, OVERTAKING, says="C, which is newer, runs"),
    ),
)
