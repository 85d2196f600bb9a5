"""Who is computed, who enters and who must leave, on examples small enough to count by hand.

Blocks hold 4 tokens throughout. A, B, C ... are sequences in order of their arrival.
"""

from __future__ import annotations

import pytest

from minipaged.core import NO_BLOCK, BlockPool, BlockTable, root_hash
from minipaged.engine.beam import BeamSearch
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.engine.scheduler import Scheduler, Step
from minipaged.engine.sequence import Request, Sequence

SIZE = 4


class Bench:
    """A scheduler whose steps always succeed; every sequence that can be sampled gets a 7."""

    def __init__(self, num_blocks: int, *, host: int = 0, caching: bool = True, **options):
        self.pool, self.root = BlockPool(num_blocks), root_hash() if caching else None
        host_pool = BlockPool(host) if host else None
        options = {"watermark": 0.0} | options
        self.scheduler = Scheduler(self.pool, SIZE, host_pool=host_pool, **options)
        self.names: dict[Sequence, str] = {}
        self.num_requests = 0

    def add(self, prompt: int | str, *, beams: int = 0, prompt_logprobs=None, salt="") -> Sequence:
        """``prompt`` is a number of tokens that nobody else has, or the letters of the tokens."""
        order, self.num_requests = self.num_requests, self.num_requests + 1
        tokens = [1000 + order] * prompt if isinstance(prompt, int) else [ord(c) for c in prompt]
        params = SamplingParams(prompt_logprobs=prompt_logprobs)
        search = None
        if beams:
            params = BeamSearchParams(beam_width=beams)
            search = BeamSearch.start(params, (), 99)
        root = root_hash({"salt": salt}) if self.root and salt else self.root
        request = Request(
            str(order), order, None, tokens, params, 99, frozenset(), root, search=search
        )
        sequence = Sequence(request, 0, list(tokens), BlockTable(self.pool, SIZE, root))
        request.sequences.append(sequence)
        self.names[sequence] = "ABCDEFGH"[order]
        self.scheduler.add(sequence)
        return sequence

    def fork(self, parent: Sequence, name: str) -> Sequence:
        """One more sample, or beam, of the same request."""
        child = parent.fork(len(parent.request.sequences))
        parent.request.sequences.append(child)
        self.names[child] = name
        self.scheduler.join(child)
        return child

    def plan(self) -> dict[str, int]:
        """Decide a step: who computes how many tokens."""
        self.step = self.scheduler.schedule()
        return {self.names[s]: n for s, n in self.step.work}

    def run(self, num_steps: int = 1) -> dict[str, int]:
        """Whole steps; returns the last one's plan."""
        for _ in range(num_steps):
            plan = self.plan()
            self.scheduler.commit(self.step)
            for s, _ in self.step.work:
                if not s.num_remaining:
                    s.token_ids.append(7)
            self.scheduler.check()
        return plan

    def names_of(self, sequences: list[Sequence]) -> str:
        return "".join(self.names[s] for s in sequences)

    @property
    def running(self) -> str:
        return self.names_of(self.scheduler.running)

    @property
    def waiting(self) -> str:
        return self.names_of(self.scheduler.waiting)

    @property
    def preempted(self) -> str:
        return self.names_of(self.step.preempted)


# --- 1. the token budget --------------------------------------------------------------------------


def test_a_request_without_prefixes_does_not_wait_for_one_that_is_computed():
    bench = Bench(8)
    bench.add("aaaabbbbcc")
    bench.root = None
    bench.add("aaaabbbbcc")
    assert bench.plan() == {"A": 10, "B": 10}


def test_a_prompt_is_computed_then_one_token_at_a_time():
    bench = Bench(8)
    bench.add(6)
    assert [bench.run() for _ in range(3)] == [{"A": 6}, {"A": 1}, {"A": 1}]


def test_a_prompt_longer_than_the_budget_comes_in_chunks():
    bench = Bench(8, max_num_batched_tokens=4)
    bench.add(10)
    assert [bench.run() for _ in range(4)] == [{"A": 4}, {"A": 4}, {"A": 2}, {"A": 1}]


@pytest.mark.invariant(11)
def test_decodes_go_before_long_prompts():
    bench = Bench(20, max_num_batched_tokens=8)
    for prompt in (2, 3, 20, 1):
        bench.add(prompt)
    assert bench.run() == {"A": 2, "B": 3, "C": 3}
    assert bench.run() == {"A": 1, "B": 1, "C": 6}  # D waits, A and B do not
    assert bench.run() == {"A": 1, "B": 1, "C": 6}
    assert bench.run() == {"A": 1, "B": 1, "C": 5, "D": 1}


