"""The simulator does, step by step, what the real engine does, and leaps change nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from minipaged.claims import real
from minipaged.claims.cost import CostModel, Load
from minipaged.claims.generators import Lengths, drawn, sharegpt_like
from minipaged.claims.managers import MANAGERS, Manager
from minipaged.claims.outcome import Setting
from minipaged.claims.simulator import Simulator, prompt_tokens, simulate
from minipaged.claims.steps import StepRecord, watch
from minipaged.claims.workload import Arrival, Workload
from minipaged.core import InvalidRequest, Ledger, OutOfBlocks

SHORT = Lengths(24, 0.9), Lengths(20, 0.8)
SEATS, BUDGET = 8, 48  # of one step: prompts are cut into chunks
SMALL = {"num_blocks": 33, "block_size": 8, "max_len": 128}


@pytest.fixture(scope="module")
def model():
    return real.bundled()


def workload(num_arrivals: int = 24, rate: float = 12.0) -> Workload:
    return drawn("short", SHORT, num_arrivals, rate, seed=3, max_len=128)


def run_simulator(requests, manager, **options) -> tuple[list[int], list[StepRecord]]:
    """How many requests had come before each step, and what it was."""
    setting = Setting(max_num_seqs=SEATS, max_num_batched_tokens=BUDGET, **options)
    records, num_fed = [], []

    def see(step):
        num_fed.append(simulator.num_fed)
        records.append(StepRecord.of(step, simulator.pool))
        simulator.scheduler.check()

    simulator = Simulator(requests, manager, setting=setting, see=see)
    outcome = simulator.run()
    assert outcome.num_finished == len(requests) * setting.num_samples
    return num_fed, records


def run_engine(requests, manager, num_fed, model, prompts=None, n=1, **options) -> list[StepRecord]:
    """The same through the real one, requests coming before the same steps."""
    llm = real.engine(manager, model, max_num_seqs=SEATS, max_num_batched_tokens=BUDGET, **options)
    records, added = [], 0
    watch(llm.scheduler, lambda step: records.append(StepRecord.of(step, llm.pool)))
    prompts = prompts or real.prompts(requests, llm.config.vocab_size)
    several = {"n": n, "temperature": 1.0, "seed": 0} if n > 1 else {}
    for count in num_fed:
        for i in range(added, count):
            params = real.greedy(requests.arrivals[i].output_len)
            llm.add(prompts[i], replace(params, **several))
        added = count
        llm.step()
    assert not llm.has_unfinished
    return records


@pytest.mark.parametrize("name", MANAGERS)
def test_simulator_and_engine_agree_step_by_step(name, model):
    requests, manager = workload(), Manager(name, **SMALL)
    num_fed, simulated = run_simulator(requests, manager)
    assert run_engine(requests, manager, num_fed, model) == simulated
    # and it was worth agreeing on: chunks, batches, queues, and with paging preemptions
    assert any(1 < count < 24 for record in simulated for *_, count in record.work)
    assert max(len(record.work) for record in simulated) > 1
    assert num_fed[0] < num_fed[-1] == len(requests)
    assert any(record.preempted for record in simulated) == (name == "paged")


@pytest.mark.parametrize("name", ["max", "oracle"])
def test_they_agree_that_a_pool_can_be_full_to_the_last_block(name, model):
    """Eight runs of sixteen blocks are all of 128: nothing is kept free for growing."""
    arrivals = (Arrival(0.0, 100, 28),) * 9
    manager = Manager(name, num_blocks=128, block_size=8, max_len=128)
    num_fed, simulated = run_simulator(Workload("equal", "made up", arrivals), manager)
    assert max(len(record.work) for record in simulated) == 8
    requests = Workload("equal", "made up", arrivals)
    assert run_engine(requests, manager, num_fed, model) == simulated


def test_they_agree_about_swapping(model):
    requests, manager = workload(), Manager("paged", **SMALL)
    num_fed, simulated = run_simulator(requests, manager, preemption="swap")
    assert run_engine(requests, manager, num_fed, model, preemption="swap") == simulated
    assert sum(record.num_swapped for record in simulated) > 0


def test_they_agree_about_samples_that_share(model):
    requests, manager = workload(12, rate=6.0), Manager("paged", **SMALL)
    num_fed, simulated = run_simulator(requests, manager, num_samples=3)
    assert run_engine(requests, manager, num_fed, model, n=3) == simulated
    assert sum(record.num_copies for record in simulated) > 0


def test_they_agree_about_prefixes_that_are_found(model):
    """Pieces of 16 tokens, some in common; what was preempted finds its own blocks again."""
    pieces = [(0, 1), (0, 1), (0, 2), (3, 1), (0, 1), (0, 2)] * 3
    arrivals = [
        replace(a, prompt_len=34 + i % 5, output_len=5 + i % 9, prefix=pieces[i])
        for i, a in enumerate(workload(len(pieces)).arrivals)
    ]
    requests = Workload("prefixes", "made up", tuple(arrivals), piece_len=16)
    manager = Manager("paged", **SMALL)
    num_fed, simulated = run_simulator(requests, manager, prefix_caching=True)
    tokens = [prompt_tokens(a, 16, i) for i, a in enumerate(arrivals)]
    prompts = [[t + 1 if t >= 0 else 1000 - t for t in prompt] for prompt in tokens]
    found = run_engine(requests, manager, num_fed, model, prompts, prefix_caching=True)
    assert found == simulated
    assert sum(r.num_tokens for r in simulated) < sum(a.num_tokens - 1 for a in arrivals)


@pytest.mark.parametrize("name", MANAGERS)
@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "in-time"])
def test_leaps_change_nothing(name, at_once):
    """Not the least bit of time, and no step."""
    requests = sharegpt_like(40, rate=3.0)
    manager = Manager(name, num_blocks=300)
    plain, leaping = (
        simulate(requests, manager, setting=Setting(at_once=at_once, leaps=leaps))
        for leaps in (False, True)
    )
    assert leaping == plain
    assert plain.num_preemptions or name != "paged" or not at_once


@pytest.mark.parametrize("seed", range(40))
def test_leaps_change_nothing_where_everything_is_tight(seed):
    """Few seats, a small budget, a pool that is always full, requests that come now and then."""
    draw = Random(seed)
    name = MANAGERS[seed % len(MANAGERS)]
    manager = Manager(name, draw.randint(32, 60), draw.choice((2, 3, 8)), max_len=40)
    lengths = Lengths(draw.randint(2, 12), 0.8), Lengths(draw.randint(2, 12), 0.8)
    requests = drawn("tight", lengths, 40, draw.choice((5.0, 20.0, 80.0)), seed, max_len=40)
    setting = Setting(draw.randint(2, 12), draw.randint(4, 30), at_once=seed % 3 == 0)
    plain, leaping = (
        simulate(requests, manager, setting=replace(setting, leaps=leaps))
        for leaps in (False, True)
    )
    assert leaping == plain


def test_leaps_are_taken():
    simulator = Simulator(sharegpt_like(20), Manager("oracle"))
    num_calls = 0
    schedule = simulator.scheduler.schedule

    def count():
        nonlocal num_calls
        num_calls += 1
        return schedule()

    simulator.scheduler.schedule = count
    assert simulator.run().num_steps > 5 * num_calls


@pytest.mark.parametrize("name", MANAGERS)
def test_every_slot_is_in_one_class_at_every_step(name):
    manager, seen = Manager(name, **SMALL), 0

    def see(step):
        nonlocal seen
        seen += 1
        bounds = simulator._bounds()
        split = bounds.split(manager.num_slots)
        assert min(split) >= 0
        assert sum(split) == manager.num_slots
        assert sum(split.percent().values()) == pytest.approx(100)
        assert name != "oracle" or split.never == 0
        running = simulator.scheduler.running
        assert split.tokens == sum(s.table.num_reserved for s in running)
        if name == "paged":  # the engine's own ledger says the same
            tables = [s.table for s in running]
            ledger = Ledger.measure(tables, simulator.pool, manager.block_size)
            assert split.tokens == ledger.live + ledger.reserved
            assert (split.never, split.free) == (ledger.tail_waste, ledger.free)

    simulator = Simulator(workload(), manager, setting=Setting(at_once=True), see=see)
    simulator.run()
    assert seen > 50


def test_time_is_what_the_cost_model_says():
    """Two prompts of 3 and 5 tokens, 2 tokens each: one step for the prompts, one to decode."""
    cost = CostModel()
    requests = Workload("two", "made up", (Arrival(0.0, 3, 2), Arrival(0.0, 5, 2)))
    outcome = simulate(requests, Manager("paged"), cost)
    first, second = cost.seconds(Load(8, 8, 2)), cost.seconds(Load(2, 10, 2))
    assert (outcome.num_steps, outcome.num_computed) == (2, 10)
    assert outcome.seconds == first + second
    assert outcome.latencies == [(first + second) / 2] * 2
    assert outcome.mean_latency == (first + second) / 2


def test_who_comes_later_waits_for_the_clock():
    requests = Workload("late", "made up", (Arrival(0.0, 3, 1), Arrival(100.0, 3, 1)))
    outcome = simulate(requests, Manager("paged"))
    assert list(outcome.times) == [0.0, 100.0]
    assert outcome.always.seconds == pytest.approx(2 * CostModel().seconds(Load(3, 3, 1)))


def test_of_an_average_each_moment_counts_as_long_as_it_lasts():
    """One request alone: n tokens in step n, nobody waits."""
    requests = Workload("one", "made up", (Arrival(0.0, 1, 3),))
    outcome = simulate(requests, Manager("paged", num_blocks=2, block_size=4, max_len=8))
    seconds = [CostModel().seconds(Load(1, n, 1)) for n in (1, 2, 3)]
    split = outcome.always.split
    assert split.tokens == pytest.approx(
        sum(n * s for n, s in zip((1, 2, 3), seconds)) / sum(seconds)
    )
    assert (split.held, split.free) == (4, 4)
    assert outcome.queued.seconds == 0


@pytest.mark.parametrize("name", MANAGERS)
def test_what_can_never_fit_is_refused_with_the_numbers(name):
    requests = Workload("long", "made up", (Arrival(0.0, 100, 60),))
    with pytest.raises(InvalidRequest, match="160 tokens in all, a sequence has at most 128"):
        simulate(requests, Manager(name, **SMALL))
    with pytest.raises(InvalidRequest, match=r"need 20 blocks of 8|need a run of 32"):
        simulate(requests, Manager(name, num_blocks=2, block_size=8, max_len=256))


def test_a_contiguous_engine_answers_what_the_paged_one_does(model):
    """Where K and V lie changes no token."""
    requests = workload(8)
    params = [real.greedy(a.output_len) for a in requests.arrivals]
    answers = []
    for name in MANAGERS:
        llm = real.engine(Manager(name, **SMALL), model)
        outputs = llm.generate(real.prompts(requests, llm.config.vocab_size), params)
        answers.append([out.outputs[0].token_ids for out in outputs])
        assert llm.pool.ref_count == [0] * llm.pool.num_blocks
        llm.scheduler.check()
    assert answers.count(answers[0]) == len(MANAGERS)


def test_a_contiguous_engine_is_not_sanitized(model):
    with pytest.raises(InvalidRequest, match="watches blocks"):
        real.engine(Manager("max", **SMALL), model, sanitize=True)


def test_a_contiguous_engine_shares_nothing(model):
    llm = real.engine(Manager("max", **SMALL), model)
    with pytest.raises(InvalidRequest, match="cannot be shared"):
        llm.generate([1, 2], real.greedy(2, n=2))


def test_one_more_than_the_pool_has_raises_and_changes_nothing():
    manager = Manager("oracle", num_blocks=4, block_size=4, max_len=16)
    pool = manager.new_pool()
    first, second = (manager.new_table(pool, 8, 1) for _ in range(2))
    first.reserve(8)
    second.reserve(3)
    third = manager.new_table(pool, 1, 1)
    with pytest.raises(OutOfBlocks, match="1 new tokens need 1 blocks of 4, 0 of 4 are free"):
        third.reserve(1)
    assert (third.block_ids, pool.num_free) == ([], 0)
    pool.check()
