"""What proves the kernels is tested: each planted fault is seen, and the right kernels are not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from support.cuda_cases import CASES
from support.cuda_compiled import need_tools
from support.cuda_fault_table import PAGE, facts, row, rows_of, sums
from support.cuda_faults import FAULTS
from support.cuda_faults.kinds import BARRIER, OURS
from support.cuda_judges import JUDGES, case_of, verdict
from support.cuda_operations import simulated_launcher
from support.cuda_planted import KERNELS, ROOT, Case, Fault, Planted, PlantedLauncher

ALL_CASES = {f"{module}: {c.name}": c for module, cases in CASES.items() for c in cases}
TEXTS = sorted((ROOT / Path(*KERNELS.split("."))).glob("*.py"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.module}-{fault.name}")
def test_a_planted_fault_is_seen(fault: Fault):
    if fault.judge == "machine code":
        need_tools()
    assert verdict(fault, fault.judge), f"the {fault.judge} saw nothing of: {fault.name}"


@pytest.mark.parametrize("case", dict.fromkeys(ALL_CASES.values()), ids=lambda case: case.name)
def test_the_right_kernels_are_left_alone(case: Case):
    case.run(PlantedLauncher(simulated_launcher(strict=not case.is_far), Planted(None)))


@pytest.mark.slow
@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("case", dict.fromkeys(ALL_CASES.values()), ids=lambda case: case.name)
def test_no_judge_complains_of_the_right_kernels(case: Case, judge: str):
    need_tools()
    assert JUDGES[judge](Planted(None), case) == ""


def test_a_fault_that_has_lost_its_place_is_an_error():
    lost = Fault("nothing", "", "", "merge", "this text is nowhere", "", "", "")
    with pytest.raises(LookupError, match="stands 0 times in merge"):
        lost.source()


def test_planting_leaves_the_package_alone():
    from minipaged_cuda.kernels import decode_v1

    fault = next(fault for fault in FAULTS if fault.module == "common")
    planted = Planted(fault).module(decode_v1.__name__)
    assert planted is not decode_v1
    assert planted.visible_keys is not decode_v1.visible_keys  # kernels see planted helpers
    assert planted.ex2 is decode_v1.ex2  # and the same primitives


# --- the faults --------------------------------------------------------------------------------


def test_the_faults_are_many_and_different():
    assert len(FAULTS) >= 100
    assert max(Counter((fault.module, fault.name) for fault in FAULTS).values()) == 1
    assert max(Counter(fault.source() for fault in FAULTS).values()) == 1
    assert all(re.search(r"\d", fault.like) or fault.like == OURS for fault in FAULTS)


def test_every_kernel_has_faults():
    texts = {path.stem for path in TEXTS} - {"__init__"}
    assert texts <= {fault.module for fault in FAULTS}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_every_barrier_of_every_kernel_is_missed(path: Path):
    barrier, text = "cuda.syncthreads()", path.read_text("utf-8")
    missing = {
        fault.source()
        for fault in FAULTS
        if fault.module == path.stem and fault.kind == BARRIER and barrier in fault.right
    }
    without_one = [source for source in missing if source.count(barrier) == text.count(barrier) - 1]
    assert len(without_one) == text.count(barrier)


# --- the page ----------------------------------------------------------------------------------


def test_the_page_has_every_fault_and_what_its_killer_says():
    """The rest of the table takes minutes, see below."""
    page = PAGE.read_text("utf-8")
    rows = rows_of(page)
    assert [cells[: len(facts(fault))] for cells, fault in zip(rows, FAULTS, strict=True)] == [
        facts(fault) for fault in FAULTS
    ], "run tests/meta/cuda/update_page.py"
    for fault, cells in zip(FAULTS, rows):
        assert dict(zip(JUDGES, cells[len(facts(fault)) :]))[fault.judge], fault.name
    assert sums(rows) in page


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_page_is_fresh():
    need_tools()
    assert rows_of(PAGE.read_text("utf-8")) == list(map(row, FAULTS))


def test_every_case_is_somebodys_killer():
    used = {case_of(fault) for fault in FAULTS}
    assert set(ALL_CASES.values()) - used == set()
