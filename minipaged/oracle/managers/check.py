"""Judges anyone's block manager: a shadow K/V cache, programs, and what must hold after each act.

The manager is asked to do what a server asks, on a pool of a few blocks. Beside it, a shadow cache
holds for every slot which whole prefix was written there. Nobody's tensors are needed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ..guard import KernelFault, guarded
from ..report import Failure, Report
from .contract import ManagerContract, Size
from .directed import for_pools, for_schedulers
from .judge import Broken, Judge
from .pool_judge import PoolJudge
from .programs import Program, programs, shrunk
from .protocol import OPTIONAL_POOL, OPTIONAL_SCHEDULER
from .scheduler_judge import SchedulerJudge

SECONDS_PER_PROGRAM = 2.0
"""A program takes milliseconds (a few directed ones have large pools); a longer one hangs."""

SECONDS_TO_LOAD = 60.0
"""The first one may import half a framework."""

SECONDS_TO_SHRINK = 1.5
"""For one failure."""


@dataclass
class Verdict:
    """How one program ended: well, or with the law that was broken and the story up to there."""

    law: str | None = None
    message: str = ""
    story: list[str] = field(default_factory=list)


@dataclass
class Session:
    """One judgement: what is counted over all programs."""

    make: Callable[[Size], Any]
    contract: ManagerContract
    is_scheduler: bool
    judged: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    cases: int = 0

    def run(self, program: Program) -> Verdict:
        """Carry a program out on a fresh manager; nothing that it does gets past this."""
        self.cases += 1
        judge: Judge | None = None

        def carry_out() -> Verdict:
            nonlocal judge
            try:
                adapter = self.make(program.size)
                kind = SchedulerJudge if self.is_scheduler else PoolJudge
                judge = kind(adapter, program.size, self.contract, self.judged)
                for name, *args in program.acts:
                    getattr(judge, name)(*args)
                judge.end()
            except Broken as broken:
                return Verdict(broken.law, broken.message)
            except Exception as error:
                told = f"what it told could not be used: {type(error).__name__}: {error}"
                return Verdict("does not crash", told)
            return Verdict()

        try:
            verdict = guarded(carry_out, _seconds_for(program))
        except KernelFault as fault:
            law = "comes back" if fault.kind == "hung" else "does not crash"
            verdict = Verdict(law, fault.text)
        if judge is not None:
            self.calls += judge.calls
            verdict.story = judge.story
        return verdict


def check_block_manager(
    make: Callable[[Size], Any],
    contract: ManagerContract | None = None,
    *,
    name: str | None = None,
    max_examples: int = 500,
    seed: int = 0,
    deadline_s: float = 12.0,
    max_failures: int = 3,
    shrink: bool = True,
) -> Report:
    """Drive a block manager with programs and judge every step of it; never raises.

    Directed programs come first, one per known class of fault, then random ones. What fails is
    shrunk and told step by step in the failure's ``picture``.

    Args:
        make: Makes a fresh adapter (see ``protocol``) of the size it is given.
        contract: What the manager promises; the default is everything.
        name: Of the manager, for the report.
        max_examples: Random programs at most.
        seed: Of the random programs; the same seed gives the same programs.
        deadline_s: Stop drawing new programs after this time.
        max_failures: Different laws to report at most; the search stops there.
        shrink: Whether to look for a shorter program that fails in the same way.

    Returns:
        A report whose ``judged`` counts how often each law was applied, and whose ``not_judged``
        says what the manager cannot do or does not promise.

    Examples:
        >>> from minipaged.oracle.managers.ours import CORE, CoreAdapter
        >>> check_block_manager(CoreAdapter, CORE, max_examples=5).passed
        True
    """
    contract = contract or ManagerContract()
    subject = name or getattr(make, "__name__", type(make).__name__)
    report = Report(subject, "block manager", "adapter")
    began = time.perf_counter()
    try:
        probe = guarded(lambda: make(Size(8, 2)), SECONDS_TO_LOAD)
    except KernelFault as fault:
        report.failures.append(Failure("does not crash", 0, f"making a manager {fault.text}"))
        return report
    session = Session(make, contract, callable(getattr(probe, "step", None)))
    found: dict[str, Failure] = {}

    def late() -> bool:
        return time.perf_counter() - began > deadline_s

    def judge(program: Program) -> bool:
        """Run one program; True: enough is known."""
        verdict = session.run(program)
        if verdict.law is not None and verdict.law not in found:
            took = time.perf_counter() - began
            found[verdict.law] = _failure(session, program, verdict.law, took, shrink)
        return len(found) >= max_failures or late()

    is_enough = any(judge(program) for program in _directed(session, probe))
    if not is_enough and not found:
        _draw(session, probe, judge, seed, max_examples)
    report.failures = list(found.values())
    report.judged, report.calls, report.cases = dict(session.judged), session.calls, session.cases
    report.not_judged = _not_judged(session, probe)
    report.seconds = time.perf_counter() - began
    return report


def _seconds_for(program: Program) -> float:
    return SECONDS_PER_PROGRAM * (1 + min(program.size.num_blocks, 1000) / 100)


def _directed(session: Session, probe: Any) -> Iterable[Program]:
    """The directed programs, on pools that this contract allows."""
    extra, least = session.contract.reserved_blocks, session.contract.min_blocks
    for program in (for_schedulers if session.is_scheduler else for_pools)(session.contract):
        size = program.size
        if size.block_size < session.contract.min_block_size or size.num_blocks < least:
            continue
        if size.window and not session.contract.windows:
            continue
        if size.headroom and not session.contract.headroom:
            continue
        if size.num_host_blocks and not _has_host(session, probe):
            continue
        yield replace(program, size=replace(size, num_blocks=size.num_blocks + extra))


def _has_host(session: Session, probe: Any) -> bool:
    return callable(getattr(probe, "host_tables" if session.is_scheduler else "swap_out", None))


def _draw(
    session: Session, probe: Any, judge: Callable[[Program], bool], seed: int, max_examples: int
) -> None:
    """Random programs, until enough is known or time is up."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, settings

    strategy = programs(
        session.contract, scheduler=session.is_scheduler, host=_has_host(session, probe)
    )
    is_enough = False

    @hypothesis.seed(seed)
    @settings(
        max_examples=max_examples,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
    )
    @hypothesis.given(strategy)
    def draw(program: Program) -> None:
        nonlocal is_enough
        if not is_enough:
            is_enough = judge(program)

    draw()


def _failure(session: Session, program: Program, law: str, seconds: float, shrink: bool) -> Failure:
    """The shortest program found that breaks the same law, told as a story."""
    calls, cases, judged = session.calls, session.cases, session.judged.copy()
    until = time.perf_counter() + SECONDS_TO_SHRINK * shrink
    small = shrunk(program, lambda p: session.run(p).law == law, until)
    verdict = session.run(small)
    session.calls, session.cases = calls, cases
    session.judged.clear()
    session.judged.update(judged)
    steps = [f"{i:3} {line}" for i, line in enumerate(verdict.story, 1)]
    picture = "\n".join([f"a pool of {small.size}", *steps, f"    here: {verdict.message}"])
    return Failure(law, 0, verdict.message, small, picture, calls, seconds)


def _not_judged(session: Session, probe: Any) -> list[str]:
    optional = OPTIONAL_SCHEDULER if session.is_scheduler else OPTIONAL_POOL
    missing = [
        f"no {method}: {told.partition('; ')[2] or told}"
        for method, told in optional.items()
        if not callable(getattr(probe, method, None))
    ]
    return [*session.contract.not_promised(), *missing]
