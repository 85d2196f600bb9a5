"""The tests of the manager are tested: each planted fault is noticed, and the right code is not."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from support.manager.faults import FAULTS, OURS
from support.manager.killers import example, exhaustive, kill
from support.manager.table import PAGE, row, rows_of
from support.planted import Fault, fresh, planted


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_noticed(fault):
    assert kill(fault) is not None, f"nobody noticed that {fault.name}"


def test_the_right_code_is_left_alone():
    with planted(None):
        assert exhaustive(100) is None
        assert example() is None


def test_planting_leaves_no_trace():
    core, world = fresh("minipaged.core"), fresh("support.world")
    before, pool = dict(sys.modules), world.BlockPool
    with planted(FAULTS[0]):
        assert fresh("minipaged.core") is not core
        assert fresh("support.world").BlockPool is not pool
        assert fresh("support.world").books is fresh("support.books") is not world.books
    assert dict(sys.modules) == before
    assert sys.modules["minipaged"].core is core
    assert world.BlockPool is pool is core.BlockPool


def test_a_fault_that_has_lost_its_place_is_an_error():
    lost = Fault("nothing", "", "", "block_pool", "this text is nowhere", "")
    with pytest.raises(LookupError, match="stands 0 times in block_pool"):
        lost.source()


def test_the_faults_are_many_and_different():
    assert len(FAULTS) >= 35
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    assert max(Counter(fault.source() for fault in FAULTS).values()) == 1
    assert all("#" in fault.like or fault.like == OURS for fault in FAULTS)
    assert sum(fault.like != OURS for fault in FAULTS) >= 50


def test_the_page_is_fresh():
    expected = [row(fault)[:-1] for fault in FAULTS]
    assert rows_of(PAGE.read_text("utf-8")) == expected, "run tests/meta/manager/update_page.py"