def recomputing(budget: int, **options) -> Bench:
    """The oldest has 20 tokens to compute, B and C one each."""
    bench = Bench(20, caching=False, **options)
    a = bench.add(19)
    bench.add(1)
    bench.add(1)
    bench.run()
    a.table.truncate(0)
    bench.scheduler.max_num_batched_tokens = budget
    return bench


@pytest.mark.parametrize(
    ("budget", "plan"),
    [
        (30, {"A": 20, "B": 1, "C": 1}),
        (22, {"A": 20, "B": 1, "C": 1}),
        (21, {"A": 19, "B": 1, "C": 1}),
        (4, {"A": 2, "B": 1, "C": 1}),
        (3, {"A": 1, "B": 1, "C": 1}),
        (2, {"A": 1, "B": 1}),
        (1, {"A": 1}),
    ],
)
@pytest.mark.invariant(11)
def test_the_oldest_leaves_one_token_to_each_decode_but_takes_at_least_one(budget, plan):
    assert recomputing(budget).run() == plan


def test_no_more_sequences_than_allowed_are_computed_the_oldest_first():
    bench = Bench(8, max_num_seqs=2)
    a = bench.add(1)
    bench.run()
    for name in "bc":
        bench.fork(a, name).token_ids[-1] = ord(name)
    bench.add(1)
    assert bench.run() == {"A": 1, "b": 1}
    bench.scheduler.remove(a)
    assert bench.run() == {"b": 1, "c": 1}
    assert bench.waiting == "B"


# --- 2. who enters --------------------------------------------------------------------------------


def test_a_small_one_does_not_overtake_a_large_one():
    bench = Bench(6)
    a = bench.add(12)
    bench.run()  # A holds 3 of 6 blocks
    bench.add(16)  # B needs 4
    bench.add(1)  # C needs 1
    assert bench.run() == {"A": 1}  # now A holds 4
    assert bench.waiting == "BC"
    bench.scheduler.remove(a)
    assert bench.run() == {"B": 16, "C": 1}


def test_blocks_promised_to_a_prompt_in_chunks_are_not_given_to_another():
    bench = Bench(6, max_num_batched_tokens=6)
    bench.add(16)  # 4 blocks in the end
    assert bench.run() == {"A": 6}
    bench.add(9)  # 3 blocks: there are 4 free, but 2 are promised
    bench.scheduler.max_num_batched_tokens = 12
    assert bench.run() == {"A": 10}
    assert bench.waiting == "B"


def test_what_fits_beside_promised_blocks_enters_at_once():
    bench = Bench(6, max_num_batched_tokens=6)
    bench.add(16)
    bench.run()
    bench.add(8)  # 2 blocks: just what is not promised
    bench.scheduler.max_num_batched_tokens = 12
    assert bench.run() == {"A": 10, "B": 2}


def test_new_requests_leave_headroom_while_others_run():
    bench = Bench(8, watermark=0.25)  # 2 blocks
    a = bench.add(8)
    bench.run()
    bench.add(20)  # needs 5 of the 5 that are free after A's next token
    assert bench.run() == {"A": 1}
    assert bench.waiting == "B"
    bench.scheduler.remove(a)
    bench.add(9)  # needs 3 of the 3 that B leaves
    assert bench.run() == {"B": 20}


def test_nobody_needs_headroom_where_nobody_runs():
    bench = Bench(8, watermark=0.25)
    bench.add(32)
    assert bench.run() == {"A": 32}


def test_who_comes_back_needs_no_headroom():
    bench = Bench(4, watermark=0.25, caching=False)  # 1 block
    a, b = bench.add(3), bench.add(8)
    bench.run()
    b.request.num_preemptions = 1
    b.table.release()
    bench.scheduler.running.remove(b)
    bench.scheduler.add(b)
    bench.run()
    assert (bench.running, len(a.table.block_ids), len(b.table.block_ids)) == ("AB", 1, 3)


def test_a_hit_on_blocks_in_use_counts_as_room():
    bench = Bench(4)
    bench.add("abcdefgh.")  # 3 blocks, one is free
    bench.run()
    b = bench.add("abcdefghi")  # 3 blocks, 2 of them A's
    assert bench.run() == {"A": 1, "B": 1}
    assert (b.request.num_cached_tokens, bench.pool.num_free) == (8, 0)


