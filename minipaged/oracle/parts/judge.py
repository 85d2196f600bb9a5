"""How a part is judged: directed cases first, then random ones; knows no law and no subject."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from ..guard import KernelFault, guarded
from ..report import Failure, Report

Text = str | Callable[[], str]  # a callable where making the text costs something


class Broken(Exception):
    """A law did not hold for the case at hand."""

    def __init__(self, check: str, level: int, message: str, picture: str = ""):
        super().__init__(message)
        self.check, self.level, self.message, self.picture = check, level, message, picture


class Case(Protocol):
    """Inputs of one trial; as a string, their sizes."""

    def __str__(self) -> str: ...


@dataclass
class Judge:
    """Counts calls and laws, and turns broken laws into the failures of a report.

    Attributes:
        report: Where everything is noted.
        deadline_s: Seconds after which no new case is begun.
        call_s: Seconds after which one call counts as hung.
        max_examples: Random cases.
        seed: Of the random cases.
    """

    report: Report
    deadline_s: float
    call_s: float
    max_examples: int
    seed: int
    begin: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Since the judgement began."""
        return time.perf_counter() - self.begin

    @property
    def is_late(self) -> bool:
        """No time for another case."""
        return self.seconds > self.deadline_s

    def call(self, subject: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The subject's result.

        Raises:
            Broken: The subject raised, or did not come back.
        """
        self.report.calls += 1
        try:
            result = guarded(lambda: subject(*args, **options), self.call_s)
        except KernelFault as fault:
            raise Broken("answers", 0, fault.text) from fault
        self.require(True, "answers", 0, "")
        return result

    def require(
        self, holds: Any, check: str, level: int, message: Text, picture: Text = ""
    ) -> None:
        """Note that the law `check` was applied.

        Raises:
            Broken: It does not hold.
        """
        self.report.judged[check] = self.report.judged.get(check, 0) + 1
        if not holds:
            raise Broken(
                check, level, *(x if isinstance(x, str) else x() for x in (message, picture))
            )

    def directed(
        self, cases: Iterable[Case], examine: Callable[[Any], None], only_if_clean: bool = False
    ) -> None:
        """Every case once; of every law the first failure is kept, and a hang ends it all.

        Args:
            cases: Small ones first.
            examine: Raises `Broken` if a law does not hold for a case.
            only_if_clean: Do nothing after a failure; for cases so large that a subject known to
                be wrong might take the machine down with it.
        """
        for case in cases:
            if only_if_clean and self.report.failures:
                return
            if self.is_late:
                self.leave_out("directed cases from this one on, for lack of time: " + str(case))
                return
            broken = self._trial(case, examine)
            if broken is not None:
                self._note(broken, case)
                if "still running" in broken.message:
                    return

    def random(self, cases: Any, examine: Callable[[Any], None]) -> None:
        """`max_examples` cases of a Hypothesis strategy, if all went well so far; one is kept."""
        if self.report.failures or not self.max_examples:
            return
        from hypothesis import HealthCheck, Verbosity, given, seed, settings

        smallest: list[tuple[Broken, Case]] = []  # the last one that failed is the shrunk one

        @seed(self.seed)
        @settings(
            max_examples=self.max_examples,
            database=None,
            deadline=None,
            suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
        )
        @given(cases)
        def search(case: Case) -> None:
            broken = None if self.is_late else self._trial(case, examine)
            if broken is not None:
                smallest[:] = [(broken, case)]
                raise broken

        try:
            search()
        except Exception:  # Broken, or Hypothesis' word for a subject that fails only sometimes
            if not smallest:
                raise
        if smallest:
            self._note(*smallest[0])
        elif self.is_late:
            self.leave_out("some of the random cases, for lack of time")

    def leave_out(self, why: str) -> None:
        """Note what was not judged."""
        if why not in self.report.not_judged:
            self.report.not_judged.append(why)

    def finish(self) -> Report:
        """The report, with its time."""
        self.report.seconds = self.seconds
        return self.report

    def _trial(self, case: Case, examine: Callable[[Any], None]) -> Broken | None:
        self.report.cases += 1
        try:
            examine(case)
        except Broken as broken:
            return broken
        return None

    def _note(self, broken: Broken, case: Case) -> None:
        if any(failure.check == broken.check for failure in self.report.failures):
            return
        message = f"{broken.message} ({case})"
        facts = {"case": case, "picture": broken.picture, "calls": self.report.calls}
        failure = Failure(broken.check, broken.level, message, **facts, seconds=self.seconds)
        self.report.failures.append(failure)


def begin(
    subject: Callable[..., Any],
    kind: str,
    name: str | None,
    max_examples: int,
    seed: int,
    deadline_s: float,
    call_s: float,
    contract: Any,
) -> Judge:
    """A judge with an empty report on `subject`, but for what its contract leaves out."""
    title = name or getattr(subject, "__name__", type(subject).__name__)
    judge = Judge(Report(title, kind, level=6), deadline_s, call_s, max_examples, seed)
    for part in fields(contract):
        if getattr(contract, part.name) in ("not given", "not judged"):
            judge.leave_out(f"{part.name}: left out by the contract")
    return judge
