"""The judge of block managers: it passes what is right, and what is wrong does not get past it."""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial

import pytest

from minipaged.oracle.managers import ManagerContract, Plan, Size, check_block_manager
from minipaged.oracle.managers.check import Session
from minipaged.oracle.managers.museum import FAULTS, judge
from minipaged.oracle.managers.ours import CORE, SCHEDULER, CoreAdapter, SchedulerAdapter
from minipaged.oracle.managers.programs import Program
from minipaged.oracle.managers.shadow import brief_key
from minipaged.oracle.managers.specimen_pool import POOL, Pool
from minipaged.oracle.managers.specimen_scheduler import Scheduler

RIGHT = {
    "core": (CoreAdapter, CORE),
    "scheduler": (SchedulerAdapter, SCHEDULER),
    "specimen pool": (Pool, POOL),
    "specimen scheduler": (Scheduler, POOL),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_manager_passes(name: str):
    make, contract = RIGHT[name]
    report = check_block_manager(make, contract, seed=1, max_examples=60, deadline_s=60)
    report.raise_if_failed()
    assert report.cases > 150
    assert report.kind == "block manager"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_every_fault_of_the_museum_is_noticed(fault):
    assert judge(fault, max_examples=300).killed


def test_the_faults_of_the_museum_are_many_and_different():
    assert len(FAULTS) >= 35
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    assert all("#" in fault.like or fault.like == "ours" for fault in FAULTS)


def test_the_same_seed_gives_the_same_verdict():
    fault = next(f for f in FAULTS if f.name == "a refilled block keeps its old key")
    first, second = (check_block_manager(fault.maker, POOL, max_failures=1) for _ in range(2))
    assert first.failures[0].picture == second.failures[0].picture
    assert first.failures[0].calls == second.failures[0].calls


def test_a_failure_tells_the_shortest_program_step_by_step():
    fault = next(f for f in FAULTS if f.name == "a prompt may be found whole")
    failure = check_block_manager(fault.maker, POOL, max_failures=1).failures[0]
    assert failure.check == "length of a hit"
    assert failure.picture.startswith("a pool of ")
    assert "  1 add A" in failure.picture
    assert failure.picture.splitlines()[-1] == f"    here: {failure.message}"
    assert len(failure.case.acts) <= 2


# --- laws that others would mistake ---------------------------------------------------------------


def run(make, contract, size: Size, *acts):
    session = Session(make, contract, callable(getattr(make, "step", None)))
    return session.run(Program(size, acts))


def test_who_comes_back_needs_no_headroom_and_takes_none_from_who_entered_before():
    size = Size(6, 4, max_seqs=3, headroom=2)
    samples = ("add", (0, 1, 1, 0), 6, "x", 3), ("add", (0, 1, 1, 0, 0), 1, "x", 1)
    end = ("add", (5,), 2, "", 1), ("step", 1), ("unsampled", 2)
    verdict = run(SchedulerAdapter, SCHEDULER, size, *samples, *end)
    assert any("C is preempted" in line for line in verdict.story)
    assert verdict.law is None


class HostCountedWrong(CoreAdapter):
    def num_host_free(self):
        return super().num_host_free() - (self.host.num_free < self.host.num_blocks)


def test_host_blocks_are_counted_where_the_manager_tells_them():
    acts = ("add", ((0, 0, 0),), "", 0), ("swap", 0, True)
    size = Size(4, 2, num_host_blocks=4)
    assert run(CoreAdapter, CORE, size, *acts).law is None
    verdict = run(HostCountedWrong, CORE, size, *acts)
    assert verdict.law == "no block is lost"
    assert verdict.message == "on the host 2 blocks are held, 1 are free, 4 exist"


def test_what_a_window_gives_back_too_early_is_told_as_missing():
    class Eager(CoreAdapter):
        def tables(self):
            return {name: [-1, *ids[1:]] for name, ids in super().tables().items()}

    verdict = run(Eager, CORE, Size(4, 2), ("add", ((0, 0, 0),), "", 0))
    assert verdict.law == "block ids"
    assert verdict.message.startswith("blocks that are still read are missing: A has [-1, ")


def test_a_story_tells_both_ends_of_a_long_key():
    assert brief_key("x ") == "key 'x '"
    assert brief_key("k" * 64 + "1") == "key 'kkkkkkkkkk...kkkkkkkkk1'"


def test_an_abort_prefers_who_had_to_leave_if_it_is_asked_to():
    asked = ("add", (0, 0, 0), 6, "", 1), ("add", (1, 1, 1), 6, "", 1), ("step", 4)
    verdict = run(Scheduler, POOL, Size(4, 2), *asked, ("abort", 0, True))
    assert any("B is preempted" in line for line in verdict.story)
    assert "abort B" in verdict.story


# --- managers that misbehave ---------------------------------------------------------------------


class Raising(Pool):
    def commit(self, name, tokens, num_computed):
        raise RuntimeError("boom")


class Exiting(Pool):
    def commit(self, name, tokens, num_computed):
        raise SystemExit(3)


class Nonsense(Pool):
    def tables(self):
        return dict.fromkeys(self.entries, "blocks")


class NothingTold(Pool):
    def tables(self):
        return None


class OutOfRange(Pool):
    def tables(self):
        return {name: [b + 100 for b in entry.table] for name, entry in self.entries.items()}


class Liar(Pool):
    def num_free(self):
        return -1


class HitOfAnotherType(Pool):
    def add(self, name, tokens, key, num_new):
        hit = super().add(name, tokens, key, num_new)
        return hit if hit is None else str(hit)


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (Raising, "does not crash"),
        (Exiting, "does not crash"),
        (Nonsense, "block ids"),
        (NothingTold, "block ids"),
        (OutOfRange, "block ids"),
        (Liar, "block ids"),
        (HitOfAnotherType, "length of a hit"),
    ],
)
def test_nonsense_is_a_failure_and_not_a_traceback_of_ours(make, law: str):
    report = check_block_manager(make, POOL, max_failures=1)
    assert [failure.check for failure in report.failures] == [law]