def test_a_hit_on_free_blocks_takes_them_out_of_the_free_ones():
    bench = Bench(6)
    a = bench.add("abcdefgh.")
    bench.run()
    bench.scheduler.remove(a)
    bench.add(13)  # takes the 4 blank blocks; the 2 that remain free are A's
    bench.run()
    assert (bench.pool.num_free, bench.pool.num_cached) == (2, 2)
    bench.add("abcdefghi")  # needs these 2 and one more, not 3 - 2 = 1
    assert bench.run() == {"B": 1}
    assert bench.waiting == "C"


def test_hits_are_looked_up_again_when_room_is_found():
    bench = Bench(6)
    a = bench.add("abcdefgh.")
    bench.run()
    bench.scheduler.remove(a)
    b = bench.add(13)
    c = bench.add("abcdefghi")
    bench.run()  # C would find 8 tokens but lacks a block
    assert bench.waiting == "C"
    bench.run(8)  # B grows over the cached blocks
    assert bench.pool.num_cached < 2
    bench.scheduler.remove(b)
    assert bench.run() == {"C": 9 - c.request.num_cached_tokens}
    assert c.request.num_cached_tokens < 8


@pytest.mark.invariant(5)
def test_at_least_one_token_is_computed_however_much_is_known():
    bench = Bench(8)
    bench.add("abcdefgh")
    bench.run()
    b = bench.add("abcdefgh")
    assert bench.run() == {"A": 1, "B": 4}
    assert b.request.num_cached_tokens == 4


def test_prompt_logprobs_need_every_token_so_nothing_is_skipped_but_all_is_published():
    bench = Bench(12)
    bench.add("abcdefghi")
    bench.run()
    for wish in (0, 2):
        b = bench.add("abcdefghi", prompt_logprobs=wish)
        assert bench.run()[bench.names[b]] == 9
        assert b.request.num_cached_tokens == 0
        bench.scheduler.remove(b)
    bench.pool.forget_prefixes()
    bench.add("stuvwxyz!", prompt_logprobs=0)
    bench.run()
    bench.add("stuvwxyz?")
    assert bench.run()["E"] == 1


@pytest.mark.invariant(7)
def test_a_prefix_that_is_being_computed_is_waited_for():
    bench = Bench(12)
    bench.add("abcdefgh1")
    bench.add("abcdefgh2")
    bench.add("xyz")  # does not share it, so need not wait
    assert bench.run() == {"A": 9, "C": 3}
    assert bench.run() == {"A": 1, "B": 1, "C": 1}


def test_a_prefix_is_waited_for_chunk_by_chunk():
    bench = Bench(12, max_num_batched_tokens=5)
    bench.add("abcdefgh1")
    bench.add("abcdefgh2")
    assert [bench.run() for _ in range(3)] == [{"A": 5}, {"A": 4}, {"A": 1, "B": 1}]


@pytest.mark.parametrize("other", [{"caching": False}, {"salt": "x"}])
def test_nobody_waits_for_what_could_not_be_shared(other):
    bench = Bench(12, caching=other.get("caching", True))
    bench.add("abcdefgh1")
    bench.add("abcdefgh2", salt=other.get("salt", ""))
    assert bench.run() == {"A": 9, "B": 9}


# --- 3. who must leave ----------------------------------------------------------------------------


def three_at_the_edge(num_blocks: int = 6, **options) -> Bench:
    """A, B and C hold 2 full blocks each, and each needs a third one now."""
    bench = Bench(num_blocks, caching=False, **options)
    for _ in range(3):
        bench.add(8)
    bench.run()
    assert (bench.running, bench.pool.num_free) == ("ABC", num_blocks - 6)
    return bench


@pytest.mark.invariant(11)
def test_the_newest_is_preempted_and_is_not_in_the_plan():
    bench = three_at_the_edge()
    assert bench.run() == {"A": 1, "B": 1}
    assert (bench.preempted, bench.running, bench.waiting) == ("C", "AB", "C")
    (c,) = bench.scheduler.waiting
    assert (c.table.block_ids, c.num_remaining, c.request.num_preemptions) == ([], 9, 1)
    assert bench.step.swaps_out == []


