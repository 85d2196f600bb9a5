"""The engine beside its peer on the same work, in turns; reports medians, spread and ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from .work import Work
from .worker import Timing, Worker

TESTS = ("single", "mixed", "prefix")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one engine: the median of several rounds, and how far they lay apart."""

    test: str
    engine: str
    unit: str  # "tok/s": larger is better; "ms" and "x": as they say
    values: tuple[float, ...]
    share: float  # the smallest part of the CPU that any round got

    @property
    def median(self) -> float:
        """The figure to quote."""
        return median(self.values)

    @property
    def spread(self) -> float:
        """Largest over smallest, minus 1."""
        return max(self.values) / min(self.values) - 1


def measure(
    workers: list[Worker], work: Work, tests: list[str], rounds: int, say: Callable[[str], None]
) -> list[Figure]:
    """Run every test on every worker, one worker after the other, ``rounds`` times.

    The first round warms up and does not count.
    """
    figures: list[Figure] = []
    for test in tests:
        samples: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        for i in range(rounds + 1):
            for worker in workers:
                say(f"{test}: {worker.name}, " + (f"round {i} of {rounds}" if i else "warm-up"))
                for name, unit, value, share in _MEASURES[test](worker, work):
                    if i:
                        samples.setdefault((name, worker.name, unit), []).append((value, share))
        for (name, engine, unit), pairs in samples.items():
            values, shares = zip(*pairs)
            figures.append(Figure(name, engine, unit, values, min(shares)))
    return figures


def ratios(figures: list[Figure], ours: str = "minipaged") -> list[tuple[str, str, float | None]]:
    """For each test and peer, how many times better we are; None if the spread swallows it."""
    rows = []
    for figure in figures:
        own = next(f for f in figures if f.test == figure.test and f.engine == ours)
        if figure.engine != ours:
            better = own.median / figure.median
            better = 1 / better if figure.unit == "ms" else better
            clear = abs(better - 1) > max(own.spread, figure.spread) / 2
            rows.append((figure.test, figure.engine, better if clear else None))
    return rows


Measures = list[tuple[str, str, float, float]]  # name, unit, value, share of the CPU


def _single(worker: Worker, work: Work) -> Measures:
    """Decode speed without the prompt: the time of all tokens less that of the first."""
    count = work.single[1]
    first, whole = worker.call("single", 1), worker.call("single", count)
    _expect(worker, len(whole.value) == count and whole.value[0] == first.value[0], whole)
    speed = (count - 1) / (whole.seconds - first.seconds)
    return [
        ("single request, greedy decode", "tok/s", speed, whole.share),
        ("single request, time to first token", "ms", first.seconds * 1e3, first.share),
    ]


def _mixed(worker: Worker, work: Work) -> Measures:
    timing = worker.call("mixed")
    _expect(worker, timing.value == work.num_mixed_outputs, timing)
    speed = timing.value / timing.seconds
    return [(f"{len(work.mixed)} mixed requests, output", "tok/s", speed, timing.share)]


def _prefix(worker: Worker, work: Work) -> Measures:
    """Time to first token of requests that share a prefix, computed and found."""
    cold = [worker.call("first_token", suffix, False) for suffix in work.suffixes]
    worker.call("first_token", work.suffixes[0], True)  # leaves the prefix behind
    warm = [worker.call("first_token", suffix, True) for suffix in work.suffixes]
    same = sum(a.value == b.value for a, b in zip(cold, warm))
    _expect(worker, same >= len(cold) - 1, warm[0])
    cold_ms, warm_ms = (median(t.seconds for t in ts) * 1e3 for ts in (cold, warm))
    share = min(t.share for t in cold)
    return [
        ("shared prefix, time to first token, cold", "ms", cold_ms, share),
        ("shared prefix, time to first token, warm", "ms", warm_ms, share),
        ("shared prefix, cold / warm", "x", cold_ms / warm_ms, share),
    ]


_MEASURES: dict[str, Callable[[Worker, Work], Measures]] = {
    "single": _single,
    "mixed": _mixed,
    "prefix": _prefix,
}


def _expect(worker: Worker, right: bool, timing: Timing) -> None:
    if not right:
        value: Any = timing.value
        raise RuntimeError(f"{worker.name} did not do the work it was given: {value!r:.200}")
