"""C1: every slot is counted once, waste follows a law, and the paper's figure comes out."""

from __future__ import annotations

import pytest

from minipaged.claims import waste
from minipaged.claims.claim import Context
from minipaged.claims.generators import alpaca_like, sharegpt_like
from minipaged.claims.managers import CONTIGUOUS, MANAGERS, Manager
from minipaged.claims.occupancy import Average, Bounds, Split
from minipaged.claims.outcome import Setting
from minipaged.claims.own_trace import manager_for, own_trace, pool_for
from minipaged.claims.simulator import simulate
from minipaged.claims.workload import Arrival, Workload


@pytest.fixture(scope="module")
def quick():
    return waste.measure(Context(quick=True))


def test_the_parts_of_every_bar_are_the_whole_pool(quick):
    assert len(quick.series["bars"]) == 3
    for by_manager in quick.series["bars"].values():
        assert list(by_manager) == list(MANAGERS)
        for parts in by_manager.values():
            assert sum(parts.values()) == pytest.approx(100)
            assert min(parts.values()) >= 0


def test_the_law_holds_on_every_workload(quick):
    laws = [row for row in quick.rows if "the law" in row.what]
    assert len(laws) == 3
    assert all(row.measured == pytest.approx(float(row.said.split()[0]), rel=0.1) for row in laws)


def test_less_than_four_per_cent_is_said_to_be_no_law(quick):
    said = {row.what.split(",")[0]: row for row in quick.rows if row.said == "less than 4 %"}
    assert said["Alpaca-like"].measured > 4
    assert "sequences are short" in said["Alpaca-like"].note
    assert max(said["ShareGPT-like"].measured, said["azure-code"].measured) < 4
    assert {row.verdict for row in said.values()} == {"unjudged"}


def test_the_share_of_the_pool_is_told_of_every_manager(quick):
    """What is compared is a share of the same whole: tokens and empty slots are the pool."""
    for name, bars in quick.series["bars"].items():
        rows = {row.what: row for row in quick.rows if row.what.startswith(f"{name}, ")}
        for kind in ("contiguous at best", "contiguous at worst", "paged"):
            assert f"{name}, {kind}: pool empty" in rows
        empty = rows[f"{name}, paged: pool empty"].measured
        assert empty == pytest.approx(100 - bars["paged"]["tokens"])
        assert empty > rows[f"{name}, paged: held and empty"].measured


def test_it_is_said_where_not_memory_but_the_step_limits(quick):
    """Long prompts and short answers use up a step's budget; then free slots are no waste."""
    notes = {row.what: row.note for row in quick.rows if "paged: pool empty" in row.what}
    assert "as many prompt tokens as a step may" in notes["azure-code, paged: pool empty"]
    assert not notes["ShareGPT-like, paged: pool empty"]


def test_the_law_can_fail_on_both_sides():
    for mean_len, waste_ in ((2119, 0.35), (69, 9.8), (390, 1.89)):
        rows = [
            waste.law_row("", waste_ * factor, 16, mean_len, waste.LAW_POINTS, few=False)
            for factor in (0.5, 1.0, 1.5)
        ]
        assert [row.verdict for row in rows] == ["fails", "holds", "fails"]


def test_the_paper_s_bars_come_out():
    """Within five points, as promised; with enough requests to be sure."""
    workload = sharegpt_like(800)
    for name, cells in waste.PAPER.items():
        outcome = simulate(workload, Manager(name), setting=Setting(at_once=True))
        measured = outcome.queued.split.percent()
        for kind, said in cells.items():
            slack = 1.5 if (name, kind) == ("max", "never_used") else 0  # the cell that is furthest
            assert measured[kind] == pytest.approx(said, abs=waste.POINTS + slack), (name, kind)


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_runs_of_blocks_are_as_good_as_runs_of_slots(name):
    """A buddy allocator over single slots, as the paper's, wastes the same."""
    workload, setting = alpaca_like(300), Setting(at_once=True)
    coarse, fine = (
        simulate(workload, manager, setting=setting).queued.split.percent()
        for manager in (Manager(name), Manager(name, num_blocks=15_700, block_size=1))
    )
    assert coarse == pytest.approx(fine, abs=0.5)


def test_the_law_by_hand():
    """Blocks of 4, lengths 1 to 4, each as likely: 3, 2, 1 and 0 slots are empty."""
    lengths = [1, 2, 3, 4]
    held = 4 * len(lengths)
    assert waste.law(4, 2.5) == pytest.approx(100 * (held - sum(lengths)) / held)
    assert waste.law(1, 100) == 0


def test_pools_grow_with_the_longest_sequence():
    assert pool_for(2048) == 981
    assert pool_for(8192) * 16 / 8192 == pytest.approx(15_700 / 2048, abs=0.01)


# ---- the user's own trace


def own(*arrivals: Arrival) -> Context:
    return Context(quick=True, trace=Workload("mine", "made up", arrivals))


def test_the_user_s_own_trace_is_measured_too():
    claim = waste.measure(own(*(Arrival(0.0, 10, 1000 + i) for i in range(120))))
    assert set(claim.series["bars"]["mine"]) == set(MANAGERS)
    assert "mine, 120 requests, made up." in claim.notes
    verdicts = {row.what: row.verdict for row in claim.rows}
    assert verdicts["mine, paged: held and empty"] == "agrees", "of a trace nothing is left out"


def test_a_trace_that_fills_no_memory_says_so():
    claim = waste.measure(own(Arrival(0.0, 1, 1)))
    assert "mine" not in claim.series["bars"]
    assert not any(row.what.startswith("mine") for row in claim.rows)
    assert claim.notes[0].startswith("mine, 1 request, not measured: somebody must wait for 50%")


def test_what_is_left_out_of_a_trace_is_counted():
    arrivals = [Arrival(0.0, 5, 5)] * 7 + [Arrival(0.0, 200_000, 5)] * 2
    (kept,) = own_trace(own(*arrivals), most_requests=4)
    assert [a.prompt_len for a in kept.arrivals] == [5] * 4
    assert kept.source == (
        "made up; without 2 requests of more than 131,072 tokens; the first 4 of 7"
    )
    assert own_trace(Context()) == ()
    (kept,) = own_trace(own(*[Arrival(0.0, 5, 120_000)] * 6))
    assert len(kept) == 4
    (kept,) = own_trace(own(Arrival(0.0, 200_000, 5)))
    assert len(kept) == 0
    assert manager_for(kept, "max").max_len == 2048
    assert manager_for(Workload("long", "", (Arrival(0.0, 3000, 9),)), "max").max_len == 4096


# ---- the parts


def test_bounds_become_classes():
    split = Bounds(tokens=3, final=5, promised=9, held=16).split(num_slots=20)
    assert split == Split(tokens=3, later=2, never=4, rounding=7, free=4)
    assert (split.held, split.waste) == (16, 100 * 13 / 16)
    assert split.percent() == {"tokens": 15, "reserved": 10, "never_used": 20, "holes": 55}


def test_an_average_weighs_by_time():
    average = Average(num_slots=10)
    average.add(1.0, 2, Bounds(2, 2, 4, 4))
    average.add(3.0, 6, Bounds(6, 6, 8, 8))
    assert average.mean_running == 5
    assert average.split == Split(5, 0, 2, 0, 3)


def test_nothing_seen_is_nothing_held():
    assert Average(num_slots=10).split == Split(0, 0, 0, 0, 10)
    assert Average(num_slots=10).split.waste == Average(num_slots=10).mean_running == 0
