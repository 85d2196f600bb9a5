"""Finds which check notices a fault that was planted into the engine; quick and telling ones first.

example      the worked examples of tests/unit
program      short random programs: a death is told as the shortest part of one that fails
machine      the random machine of tests/stateful
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from hypothesis import Phase

from . import planted as planting
from .manager.killers import TESTS, Death, _first_failure
from .planted import Fault, fresh, fresh_tests

EXAMPLES = ("scheduler", "engine_intake", "engine_advance")
ANEW = (
    "minipaged.engine",
    "support.engine_programs",
    "support.engine_reference",
    "support.engine_shadow",
    "support.engine_world",
)


@contextmanager
def planted(fault: Fault | None) -> Iterator[None]:
    """As ``planted.planted``, and the engine and its tests' support are imported afresh too."""
    with (
        mock.patch.object(planting, "ANEW", (*planting.ANEW, *ANEW)),
        planting.planted(fault),
    ):
        yield


@functools.cache
def kill(fault: Fault | None) -> Death | None:
    """The first death, or None if nobody notices."""
    with planted(fault):
        for check in (example, program, machine):
            if (death := check()) is not None:
                return death
    return None


def example() -> Death | None:
    return _first_failure("example", [TESTS / "unit" / f"test_{name}.py" for name in EXAMPLES])


def program(num_programs: int = 300) -> Death | None:
    programs = fresh("support.engine_programs")
    found = programs.first_failure(num_programs)
    return None if found is None else Death("program", programs.as_text(found[1]), found[0])


def machine() -> Death | None:
    tests = fresh_tests(TESTS / "stateful" / "test_scheduler_machine.py")
    try:
        tests.run(max_examples=100, phases=[Phase.generate])
    except Exception:
        return Death("machine", tests.Engine.__name__, 100)
    return None


def row(fault: Fault) -> tuple[str, ...]:
    """What a page may say about one fault, in the columns of ``support.manager.table.HEAD``."""
    death = kill(fault)
    if death is None:
        return fault.name, fault.kind, fault.like, "nobody", "", ""
    story = death.story if death.check == "program" else death.story.replace("_", " ")
    return fault.name, fault.kind, fault.like, death.check, f"`{story}`", str(death.num_tried)