def test_a_preempted_one_is_computed_again_when_there_is_room():
    bench = three_at_the_edge()
    bench.run()
    bench.scheduler.remove(bench.scheduler.running[0])
    assert bench.run() == {"B": 1, "C": 9}


def test_nobody_enters_a_step_in_which_somebody_must_leave():
    bench = three_at_the_edge()
    bench.add(1)
    assert bench.run() == {"A": 1, "B": 1}
    assert bench.waiting == "CD"


def test_who_was_preempted_returns_before_anybody_newer():
    bench = three_at_the_edge(num_blocks=7)
    bench.add(1)
    bench.run(2)
    assert (bench.waiting, bench.pool.num_free) == ("CD", 1)  # enough for D, but not for C
    bench.scheduler.remove(bench.scheduler.running[0])
    assert bench.run() == {"B": 1, "C": 9, "D": 1}


@pytest.mark.invariant(11)
def test_the_oldest_goes_on_whoever_must_leave_for_it():
    bench = three_at_the_edge()
    a = bench.scheduler.running[0]
    for _ in range(16):
        bench.run()
        assert a in bench.scheduler.running
    assert len(a.token_ids) == 8 + 1 + 16
    assert bench.running == "A"


def test_swapping_keeps_what_was_computed():
    bench = three_at_the_edge(host=2)
    (c,) = [s for s in bench.scheduler.running if bench.names[s] == "C"]
    held = list(c.table.block_ids)
    assert bench.run() == {"A": 1, "B": 1}
    assert [copy.source for copy in bench.step.swaps_out] == held
    assert (bench.preempted, c.table.num_tokens, c.num_remaining) == ("C", 8, 1)
    bench.scheduler.remove(bench.scheduler.running[0])
    assert bench.run() == {"B": 1, "C": 1}
    assert bench.names_of(bench.step.resumed) == "C"
    assert [copy.destination for copy in bench.step.swaps_in] == c.table.block_ids[:2]


def test_where_the_host_is_full_too_the_next_one_is_computed_again():
    bench = Bench(6, host=2, caching=False)
    for _ in range(3):
        bench.add(8)
    bench.run(1)
    bench.run(5)  # C went to the host, and then B must go as well
    b, c = bench.scheduler.waiting
    assert bench.names_of([b, c]) == "BC"
    assert (len(c.table.block_ids), b.table.block_ids, b.num_remaining) == (2, [], 13)


def test_a_copy_of_a_shared_block_may_cost_somebody_his_place():
    bench = Bench(3, caching=False)
    a = bench.add(6)
    bench.run()
    bench.fork(a, "a")
    bench.add(4)
    bench.run()
    assert bench.running == "Aa"  # B does not fit beside the copy of A's second block
    assert len(bench.step.copies) == 1


def test_beams_leave_together_and_come_back_together():
    bench = Bench(8, host=8)
    bench.add(4)
    b = bench.add(6, beams=2)
    bench.run()
    twin = bench.fork(b, "b")
    twin.token_ids[-1] = 8
    bench.run(6)  # A has 10 tokens in 3 blocks, each beam 12: one block is shared, 2 are its own
    assert (bench.running, bench.pool.num_free) == ("ABb", 0)
    assert bench.run() == {"A": 1}
    assert (bench.preempted, bench.running, bench.waiting) == ("Bb", "A", "Bb")
    assert bench.scheduler.num_preemptions == b.request.num_preemptions == 1
    assert len({c.source for c in bench.step.swaps_out}) == len(bench.step.swaps_out)
    bench.scheduler.remove(bench.scheduler.running[0])
    bench.run()
    assert bench.running == "Bb"
    assert b.table.block_ids[0] == twin.table.block_ids[0]  # what was shared is shared


def test_beams_are_swapped_only_all_together():
    """Back from the host, a lone beam publishes nothing that its mates could share."""
    bench = Bench(3, host=3, caching=False)
    a, b = bench.add(4), bench.add(3, beams=2)
    bench.run()
    mate = b.fork(1)
    b.request.sequences.append(mate)
    mate.table.release()
    bench.names[mate] = "b"
    bench.scheduler.add(mate)  # it was preempted, and finds no room yet
    assert (bench.run(), bench.waiting) == ({"A": 1, "B": 1}, "b")
    assert (bench.run(), bench.preempted) == ({"A": 1}, "B")
    assert (bench.step.swaps_out, b.table.block_ids, b.table.pool) == ([], [], a.table.pool)


