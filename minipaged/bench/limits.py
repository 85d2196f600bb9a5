"""How fast this machine reads, copies and multiplies; all other figures stand beside these."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from minipaged.huge_pages import ask_for_huge_pages

from .share import cpu_share
from .stats import Figure

READ_BYTES = 2**28  # far more than the caches of two processors
MATRIX = 1024
ENGINE = "this machine"


@dataclass(frozen=True)
class Limits:
    """The best that was seen, in bytes and floating-point operations per second."""

    read: float
    copy: float
    matrix: float


def limits_of(figures: list[Figure]) -> Limits:
    """What all threads together reach, out of the figures of ``measure_limits``."""
    best = {f.test: max(f.values) * 1e9 for f in figures if f.test.endswith(", all threads")}
    return Limits(*(best[f"{name}, all threads"] for name in ("read", "copy", "matrix")))


def measure_limits(rounds: int = 5, num_bytes: int = READ_BYTES, size: int = MATRIX):
    """Reading, copying and float32 products, on one thread and on all.

    Args:
        rounds: that count, after one that does not.
        num_bytes: of the array that is read; a copy moves half of it to the other half.
        size: of the square matrices.

    Returns:
        Figures in GB/s (a copy counts what it reads and what it writes) and GFLOP/s.
    """
    threads, figures = torch.get_num_threads(), []
    works = _works(num_bytes, size)
    try:
        for count, name in ((1, "1 thread"), (threads, "all threads")):
            torch.set_num_threads(count)
            for test, unit, amount, ways in works:
                values, share = _rates(ways, amount, rounds)
                figures.append(Figure(f"{test}, {name}", ENGINE, unit, values, share))
    finally:
        torch.set_num_threads(threads)
    return figures


def joined(before: list[Figure], after: list[Figure]) -> list[Figure]:
    """The limits measured twice, as one: their spread is how much the machine itself drifted."""
    return [
        Figure(a.test, a.engine, a.unit, a.values + b.values, min(a.share or 0, b.share or 0))
        for a, b in zip(before, after, strict=True)
    ]


def _works(num_bytes: int, size: int) -> list[tuple[str, str, float, list[Callable[[], Any]]]]:
    """Test, unit, billions of units per call, and ways to do it: the fastest counts."""
    numbers = torch.empty(num_bytes // 4)
    ask_for_huge_pages(numbers.data_ptr(), numbers.nbytes)  # a limit is what is possible
    numbers.fill_(1)
    rows, vector = numbers.view(-1, 1024), torch.ones(1024)
    half = len(numbers) // 2
    left, right = numbers[:half], numbers[half:]
    a, b = torch.ones(2, size, size)
    product = torch.empty(size, size)
    return [
        ("read", "GB/s", num_bytes / 1e9, [numbers.sum, lambda: rows @ vector, numbers.amax]),
        ("copy", "GB/s", num_bytes / 1e9, [lambda: left.copy_(right)]),
        ("matrix", "GFLOP/s", 2 * size**3 / 1e9, [lambda: torch.mm(a, b, out=product)]),
    ]


def _rates(
    ways: list[Callable[[], Any]], amount: float, rounds: int
) -> tuple[tuple[float, ...], float]:
    """Of every round the fastest way, and the smallest share of the CPU."""
    values, shares = [], []
    for i in range(rounds + 1):
        with cpu_share() as share:
            seconds = min(_seconds(way) for way in ways)
        if i:
            values.append(amount / seconds)
            shares.append(share())
    return tuple(values), min(shares)


def _seconds(way: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin
