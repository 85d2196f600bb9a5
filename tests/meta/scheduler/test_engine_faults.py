"""The tests of the engine are tested: each planted fault is noticed, and the right code is not."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
import torch

from support.engine_faults import FAULTS
from support.engine_killers import example, kill, planted, program, row
from support.manager.table import PAGE, rows_of
from support.planted import Fault, fresh

torch.set_num_threads(1)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_noticed(fault: Fault):
    assert kill(fault) is not None, f"nobody noticed that {fault.name}"


def test_the_right_code_is_left_alone():
    with planted(None):
        assert example() is None
        assert program() is None


def test_planting_leaves_no_trace():
    scheduler, world = fresh("minipaged.engine.scheduler"), fresh("support.engine_world")
    before, llm = dict(sys.modules), world.ShadowLLM
    with planted(FAULTS[0]):
        assert fresh("minipaged.engine.scheduler") is not scheduler
        assert fresh("support.engine_world").ShadowLLM is not llm
    assert dict(sys.modules) == before
    assert world.ShadowLLM is llm


def test_the_faults_are_many_and_different():
    assert len(FAULTS) >= 50
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    assert max(Counter(fault.source() for fault in FAULTS).values()) == 1
    assert all("#" in fault.like for fault in FAULTS)


def test_every_part_of_the_engine_has_faults():
    numbers = Counter(fault.module for fault in FAULTS)
    assert set(numbers) == {f"engine.{m}" for m in ("scheduler", "advance", "intake", "sequence")}
    assert min(numbers.values()) >= 5


def test_the_page_is_fresh():
    expected = [row(fault)[:4] for fault in FAULTS]  # which example comes first may differ
    page = [cells[:4] for cells in rows_of(PAGE.read_text("utf-8"), "engine")]
    assert page == expected, "run tests/meta/manager/update_page.py"