def swapped_beams(num_blocks: int = 12, **options) -> tuple[Bench, list[Sequence]]:
    """B, b and c are on the host; of the three only c misses a token."""
    bench = Bench(num_blocks, host=12, **options)
    a = bench.add(4)
    beams = [bench.add("abcdefgh", beams=3)]
    bench.run()
    beams += [bench.fork(beams[0], name) for name in "bc"]
    for token, beam in enumerate(beams):
        beam.token_ids[-1] = token
    bench.plan()
    bench.scheduler.commit(bench.step)
    beams[2].token_ids.append(7)
    a.token_ids.append(7)
    bench.scheduler._preempt(bench.step)
    assert bench.preempted == "Bbc"
    bench.scheduler.check()
    return bench, beams


def test_of_beams_that_come_back_those_are_computed_that_miss_a_token():
    bench, _ = swapped_beams(max_num_seqs=4)
    bench.scheduler.max_num_seqs = 2
    assert (bench.plan(), bench.running) == ({"A": 1, "c": 1}, "ABbc")


def test_beams_that_come_back_share_all_that_they_shared_though_only_one_is_computed():
    """The cache still has their prompt, so c takes that; the others must not keep a copy."""
    bench, (b, c, d) = swapped_beams()
    assert bench.run() == {"A": 1, "c": 1}
    assert bench.pool.num_cached == 0
    assert b.table.block_ids[:2] == c.table.block_ids[:2] == d.table.block_ids[:2]


def test_nobody_is_swapped_who_could_not_come_back():
    """It holds all of the pool and needs one block more: alone it can only be computed again."""
    bench = Bench(3, host=3, caching=False)
    a = bench.add(12)
    bench.run()  # all of the pool, and the next token has no room: an intake would have refused it
    bench.plan()
    assert (bench.preempted, bench.step.swaps_out, a.table.block_ids) == ("A", [], [])


def test_samples_leave_one_by_one():
    bench = Bench(4, caching=False)
    a = bench.add(7)
    bench.run()
    bench.fork(a, "b").token_ids[-1] = 8
    bench.fork(a, "c").token_ids[-1] = 9
    assert bench.run() == {"A": 1, "b": 1, "c": 1}  # 1 shared block, 3 last ones
    bench.run()
    assert (bench.preempted, bench.running) == ("cb", "A")


def test_beams_that_wait_for_each_other_s_mates_do_not_wait_for_ever():
    bench = Bench(5, caching=False)
    requests = []
    for _ in range(2):
        first = bench.add(8, beams=2)
        requests.append(first.request)
        second = first.fork(1)
        first.request.sequences.append(second)
        bench.names[second] = bench.names[first].lower()
    bench.run()  # A and B hold 4 of 5 blocks, and are computed; a and b need 2 each
    for request in requests:
        request.sequences[0].token_ids.pop()  # a beam gets no token before its mates have theirs
        request.num_preemptions = 1
        bench.scheduler.add(request.sequences[1])
    assert (bench.run(), bench.preempted) == ({}, "B")
    assert bench.plan() == {"a": 8}


# --- a step's end ---------------------------------------------------------------------------------


def test_blocks_that_a_window_has_passed_are_given_back():
    bench = Bench(4, window=4)
    a = bench.add(10)
    bench.run()  # the next query is at 10 and sees 7..10; 6 stays too, so that a retry could see it
    assert a.table.block_ids[:1] == [NO_BLOCK]
    assert bench.pool.num_free == 2
    bench.run(30)
    assert len(a.token_ids) == 41
    assert bench.pool.num_blocks - bench.pool.num_free <= 2


@pytest.mark.parametrize("num_prompt", range(1, 10))
@pytest.mark.parametrize("window", range(1, 6))
def test_after_a_retry_a_query_still_sees_its_window(num_prompt, window):
    bench = Bench(4, window=window)
    a = bench.add(num_prompt)
    bench.plan()
    bench.scheduler.commit(bench.step)
    bench.scheduler.retry()
    assert bench.plan() == {"A": 1}
    query = num_prompt - 1
    assert all(a.table.slots(p, p + 1)[0] >= 0 for p in range(max(0, query - window + 1), query))


def test_a_step_that_failed_leaves_everybody_as_before():
    bench = Bench(8, max_num_batched_tokens=7)
    a, b = bench.add(6), bench.add(4)
    bench.plan()
    bench.scheduler.rollback(bench.step)
    bench.scheduler.check()
    assert (a.table.block_ids, b.table.block_ids, bench.pool.num_free) == ([], [], 8)
    assert bench.run() == {"A": 6, "B": 1}


