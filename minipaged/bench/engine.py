"""Engines on the same work, in turns (A B A B); what their figures say is decided elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .costs import Costs
from .measures import TESTS, Sample
from .stats import Figure
from .work import Work
from .worker import Declined, Failed, Worker

Say = Callable[[str], None]
OURS = "minipaged"
PAUSE = 0.25  # seconds: threads of the one before that wait by spinning have gone to sleep


class Measurement:
    """The samples of one test, as the rounds go by.

    A peer that declines or fails is left out of the rest, and ``notes`` say so; if ours fails,
    that comes through.
    """

    def __init__(self, test: str, workers: Sequence[Worker], costs: dict[str, Costs]):
        self.test, self.workers, self.costs = test, list(workers), costs
        self.samples: dict[tuple[str, str, str], list[Sample]] = {}
        self.notes: list[str] = []

    def run(self, work: Work, rounds: int, say: Say) -> None:
        """One round that warms up, and those that count."""
        for i in range(rounds + 1):
            for worker in list(self.workers):
                turn = f"round {i} of {rounds}" if i else "warm-up"
                say(f"{self.test}: {worker.name}, {turn}")
                time.sleep(PAUSE)
                for sample in self._ask(worker, work.in_round(i)):
                    if i:
                        key = sample.test, sample.unit, worker.name
                        self.samples.setdefault(key, []).append(sample)

    def figures(self) -> list[Figure]:
        """Those of a test and unit together, ours first; each says how far its tokens are ours."""
        order = list(dict.fromkeys((test, unit) for test, unit, _ in self.samples))
        names = [w.name for w in self.workers]
        keys = [(t, u, name) for t, u in order for name in names if (t, u, name) in self.samples]
        return [self._figure(*key) for key in keys]

    def _figure(self, test: str, unit: str, name: str) -> Figure:
        samples = self.samples[test, unit, name]
        last = samples[-1]
        ours = self.samples.get((test, unit, OURS))
        note = last.note
        if last.outputs and ours and name != OURS:
            note = agreement(ours[-1].outputs or [], last.outputs)
        values = tuple(sample.value for sample in samples)
        return Figure(test, name, unit, values, min(s.share for s in samples), last.limit, note)

    def _ask(self, worker: Worker, work: Work) -> list[Sample]:
        try:
            return TESTS[self.test](worker, work, self.costs[worker.name])
        except (Declined, Failed) as error:
            if isinstance(error, Failed) and worker.name == OURS:
                raise
            self.workers.remove(worker)
            self.notes.append(f"{self.test}: without {worker.name}: {_last_line(error)}")
            return []


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> str:
    """How many tokens are the same, up to the first that is not, over all outputs."""
    same = sum(_num_same(a, b) for a, b in zip(ours, theirs))
    return f"the first {same} of {sum(map(len, ours))} tokens are {OURS}'s"


def loading(workers: Sequence[Worker]) -> list[Figure]:
    """Seconds until each was there, what of that it compiled, and the memory it took in the end."""
    figures = [
        Figure("loading", w.name, "s", (w.load_seconds,), note=f"{w.version}, {w.precision}")
        for w in workers
    ]
    figures += [
        Figure("of that compiling", w.name, "s", (w.compile_seconds,))
        for w in workers
        if w.compile_seconds is not None
    ]
    return figures + [
        Figure("peak memory of the process", w.name, "MB", (w.peak_bytes / 1e6,))
        for w in workers
        if w.peak_bytes
    ]


def _num_same(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
