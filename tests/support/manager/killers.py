"""Finds which check notices a planted fault first; the quick and telling ones are asked first.

exhaustive   all short programs: a death is told as the shortest program
example      the worked examples of tests/unit
law          the properties of tests/property
machine      the random machine of tests/stateful
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, settings

from ..planted import ROOT, Fault, fresh, fresh_tests, planted

TESTS = ROOT / "tests"
EXAMPLES = (
    "hashing",
    "block_pool",
    "block_table",
    "relocate",
    "ledger",
    "snapshot",
    "kv_cache",
    "batch",
)


@dataclass(frozen=True)
class Death:
    """Which check noticed, and how it shows."""

    check: str
    story: str  # the shortest program, or the name of the test
    num_tried: int  # programs or examples, the deadly one included


@functools.cache
def kill(fault: Fault | None) -> Death | None:
    """The first death, or None if nobody notices."""
    with planted(fault):
        for check in CHECKS:
            if (death := check()) is not None:
                return death
    return None


def exhaustive(max_acts: int) -> Death | None:
    """Every scope a little; many programs share their beginning, so 100 acts are many programs."""
    programs = fresh("support.programs")
    for scope in programs.SCOPES:
        report = programs.explore(scope, max_acts)
        if report.failure is not None:
            story = programs.as_text(report.program)
            return Death("exhaustive", f"{scope.name}: {story}", report.num_programs)
    return None


def example() -> Death | None:
    return _first_failure("example", [TESTS / "unit" / f"test_{name}.py" for name in EXAMPLES])


def law() -> Death | None:
    return _first_failure("law", [TESTS / "property" / "test_tables.py"])


def machine() -> Death | None:
    tests = fresh_tests(TESTS / "stateful" / "test_manager_machine.py")
    try:
        tests.run(max_examples=200, phases=[Phase.generate])
    except Exception:
        return Death("machine", tests.Manager.__name__, 200)
    return None


def _first_failure(check: str, paths: list[Path]) -> Death | None:
    num_tried = 0
    for path in paths:
        for name, test in _cases(fresh_tests(path)):
            num_tried += 1
            try:
                test()
            except (Exception, pytest.fail.Exception):
                return Death(check, name, num_tried)
    return None


def _cases(tests: ModuleType) -> Iterator[tuple[str, Callable[[], object]]]:
    """The tests of a module, one for each set of parameters, without pytest around them."""
    for name, test in vars(tests).items():
        if not name.startswith("test_"):
            continue
        marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
        if hasattr(test, "hypothesis"):
            test = settings(max_examples=50, phases=[Phase.generate])(test)
        for values in itertools.product(*(_values(mark) for mark in marks)):
            arguments = {key: value for given in values for key, value in given.items()}
            yield name, lambda test=test, arguments=arguments: test(**arguments)


def _values(mark: pytest.Mark) -> list[dict[str, object]]:
    names, rows = mark.args[0], mark.args[1]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    if len(names) == 1:
        return [{names[0]: row} for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


CHECKS: tuple[Callable[[], Death | None], ...] = (
    functools.partial(exhaustive, 100),
    functools.partial(exhaustive, 400),
    example,
    functools.partial(exhaustive, 2000),
    law,
    machine,
)
