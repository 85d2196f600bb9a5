"""Asks the judges of a kernel about a fault in one case: each says what it sees, or nothing.

simulator           an error of the simulator: a race, an access that may not be
simulated numbers   the results of a run that looks for no such thing, as a plain test has them
emulator            an error of the emulator, which runs the PTX that the text becomes
emulated numbers    the results of that, again without the error's help
machine code        what sm_90 would execute costs more: float64, local memory, spilled registers,
                    more requests of warps to K and V, or more sectors of 32 bytes
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any
from unittest.mock import patch

from minipaged_cuda.compile import compile_ptx
from minipaged_cuda.machine_code import Report, report
from support.cuda_cases import CASES
from support.cuda_operations import Recorder, emulated_launcher, simulated_launcher
from support.cuda_planted import Case, Fault, Planted, PlantedLauncher

SCHEDULES = ("forward", "reverse", "random")
CAPABILITY = (9, 0)

Judge = Callable[[Planted, Case], str]


def simulator(planted: Planted, case: Case) -> str:
    """The error, and the schedule if the plain one does not show it."""
    for schedule in SCHEDULES:
        make = partial(simulated_launcher, schedule=schedule)
        if seen := error(planted, case, make, strict=not case.is_far):
            return seen if schedule == "forward" else f"{seen} ({schedule})"
    return ""


def simulated_numbers(planted: Planted, case: Case) -> str:
    """Wrong in some schedule, or none at all because the run was stopped."""
    for schedule in SCHEDULES[:2]:
        make = partial(simulated_launcher, schedule=schedule)
        if seen := numbers(planted, case, make):
            return seen if schedule == "forward" else f"{seen} ({schedule})"
    return ""


def emulator(planted: Planted, case: Case) -> str:
    """The error."""
    return error(
        planted, case, partial(emulated_launcher, capability=CAPABILITY), strict=not case.is_far
    )


def emulated_numbers(planted: Planted, case: Case) -> str:
    """Wrong, or none at all because the run was stopped."""
    return numbers(planted, case, partial(emulated_launcher, capability=CAPABILITY))


def machine_code(planted: Planted, case: Case) -> str:
    """Where the right kernel costs less."""
    mine, right = costs(planted, case), right_costs(case)
    worse = [f"{name} {right[name]} → {mine[name]}" for name in right if mine[name] > right[name]]
    return ", ".join(worse)


JUDGES: dict[str, Judge] = {
    "simulator": simulator,
    "simulated numbers": simulated_numbers,
    "emulator": emulator,
    "emulated numbers": emulated_numbers,
    "machine code": machine_code,
}


def verdict(fault: Fault, judge: str) -> str:
    """What one judge says about a fault in the case that the fault names."""
    with own_cache():
        return JUDGES[judge](Planted(fault), case_of(fault))


def case_of(fault: Fault) -> Case:
    """The case that shows the fault best."""
    return next(case for case in CASES[fault.module] if case.name == fault.case)


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """Keep what is compiled in a place that is removed at the end."""
    with (
        tempfile.TemporaryDirectory() as place,
        patch.dict(os.environ, MINIPAGED_CACHE_DIR=place),
    ):
        yield


# --- runs --------------------------------------------------------------------------------------


def error(planted: Planted, case: Case, make: Callable[..., Any], *, strict: bool) -> str:
    """The name of the error that stops a run, or nothing; wrong numbers are no error."""
    try:
        case.run(PlantedLauncher(make(strict=strict, check_races=strict), planted))
    except AssertionError:
        return ""
    except Exception as stopped:
        return type(stopped).__name__
    return ""


def numbers(planted: Planted, case: Case, make: Callable[..., Any]) -> str:
    """``wrong``, ``none``, or nothing to complain of."""
    try:
        case.run(PlantedLauncher(make(strict=False, check_races=False), planted))
    except AssertionError:
        return "wrong"
    except Exception:
        return "none"
    return ""


# --- costs -------------------------------------------------------------------------------------


def costs(planted: Planted, case: Case) -> dict[str, int]:
    """What all launches of a case need, each number better if it is smaller."""
    found = reports(planted, case)
    return {
        "spilled bytes": sum(r.spill_bytes or 0 for r in found),
        "local memory": sum(r.num_local for r in found),
        "float64": sum(r.num_float64 for r in found),
        **traffic(planted, case),
    }


@cache
def right_costs(case: Case) -> dict[str, int]:
    """Those of the kernels as they are."""
    return costs(Planted(None), case)


def reports(planted: Planted, case: Case) -> list[Report]:
    """The machine code of every kernel that a case launches."""
    recorder = Recorder()
    with contextlib.suppress(AssertionError):  # nothing runs, so the numbers are wrong
        case.run(PlantedLauncher(recorder, planted))
    texts = dict.fromkeys(compile_ptx(call[0], CAPABILITY) for call in recorder.calls)
    return [report(ptx, CAPABILITY) for ptx in texts]


def traffic(planted: Planted, case: Case) -> dict[str, int]:
    """Between the caches and the chip; nothing if the run was stopped."""
    launcher = emulated_launcher(capability=CAPABILITY, strict=False, check_races=False)
    with contextlib.suppress(Exception):
        case.run(PlantedLauncher(launcher, planted))
    moved = [x for counts in launcher.history for x in (counts.loads, counts.stores)]
    found = [x[name] for x in moved for name in x if name.startswith(("key", "value"))]
    return {
        "requests": sum(x.requests for x in found),
        "sectors": sum(x.sectors for x in found),
    }
