"""A walk through the zoo: each kernel is judged, and the verdict held against the ledger.

It knows the judge and the ledgers, not the kernels.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Literal

from ..check import check_kernel
from ..conventions import Kernel
from ..report import Failure, Report
from .animal import Animal, Finding, NotHere

Verdict = Literal["clean", "as expected", "SURPRISE", "not here"]


@dataclass
class Row:
    """What became of one animal.

    Attributes:
        animal: Who.
        reports: The judgement past all known findings, then one for each finding.
        found: Each known finding that showed, and how.
        surprises: Known findings that did not show, and failures that were not known.
        unreached: Known findings that did not show before time was up: neither here nor there.
        absent: Why it could not be judged, or "".
    """

    animal: Animal
    reports: list[Report] = field(default_factory=list)
    found: list[tuple[Finding, Failure]] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    absent: str = ""

    @property
    def verdict(self) -> Verdict:
        """In a word or two."""
        if self.absent:
            return "not here"
        if self.surprises:
            return "SURPRISE"
        return "as expected" if self.found else "clean"

    @property
    def cases(self) -> int:
        """Inputs tried, in all judgements."""
        return sum(report.cases for report in self.reports)

    @property
    def calls(self) -> int:
        """Calls of the kernel."""
        return sum(report.calls for report in self.reports)

    @property
    def seconds(self) -> float:
        """Wall time."""
        return sum(report.seconds for report in self.reports)

    def __str__(self) -> str:
        head = f"{self.animal.name} {self.animal.version}: {self.verdict}"
        if self.absent:
            return f"{head} ({self.absent})"
        lines = [f"{head} ({self.cases} cases, {self.calls} calls, {self.seconds:.0f} s)"]
        lines += [f"  surprise: {text}" for text in self.surprises]
        lines += [f"  out of time: {text}" for text in self.unreached]
        for finding, failure in self.found:
            lines += [f"  {finding.name}: {finding.cause}", f"    {failure}", f"    {failure.case}"]
        return "\n".join(lines)


def visit(animal: Animal, explain: bool = True) -> Row:
    """Judge it once past all that is known, which it must pass, and once for each known finding.

    So nothing hides behind a known failure: each is looked at with all others out of the way.

    Args:
        animal: Who.
        explain: See `check_kernel`.
    """
    row = Row(animal)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their own affair
            kernel = animal.load()
    except NotHere as reason:
        row.absent = str(reason)
        return row
    tame = _judged(animal, kernel, None, explain)
    row.reports.append(tame)
    row.surprises += [f"not in the ledger: {f}\n    {f.case}" for f in tame.failures]
    if not tame.judged:
        row.surprises.append("nothing was judged")
    for finding in animal.expected:
        report = _judged(animal, kernel, finding, explain)
        row.reports.append(report)
        if not report.failures:
            late = report.seconds >= animal.deadline_s
            missing = f"in the ledger, but did not show: {finding.name}"
            (row.unreached if late else row.surprises).append(missing)
        for failure in report.failures:
            if finding.explains(failure.check):
                row.found.append((finding, failure))
            else:
                row.surprises.append(f"with {finding.name}, not in the ledger: {failure}")
    return row


def _judged(animal: Animal, kernel: Kernel, finding: Finding | None, explain: bool) -> Report:
    """Past all findings, or all but one. Comparisons with itself come last, so few cases first."""
    features, contract = animal.tamed(but=finding)
    level, examples = animal.level, animal.examples
    if finding is not None:
        level = animal.level if finding.level is None else finding.level
        examples = 0 if finding.bitwise else 5 * examples
    return check_kernel(
        kernel,
        animal.convention,
        level=level,
        max_examples=examples,
        features=features,
        contract=contract,
        deadline_s=animal.deadline_s,
        call_limit_s=animal.call_limit_s,
        max_failures=3 if finding is None else 1,
        name=animal.name,
        explain=explain,
    )
