"""C2: batches, rates and steps; what a cost model changes, and what it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minipaged.claims import throughput
from minipaged.claims.claim import Context
from minipaged.claims.cost import CostModel, Load
from minipaged.claims.generators import alpaca_like, sharegpt_like
from minipaged.claims.managers import MANAGERS, Manager
from minipaged.claims.outcome import Setting
from minipaged.claims.rates import sustainable_rate
from minipaged.claims.simulator import simulate
from minipaged.claims.workload import Arrival, Workload


@pytest.fixture(scope="module")
def quick():
    return throughput.measure(Context(quick=True))


def test_the_real_engine_takes_the_steps_that_are_foretold(quick):
    steps = [row for row in quick.rows if "steps for" in row.what]
    assert len(steps) == 2
    assert all(row.verdict == "agrees" and not row.wall for row in steps)
    assert steps[0].measured > steps[1].measured  # contiguous, paged


def test_wall_times_are_marked_and_nothing_else_is(quick):
    assert {row.what for row in quick.rows if row.wall} == {
        f"real engine, {name}: tokens generated" for name in ("max", "paged")
    }


def test_every_constant_that_is_not_known_is_varied(quick):
    varied = {text.split(" = ")[0] for text in quick.series["sensitivity"]}
    assert varied == {throughput.AS_IT_IS, *throughput.VARIED}
    ratios = {text: r["oracle"] for text, r in quick.series["sensitivity"].items()}
    assert all(
        ratio != ratios[throughput.AS_IT_IS]
        for text, ratio in ratios.items()
        if text != throughput.AS_IT_IS
    )


def test_the_batch_s_curve_can_be_drawn(quick):
    for curve in quick.series["batch"].values():
        assert 10 < len(curve["time"]) == len(curve["running"]) <= 300
        assert curve["time"] == sorted(curve["time"])


def test_the_user_s_own_trace_is_measured_too():
    """Ninety requests are too many for every kind of memory, three for none."""
    long = Workload("mine", "made up", tuple(Arrival(0.0, 10, 300 + i) for i in range(90)))
    rows, notes = throughput._own_rows(Context(trace=long))
    assert [row.what for row in rows if "paged" in row.what] == [
        "mine, paged: sequences in a step",
        *(f"mine, full queue: paged / {name}" for name in ("max", "pow2", "oracle")),
    ]
    assert rows[-3].measured > rows[-1].measured > 1
    assert notes == ("mine: made up; full queue, the same model and machine",)
    rows, notes = throughput._own_rows(Context(trace=long.head(3)))
    assert not rows
    assert "nobody ever waited" in notes[0]
    assert throughput._own_rows(Context()) == ([], ())


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
    waited = zip(theirs.running, theirs.waiting)
    expected = sum(n for n, waits in waited if waits) / theirs.queued.seconds
    assert ours.token_rate(other) == pytest.approx(expected)


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