def test_a_manager_that_cannot_be_made_is_a_failure():
    report = check_block_manager(lambda size: 1 / 0, name="none")
    assert not report.passed
    assert "ZeroDivisionError" in report.failures[0].message


def test_a_manager_that_hangs_is_a_failure(monkeypatch):
    from minipaged.oracle.managers import check

    class Hanging(Pool):
        def commit(self, name, tokens, num_computed):
            while True:
                time.sleep(0.01)

    monkeypatch.setattr(check, "SECONDS_PER_PROGRAM", 0.2)
    report = check_block_manager(Hanging, POOL, max_failures=1)
    assert [failure.check for failure in report.failures] == ["comes back"]


@pytest.mark.parametrize(
    "plan",
    [None, Plan([("nobody", 0, 1)]), Plan([(1, 2)]), Plan([], copies=[(0, 99)])],  # type: ignore[list-item]
    ids=["none", "nobody", "no range", "copy from nowhere"],
)
def test_a_plan_that_is_none_is_a_failure(plan):
    class Planless(Scheduler):
        def step(self):
            super().step()
            return plan

    assert not check_block_manager(Planless, POOL, max_failures=1).passed


# --- contracts -----------------------------------------------------------------------------------


def test_a_manager_is_judged_by_what_it_promises():
    class Random(Pool):
        def next_victim(self):
            return self.free_queue.popitem()[0]

    assert not check_block_manager(Random, POOL).passed
    modest = ManagerContract(
        deduplicates=False, eviction="any", blank_first=False, tail_first=False
    )
    report = check_block_manager(Random, modest, max_examples=100)
    report.raise_if_failed()
    assert "eviction=any: which prefix is evicted first was not judged" in report.not_judged


def test_what_a_manager_cannot_do_is_listed_as_not_judged():
    class Plain(Pool):
        fork = truncate = cancel = reset = find = None  # type: ignore[assignment]

    report = check_block_manager(Plain, ManagerContract(deduplicates=False), max_examples=50)
    report.raise_if_failed()
    for method in ("fork", "truncate", "cancel", "reset", "find", "slide", "swap_out"):
        assert any(told.startswith(f"no {method}: ") for told in report.not_judged)


def test_a_manager_without_a_prefix_cache_can_pass():
    class Forgetful(Pool):
        find = None  # type: ignore[assignment]

        def publish(self, block, key):
            """Nothing is ever found."""

    assert not check_block_manager(Forgetful, POOL, max_examples=1).passed
    plain = ManagerContract(deduplicates=False, prefix_cache=False)
    check_block_manager(Forgetful, plain, max_examples=50).raise_if_failed()


def test_a_reserved_block_is_taken_into_account():
    class WithNull(Pool):
        def __init__(self, size: Size):
            super().__init__(size)
            del self.free_queue[0]

    assert not check_block_manager(WithNull, POOL, max_examples=1).passed
    honest = ManagerContract(deduplicates=False, reserved_blocks=1)
    check_block_manager(WithNull, honest, max_examples=50).raise_if_failed()


# --- other people's ------------------------------------------------------------------------------

NANO_VLLM = os.environ.get("MINIPAGED_NANO_VLLM")


@pytest.mark.skipif(not NANO_VLLM, reason="MINIPAGED_NANO_VLLM is not the path of a checkout")
def test_nano_vllm_keeps_what_it_promises_and_not_all_that_one_would_wish():
    pytest.importorskip("xxhash")
    from minipaged.oracle.managers.nano_vllm import NANO, NANO_FULL, NanoVllmAdapter

    make = partial(NanoVllmAdapter, str(NANO_VLLM))
    check_block_manager(make, NANO, name="nano-vllm", max_examples=100).raise_if_failed()
    wished = check_block_manager(make, NANO_FULL, name="nano-vllm", max_failures=8)
    laws = {failure.check for failure in wished.failures}
    assert {"admission", "does not crash", "nobody waits", "the oldest goes on"} <= laws


def test_vllm_keeps_what_it_promises():
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from minipaged.oracle.managers.vllm_v1 import VLLM, VllmAdapter

    report = check_block_manager(VllmAdapter, VLLM, max_examples=20, deadline_s=60)
    report.raise_if_failed()
