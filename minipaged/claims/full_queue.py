"""Every kind of memory under a full queue: all requests are there from the beginning.

Then memory is what limits, as long as somebody waits; several claims look at the same outcomes, so
each is simulated once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from .claim import Context
from .generators import sharegpt_like
from .managers import MANAGERS
from .outcome import Outcome, Setting
from .own_trace import manager_for
from .simulator import simulate
from .verdicts import counted
from .workload import Workload

SETTING = Setting(at_once=True)
LEAST_QUEUED = 0.5  # share of the time in which somebody must wait


def crowd(context: Context) -> Workload:
    """The conversations that wait in the claims about memory and about throughput."""
    return sharegpt_like(120 if context.quick else 800, seed=context.seed)


def full_queue(workload: Workload, context: Context) -> dict[str, Outcome]:
    """What comes of it, by manager."""
    outcomes = {}
    for name in MANAGERS:
        context.tell(f"{workload.name}, all at once, {name}")
        outcomes[name] = _served(workload, name)
    return outcomes


@lru_cache(maxsize=32)
def _served(workload: Workload, name: str) -> Outcome:
    return simulate(workload, manager_for(workload, name), setting=SETTING)


def without_queue(workload: Workload, outcomes: Mapping[str, Outcome]) -> str | None:
    """What to say of a workload that is too small to fill the memory; None: it is not.

    While the queue is short-lived, what is in the pool are prompts that were admitted just now.
    """
    shares = {name: outcome.queued_share for name, outcome in outcomes.items()}
    idle = [f"{name} {share:.0%}" for name, share in shares.items() if share < LEAST_QUEUED]
    if not idle:
        return None
    return (
        f"{workload.name}, {counted(len(workload), 'request')}, not measured: somebody must wait "
        f"for {LEAST_QUEUED:.0%} of the time, so that memory is what limits, and here that was "
        f"({', '.join(idle)}); more requests would fill it."
    )
