"""Which part of the processor time that it asked for this process got; measures nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .peers.serve import waiting_seconds


def share_of(cpu_seconds: float, waiting_seconds: float) -> float:
    """1.0 is undisturbed: no thread was ready to run while others had the processor."""
    asked = cpu_seconds + waiting_seconds
    return cpu_seconds / asked if asked > 0 else 1.0


@contextmanager
def cpu_share() -> Iterator[Callable[[], float]]:
    """Around some work; what it yields says afterwards which share the work got."""
    cpu, waiting = time.process_time(), waiting_seconds()
    result: list[float] = []
    yield lambda: result[0]
    result.append(share_of(time.process_time() - cpu, max(0.0, waiting_seconds() - waiting)))
