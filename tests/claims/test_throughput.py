"""C2: batches, rates and steps; what a cost model changes, and what it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipaged.claims import throughput
from minipaged.claims.claim import Context, Tolerance
from minipaged.claims.cost import CostModel, Load
from minipaged.claims.full_queue import full_queue
from minipaged.claims.generators import alpaca_like, sharegpt_like
from minipaged.claims.managers import MANAGERS, Manager
from minipaged.claims.outcome import Setting
from minipaged.claims.rates import sustainable_rate
from minipaged.claims.simulator import simulate
from minipaged.claims.verdicts import mark_of
from minipaged.claims.workload import Arrival, Workload


@pytest.fixture(scope="module")
def quick():
    return throughput.measure(Context(quick=True))


def test_the_real_engine_takes_the_steps_that_are_foretold(quick):
    steps = [row for row in quick.rows if "steps for" in row.what]
    assert len(steps) == 2
    assert all(row.verdict == "holds" and not row.wall for row in steps)
    assert steps[0].measured > steps[1].measured  # contiguous, paged


def test_wall_times_are_marked_and_nothing_else_is(quick):
    assert {row.what for row in quick.rows if row.wall} == {
        f"real engine, {name}: tokens generated" for name in ("max", "paged")
    }


def test_every_constant_that_is_not_known_is_varied(quick):
    ratios = {text: r["oracle"] for text, r in quick.series["sensitivity"].items()}
    assert len(ratios) == 1 + 2 * len(throughput.VARIED)
    as_it_is = ratios.pop(throughput.AS_IT_IS)
    assert as_it_is not in ratios.values()
    assert {"products at 25 % of the peak", "0.6 ms per sequence"} < set(ratios)


def test_the_batch_s_curve_can_be_drawn(quick):
    for curve in quick.series["batch"].values():
        assert 10 < len(curve["time"]) == len(curve["running"]) <= 300
        assert curve["time"] == sorted(curve["time"])


def test_the_user_s_own_trace_is_measured_too():
    """Two hundred requests keep every kind of memory busy, three none, thirty not long enough."""
    long = Workload("mine", "made up", tuple(Arrival(0.0, 10, 300 + i) for i in range(200)))
    rows, notes = throughput._own_rows(Context(trace=long))
    assert [row.what for row in rows if "paged" in row.what] == [
        "mine, paged: sequences in a step",
        *(f"mine, all at once: paged / {name}" for name in ("max", "pow2", "oracle")),
    ]
    assert rows[-3].measured > rows[-1].measured > 1
    assert notes == ("mine, made up; all at once, the same model and machine.",)
    for count, shares in ((3, "max 0%, pow2 0%, oracle 0%, paged 0%"), (30, "paged 0%")):
        rows, notes = throughput._own_rows(Context(trace=long.head(count)))
        assert not rows
        assert f"mine, {count} requests, not measured" in notes[0]
        assert shares in notes[0]
    assert throughput._own_rows(Context()) == ([], ())


@pytest.mark.parametrize(
    ("ratio", "verdict", "mark"),
    [(1.4, "differs", "✗ differs"), (1.62, "near", "≈ just below"), (1.7, "agrees", "✓ agrees")],
)
def test_a_ratio_below_the_range_is_not_said_to_agree(ratio, verdict, mark):
    """Ten per cent beside it are allowed, and it is said that they were needed."""
    row = throughput._ratio_row("", Tolerance.between(*throughput.PAPER_RATIO["oracle"]), ratio)
    assert (row.verdict, mark_of(row)) == (verdict, mark)
    assert ("10% beside the range" in row.note) == (verdict != "agrees")


def test_paging_holds_more_and_sustains_more():
    workload = sharegpt_like(500)
    full = Setting(at_once=True)
    outcomes = {n: simulate(workload, Manager(n), setting=full) for n in MANAGERS}
    batches = [outcomes[name].queued.mean_running for name in ("max", "pow2", "oracle", "paged")]
    assert batches == sorted(batches)
    assert batches[0] == pytest.approx(7, abs=0.01)
    rates = [outcomes[name].throughput for name in ("max", "pow2", "oracle", "paged")]
    assert rates == sorted(rates)


@pytest.mark.parametrize("name", MANAGERS)
def test_with_a_full_queue_a_cost_model_prices_steps_and_changes_none(name):
    workload, setting = alpaca_like(120), Setting(at_once=True)
    other = replace(CostModel(), per_seq=5e-3, bandwidth_used=0.3)
    manager = Manager(name, num_blocks=150)
    ours, theirs = (simulate(workload, manager, cost, setting) for cost in (CostModel(), other))
    assert (ours.running, ours.attended) == (theirs.running, theirs.attended)
    assert ours.token_rate(other) == pytest.approx(theirs.token_rate(other))
    assert ours.token_rate(CostModel()) != pytest.approx(ours.token_rate(other))
    tokens = sum(arrival.output_len for arrival in workload.arrivals)
    assert ours.token_rate(other) == pytest.approx(tokens / theirs.seconds)


WORKLOADS = {
    "one": Workload("one", "", (Arrival(0.0, 700, 90),)),
    "few": sharegpt_like(5),
    "few short": alpaca_like(30),
    "some": sharegpt_like(30),
    "a queue": sharegpt_like(120),
    "short": alpaca_like(200),
    "answers of one token": Workload("", "", (Arrival(0.0, 400, 1),) * 90),
}


@pytest.mark.parametrize("name", MANAGERS)
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_rate_is_all_answers_by_all_of_the_time(workload, name):
    """Never more than seats for every step, never less than serving one after the other.

    So no workload is too small for it: computing prompts while others wait counts as time, and
    each token of an answer counts once.
    """
    manager, cost, setting = Manager(name), CostModel(), Setting(at_once=True)
    outcome = simulate(workload, manager, cost, setting)
    tokens = sum(arrival.output_len for arrival in workload.arrivals)
    rate = outcome.token_rate(cost)
    assert rate == pytest.approx(tokens / outcome.seconds)
    assert rate <= max(outcome.running) / cost.seconds(Load(1, 1, 1))
    alone = (Workload("", "", (arrival,)) for arrival in workload.arrivals)
    one_by_one = sum(simulate(each, manager, cost, setting).seconds for each in alone)
    assert rate >= tokens / one_by_one * (1 - 1e-9)


@pytest.mark.parametrize("count", [1, 5])
def test_where_memory_is_no_limit_all_ways_to_keep_it_are_alike(count):
    full = full_queue(sharegpt_like(count), Context())
    for ratios in throughput.sensitivity(full).values():
        assert set(ratios.values()) == {1.0}


@pytest.mark.parametrize("count", [30, 60, 120, 240])
def test_paging_is_not_slower_where_it_holds_more(count):
    """Whoever holds more at a time is done sooner, however soon nobody waits any more."""
    full = full_queue(sharegpt_like(count), Context())
    ratios = throughput.sensitivity(full)[throughput.AS_IT_IS]
    assert 1 < ratios["oracle"] < ratios["pow2"] < ratios["max"] < 30 / 7


def test_a_full_queue_is_simulated_once():
    workload = sharegpt_like(6)
    first, again = (full_queue(workload, Context()) for _ in range(2))
    assert all(first[name] is again[name] for name in MANAGERS)


def test_the_cost_of_a_step_by_hand():
    """A thousand tokens computed take longer than reading the weights, one token does not."""
    cost = CostModel(
        weight_bytes=8e9,
        kv_bytes=1e3,
        flops_per_token=1e9,
        peak_flops=1e13,
        peak_bandwidth=1e12,
        flops_used=0.5,
        bandwidth_used=0.8,
        per_step=1e-3,
        per_seq=1e-4,
        bus_bandwidth=1e9,
        per_transfer=1e-6,
        transfers_per_block=10,
    )
    assert cost.seconds(Load(1, 0, 0)) == pytest.approx(10e-3 + 1e-3)
    assert cost.seconds(Load(1000, 0, 0)) == pytest.approx(200e-3 + 1e-3)
    assert cost.seconds(Load(1, 8_000_000, 5)) == pytest.approx(10e-3 + 10e-3 + 1e-3 + 5e-4)
    assert cost.swap_seconds(num_blocks=3, block_size=4) == pytest.approx(3 * (1e-5 + 4e-6))
    swapping = cost.seconds(Load(1, 0, 0, num_swapped=3), block_size=4)
    assert swapping == pytest.approx(11e-3 + 3 * 14e-6)


def test_a_rate_is_sustained_as_long_as_the_latency_is():
    """One request a time, always the same: the rate is one over the time that it takes."""
    workload = Workload("same", "made up", tuple(Arrival(float(i), 100, 20) for i in range(4000)))
    manager = Manager("max", num_blocks=128)
    alone = simulate(workload.head(1), manager).seconds
    found = sustainable_rate(workload, manager, minutes=20, precision=0.01)
    assert found.rate == pytest.approx(1 / alone, rel=0.05)
    assert found.points[found.rate] == pytest.approx(0.15, rel=0.01)
    below, above = found.rate * 0.9, found.rate * 1.1
    latency = [
        simulate(workload.head(1000).scaled_to(rate), manager).mean_latency
        for rate in (below, above)
    ]
    assert latency[0] < 0.15 < latency[1]
    assert set(found.points.values()) != {0.0}