def test_a_failed_step_undoes_its_copies():
    bench = Bench(8)
    a = bench.add(6)
    bench.run()
    b = bench.fork(a, "b")
    before = list(a.table.block_ids)
    bench.plan()
    assert len(bench.step.copies) == 1
    bench.scheduler.rollback(bench.step)
    bench.scheduler.check()
    assert a.table.block_ids == b.table.block_ids == before
    assert bench.pool.num_free == 6


def test_who_was_being_swapped_when_a_step_failed_is_computed_again():
    bench = three_at_the_edge(host=2)
    bench.plan()
    (c,) = bench.step.preempted
    bench.scheduler.rollback(bench.step)
    bench.scheduler.check()
    assert (bench.waiting, c.table.block_ids, c.table.pool) == ("C", [], bench.pool)
    assert bench.run() == {"A": 1, "B": 1}
    bench.scheduler.remove(bench.scheduler.running[0])
    assert bench.run() == {"B": 1, "C": 9}


def test_who_was_coming_back_when_a_step_failed_is_computed_again():
    bench = three_at_the_edge(host=2)
    bench.run()
    (c,) = bench.step.preempted
    bench.scheduler.remove(bench.scheduler.running[0])
    bench.plan()
    assert bench.step.resumed == [c]
    bench.scheduler.rollback(bench.step)
    bench.scheduler.check()
    assert (bench.waiting, c.table.block_ids, c.num_remaining) == ("C", [], 9)
    assert bench.run() == {"B": 1, "C": 9}


@pytest.mark.invariant(2)
def test_a_plan_that_breaks_half_way_is_undone():
    bench = Bench(8)
    bench.add(6)
    bench.run(2)
    bench.add(4)
    before = [list(s.table.block_ids) for s in bench.scheduler.sequences]
    sound, calls = bench.pool.allocate, []

    def broken(num_blocks: int = 1) -> list[int]:
        calls.append(num_blocks)
        raise MemoryError

    bench.pool.allocate = broken
    with pytest.raises(MemoryError):
        bench.plan()
    bench.pool.allocate = sound
    bench.scheduler.check()
    assert calls
    assert [s.table.block_ids for s in bench.scheduler.sequences] == before
    assert bench.run() == {"A": 1, "B": 4}


def test_without_a_sampled_token_the_last_one_is_computed_again():
    bench = Bench(8)
    a = bench.add(8)
    bench.plan()
    bench.scheduler.commit(bench.step)
    b = bench.fork(a, "b")  # born in this step, so it was in no plan
    bench.scheduler.retry()
    assert (a.num_remaining, b.num_remaining) == (1, 1)
    assert bench.run() == {"A": 1, "b": 1}


def test_siblings_that_share_a_block_step_back_together():
    bench = Bench(8)
    a = bench.add(6)
    bench.plan()
    bench.scheduler.commit(bench.step)
    b, c = bench.fork(a, "b"), bench.fork(a, "c")
    a.token_ids.append(7)
    b.token_ids.append(8)  # and then something failed, before c got its token
    bench.scheduler.retry()
    assert [s.table.num_tokens for s in (a, b, c)] == [5, 5, 5]
    assert bench.run() == {"A": 2, "b": 2, "c": 1}


def test_who_has_got_a_token_and_shares_nothing_that_is_written_goes_on():
    bench = Bench(8)
    a, b = bench.add(6), bench.add(6)
    bench.plan()
    bench.scheduler.commit(bench.step)
    a.token_ids.append(7)
    bench.scheduler.retry()
    assert (a.table.num_tokens, b.table.num_tokens) == (6, 5)
    assert bench.run() == {"A": 1, "B": 1}


def test_removing_gives_blocks_back_in_every_state():
    bench = three_at_the_edge(host=2)
    bench.add(4)
    bench.run()
    assert (bench.running, bench.waiting) == ("AB", "CD")  # C is on the host
    for s in bench.scheduler.sequences:
        bench.scheduler.remove(s)
        bench.scheduler.remove(s)  # twice is once
        bench.scheduler.check()
    assert bench.pool.num_free == 6
    assert bench.scheduler.host_pool.num_free == 2


def test_an_idle_scheduler_plans_nothing():
    step = Bench(4).scheduler.schedule()
    assert step.is_empty
    assert step == Step()
