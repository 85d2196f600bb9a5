"""A report as Markdown, JSON or JUnit; knows reports and checks, runs nothing."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from .checks import CHECKS, LEVELS, Check
from .report import Failure, Report

Outcome = Literal["passed", "failed", "not judged"]
MARKS = {"passed": "✅ passed", "failed": "❌ failed", "not judged": "➖ not judged"}
MEANINGS = {
    "error budget used": (
        "The largest error in all cases that passed, as a part of what the declared arithmetic can "
        "be wrong by at most. Up to 100 % passes; more would prove another arithmetic."
    ),
    "error statistic T": (
        "The mean of squared error over the variance that independent roundings would have. About "
        "1 or less is what careful arithmetic gives; several means that errors point one way."
    ),
}


@dataclass(frozen=True)
class Verdict:
    """What came of one check.

    Attributes:
        check: Its name.
        level: Its level.
        law: What it demands, one sentence, "" where only the name is known.
        outcome: "passed", "failed" or "not judged".
        applied: To how many cases.
        failure: What was found, if it failed.
    """

    check: str
    level: int
    law: str
    outcome: Outcome
    applied: int = 0
    failure: Failure | None = None


def verdicts(report: Report) -> list[Verdict]:
    """One for every check up to the report's level, by level.

    A kernel that raised, hung or died has failed the first check, and the others are not judged,
    however often they held before.
    """
    known = {c.name: c for c in CHECKS} if report.kind == "kernel" else {}
    broken = {failure.check: failure for failure in report.failures}
    first = CHECKS[0].name if known else ""
    strange = [f for f in report.failures if f.check not in known] if known else []
    if strange:
        broken.setdefault(first, strange[0])
    checks = [c for c in known.values() if c.level <= report.level]
    found = [_verdict(report, c, broken.get(c.name), bool(strange)) for c in checks]
    others = dict.fromkeys((*broken, *report.judged))
    for name in (n for n in others if n not in known and not known):
        failure = broken.get(name)
        applied = report.judged.get(name, 0)
        level = failure.level if failure else 0
        found.append(Verdict(name, level, "", "failed" if failure else "passed", applied, failure))
    return sorted(found, key=lambda v: v.level)


def _verdict(report: Report, check: Check, failure: Failure | None, unfinished: bool) -> Verdict:
    applied = report.judged.get(check.name, 0)
    outcome: Outcome = "passed" if applied and not unfinished else "not judged"
    if failure:
        outcome = "failed"
    return Verdict(check.name, check.level, check.law, outcome, applied, failure)


def facts(**more: Any) -> dict[str, Any]:
    """What it was made with: versions, and what the caller adds (device, seed)."""
    names = ("minipaged", "torch", "numpy", "hypothesis")
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return {"python": python, **{name: _version(name) for name in names}, **more}


def _version(name: str) -> str:
    if name in sys.modules and hasattr(sys.modules[name], "__version__"):
        return str(sys.modules[name].__version__)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def to_markdown(report: Report, **made_with: Any) -> str:
    """The card; but for the line with the date and the time it took, two equal runs give the same.

    Args:
        report: The verdict.
        **made_with: More lines for the table at the end: `seed=0, device="cpu"`.
    """
    done = "passed" if report.passed else "FAILED" if report.failures else "not judged"
    parts = [
        f"# `{report.subject}`: {done}",
        f"A {report.kind}, called by the convention `{report.convention}`, judged up to level "
        f"{report.level} by minipaged: {report.cases} cases, {report.calls} calls.",
        *_levels(report),
        *_wrong(report),
        *_figures(report),
        *_not_judged(report),
        _made(report, facts(**made_with)),
    ]
    return "\n\n".join(parts) + "\n"


def _levels(report: Report) -> list[str]:
    found = verdicts(report)
    rows = [
        "| level | verdict | checks, and to how many cases they were applied |",
        "|---|---|---|",
    ]
    for level in sorted({v.level for v in found}):
        here = [v for v in found if v.level == level]
        outcomes = {v.outcome for v in here}
        outcome = next((o for o in ("failed", "passed") if o in outcomes), "not judged")
        name = (
            f"{level} {LEVELS[level].replace(': ', '<br>', 1)}" if report.kind == "kernel" else "–"
        )
        checks = ", ".join(_told(v) for v in here)
        rows.append(f"| {name} | {MARKS[outcome]} | {checks} |")
    return ["\n".join(rows)] if found else []


def _told(verdict: Verdict) -> str:
    name = verdict.check.replace(" ", "\u00a0")
    if verdict.outcome == "failed":
        return f"**{name}\u00a0failed**"
    return f"{name}\u00a0{verdict.applied}" if verdict.outcome == "passed" else f"~~{name}~~"


def _wrong(report: Report) -> list[str]:
    parts = ["## What is wrong"] if report.failures else []
    for failure in report.failures:
        parts += [f"### {failure.check} (level {failure.level})", _quoted(failure.message)]
        law = next((c.law for c in CHECKS if c.name == failure.check), "")
        if law and report.kind == "kernel":
            parts.append(f"The law: {law}")
        if failure.case is not None:
            parts.append(f"The smallest case that shows it:\n\n```python\n{failure.case}\n```")
        if failure.picture:
            parts.append(f"```text\n{failure.picture.rstrip()}\n```")
        if failure.diagnosis:
            parts.append(f"Diagnosis: {_quoted(failure.diagnosis)}")
        if failure.path:
            parts.append(f"Again: `minipaged replay {failure.path}`")
    return parts


def _figures(report: Report) -> list[str]:
    if not report.figures:
        return []
    lines = [f"- **{name}: {_figure(name, x)}** {MEANINGS.get(name, '')}".rstrip()
             for name, x in report.figures.items()]  # fmt: skip
    return ["## Figures", "\n".join(lines)]


def _figure(name: str, x: Any) -> str:
    if name == "error budget used" and isinstance(x, float):
        return f"{100 * x:.3g} %" if math.isfinite(x) and x < 100 else f"{x:.3g} times"
    if isinstance(x, (list, tuple)):
        return ", ".join(f"`{y}`" for y in x)
    return f"{x:.3g}" if isinstance(x, float) else str(x)


def _not_judged(report: Report) -> list[str]:
    names = [v.check for v in verdicts(report) if v.outcome == "not judged"]
    lines = [_quoted(line) for line in report.not_judged]
    if names:
        lines.append(f"not claimed, or not reached: {', '.join(names)}")
    if not lines:
        return []
    return ["## Not judged", "\n".join(f"- {line}" for line in lines)]


def _made(report: Report, made_with: dict[str, Any]) -> str:
    rows = [f"| {name} | {x} |" for name, x in made_with.items()]
    date = f"| date | {_today()}, {report.seconds:.1f} s |"
    return "\n".join(["## Made with", "", "| | |", "|---|---|", *rows, date])


def _today() -> str:
    return datetime.date.today().isoformat()


def _quoted(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return "".join(f"\\{c}" if c in "*_<>|`" else c for c in text)


def to_json(report: Report, **made_with: Any) -> str:
    """The same for a program; numbers that JSON does not know are strings ("inf")."""
    content = {
        "format": 1,
        "subject": report.subject,
        "kind": report.kind,
        "convention": report.convention,
        "level": report.level,
        "passed": report.passed,
        "checks": [
            {"check": v.check, "level": v.level, "outcome": v.outcome, "applied": v.applied}
            for v in verdicts(report)
        ],
        "failures": [_failure(failure) for failure in report.failures],
        "not_judged": report.not_judged,
        "figures": report.figures,
        "cases": report.cases,
        "calls": report.calls,
        "made_with": facts(**made_with),
        "made": {"date": _today(), "seconds": round(report.seconds, 3)},
    }
    return json.dumps(_plain(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _failure(failure: Failure) -> dict[str, Any]:
    case = failure.case
    return {
        "check": failure.check,
        "level": failure.level,
        "message": failure.message,
        "case": case.to_dict() if hasattr(case, "to_dict") else None if case is None else str(case),
        "picture": failure.picture,
        "diagnosis": failure.diagnosis,
        "calls": failure.calls,
        "path": None if failure.path is None else str(failure.path),
    }


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(name): _plain(y) for name, y in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(y) for y in x]
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    return x if x is None or isinstance(x, (bool, int, float, str)) else str(x)


def to_junit(report: Report) -> str:
    """The same for a CI server: one test case per check."""
    found = verdicts(report)
    count = {o: str(sum(v.outcome == o for v in found)) for o in MARKS}
    suite = ElementTree.Element(
        "testsuite",
        name=f"minipaged {report.subject}",
        tests=str(len(found)),
        failures=count["failed"],
        skipped=count["not judged"],
        errors="0",
        time=f"{report.seconds:.3f}",
    )
    for verdict in found:
        name = f"L{verdict.level} {verdict.check}"
        test = ElementTree.SubElement(suite, "testcase", classname=report.subject, name=name)
        if verdict.failure:
            fault = ElementTree.SubElement(test, "failure", message=_xml(verdict.failure.message))
            fault.text = _xml(story(verdict.failure))
        elif verdict.outcome == "not judged":
            ElementTree.SubElement(test, "skipped", message="not claimed, or not reached")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def story(failure: Failure) -> str:
    """Everything that is known of one failure, in lines."""
    lines = [str(failure)]
    if failure.case is not None:
        lines.append(str(failure.case))
    if failure.picture:
        lines.append(failure.picture)
    if failure.diagnosis:
        lines.append(f"same output as the known fault: {failure.diagnosis}")
    if failure.path:
        lines.append(f"again: minipaged replay {failure.path}")
    return "\n".join(lines)


def write(report: Report, path: str | Path, **made_with: Any) -> None:
    """Write the card; the ending says the form: `.json`, `.xml`, or else Markdown."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".xml":
        text = to_junit(report)
    elif path.suffix == ".json":
        text = to_json(report, **made_with)
    else:
        text = to_markdown(report, **made_with)
    path.write_text(text, encoding="utf-8")
