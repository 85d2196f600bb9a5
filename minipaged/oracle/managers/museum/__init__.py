"""A museum of block managers, each with one thing wrong, and how each of them dies."""

from __future__ import annotations

from dataclasses import dataclass

from . import block_faults, host_faults, prefix_faults, scheduler_faults
from .planting import FAULTS, Fault


@dataclass(frozen=True)
class Row:
    """How one fault died."""

    name: str
    kind: str
    like: str
    killed: bool
    by: str  # the law
    calls: int
    seconds: float


def run_museum(max_examples: int = 300, deadline_s: float = 10.0) -> list[Row]:
    """Judge every fault; one row each: the law that noticed it, after how many calls."""
    return [judge(fault, max_examples, deadline_s) for fault in FAULTS]


def judge(fault: Fault, max_examples: int = 300, deadline_s: float = 10.0) -> Row:
    """How one fault dies, if it does."""
    from ..check import check_block_manager

    report = check_block_manager(
        fault.maker,
        fault.contract,
        name=fault.name,
        max_examples=max_examples,
        deadline_s=deadline_s,
        max_failures=1,
        shrink=False,
    )
    first = report.failures[0] if report.failures else None
    return Row(
        fault.name,
        fault.kind,
        fault.like,
        first is not None,
        first.check if first else "nobody",
        first.calls if first else report.calls,
        first.seconds if first else report.seconds,
    )
