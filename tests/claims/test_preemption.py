"""C8: both ways make room, answers stay the same, and only swapping minds the size of blocks."""

from __future__ import annotations

import pytest

from minipaged.claims import preemption
from minipaged.claims.claim import Context
from minipaged.claims.cost import CostModel


@pytest.fixture(scope="module")
def quick():
    return preemption.measure(Context(quick=True))


def test_recomputing_does_not_mind_the_size_of_blocks_and_swapping_does(quick):
    sweep = quick.series["sweep"]
    assert len(set(sweep["recompute"])) == 1
    assert sweep["swap"] == sorted(sweep["swap"], reverse=True)
    assert sweep["swap"][0] > 2 * sweep["swap"][-1]


def test_swapping_by_hand():
    """256 tokens in blocks of 64 are 4 blocks out and 4 in, of 80 transfers each."""
    cost = CostModel()
    block = 80 * cost.per_transfer + 64 * cost.kv_bytes / cost.bus_bandwidth
    assert preemption._alone(64, cost)["swap"] == pytest.approx(8 * block)


def test_the_real_engine_preempts_both_ways_and_answers_the_same(quick):
    rows = {row.what: row for row in quick.rows}
    for way, kept in (("recompute", "blocks moved"), ("swap", "tokens computed again")):
        assert rows[f"real engine, {way}: preemptions"].measured > 0
        assert rows[f"real engine, {way}: {kept}"].measured == 0
        others = rows[f"real engine, {way}: answers that changed"]
        assert others.verdict == "holds"
    assert rows["real engine, recompute: tokens computed again"].measured > 0
    assert rows["real engine, swap: blocks moved"].measured > 0


def test_wall_times_are_those_of_this_machine(quick):
    walls = [row.what for row in quick.rows if row.wall]
    assert len(walls) == 4
    assert all(what.startswith("this machine") for what in walls)


def test_a_load_that_preempts_is_measured(quick):
    under_load = [
        row for row in quick.rows if "under load" in row.what and "preemptions" in row.what
    ]
    assert len(under_load) == 1
    assert all(row.measured > 0 for row in under_load)
