"""Runs of a buddy allocator: exact small cases by hand, and laws for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged.claims.contiguous import (
    RESERVATIONS,
    Buddy,
    ContiguousPool,
    ContiguousTable,
    run_length,
)
from minipaged.claims.managers import MANAGERS, Manager
from minipaged.core import OutOfBlocks

# ---- by hand


def test_eleven_units_are_runs_of_eight_two_and_one():
    buddy = Buddy(11)
    assert [list(starts) for starts in buddy.free] == [[10], [8], [], [0]]
    assert buddy.largest == 8


def test_the_shortest_run_that_does_is_split():
    """3 takes 4 of the run of 8; 1 takes the single one; 2 the pair; 2 more split the other 4.

    [ 3 takes 4 |2 |. .][2 ][1]
    """
    buddy = Buddy(11)
    assert [buddy.allocate(n) for n in (3, 1, 2, 2)] == [0, 10, 8, 4]
    assert [list(starts) for starts in buddy.free] == [[], [6], [], []]
    with pytest.raises(OutOfBlocks, match="a run of 3 needs 4, the longest is 2"):
        buddy.allocate(3)


def test_halves_become_whole_again_but_only_with_each_other():
    """Of four pairs the middle two are neighbours, and still no run of four."""
    buddy = Buddy(8)
    assert [buddy.allocate(2) for _ in range(4)] == [0, 2, 4, 6]
    buddy.release(2, 2)
    buddy.release(4, 2)
    assert buddy.largest == 2
    buddy.release(0, 2)
    assert buddy.largest == 4
    buddy.release(6, 2)
    assert buddy.largest == 8


def test_the_paper_s_pool_has_room_for_seven_longest_sequences():
    """15,700 slots are 7.67 times 2048: seven runs, and 8.7 % that nobody gets."""
    manager = Manager("max")
    pool = manager.new_pool()
    tables = [manager.new_table(pool, 10, 10) for _ in range(8)]
    for table in tables[:7]:
        table.reserve(1)
    with pytest.raises(OutOfBlocks):
        tables[7].reserve(1)
    assert pytest.approx(8.7, abs=0.05) == 100 * (1 - 7 * 2048 / 15_700)


def test_what_each_policy_reserves():
    """A prompt of 100 and 60 tokens of output; at most 2048."""
    reserved = {name: policy(100, 60, 2048) for name, policy in RESERVATIONS.items()}
    assert reserved == {"max": 2048, "pow2": 164, "oracle": 159}
    assert RESERVATIONS["pow2"](100, 1025, 2048) == 2048
    assert [RESERVATIONS["pow2"](5, n, 99) - 5 for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 8]


def test_a_table_takes_its_run_at_once_and_gives_it_back_at_once():
    pool = ContiguousPool(11)
    table = ContiguousTable(pool, block_size=4, num_promised=12)
    assert (table.num_missing_blocks(1), table.block_ids) == (4, [])
    assert table.reserve(1) == []
    assert (table.block_ids, table.slots(0, 1), pool.num_free) == ([0, 1, 2, 3], [0], 4)
    table.commit([7])
    assert table.num_missing_blocks(11) == 0
    table.reserve(11)
    table.check()
    table.cancel()
    assert (table.num_tokens, table.num_reserved, len(table.block_ids)) == (1, 1, 4)
    table.release()
    table.release()
    table.check()
    pool.check()
    assert (table.block_ids, pool.num_free) == ([], 8)


def test_a_first_step_that_is_cancelled_gives_the_run_back():
    pool = ContiguousPool(4)
    table = ContiguousTable(pool, block_size=4, num_promised=9)
    table.reserve(5)
    table.cancel()
    assert pool.num_free == 4
    pool.check()


def test_nothing_is_shared_and_nobody_grows_beyond_what_was_promised():
    pool = ContiguousPool(4)
    table = ContiguousTable(pool, block_size=4, num_promised=5)
    with pytest.raises(ValueError, match="5 positions were promised, 6 are needed"):
        table.reserve(6)
    assert pool.num_free == 4
    table.reserve(5)
    for refused in (table.fork, lambda: pool.share(0), lambda: pool.release(0)):
        with pytest.raises(ValueError, match="run"):
            refused()
    table.release()
    with pytest.raises(ValueError, match="not one run that is held"):
        pool.release_run([0, 1])


# ---- laws

SIZES = st.integers(1, 70)
LENGTHS = st.integers(1, 20)


@given(size=SIZES, program=st.lists(st.one_of(LENGTHS, st.none()), max_size=40))
def test_runs_never_overlap_and_everything_comes_back(size, program):
    """None gives back the oldest run. What is free and what is taken are the pool, always."""
    buddy, held, whole = Buddy(size), list[tuple[int, int]](), Buddy(size).free
    for length in program:
        if length is None:
            if held:
                buddy.release(*held.pop(0))
        elif run_length(length) <= buddy.largest:
            held.append((buddy.allocate(length), length))
        else:
            with pytest.raises(OutOfBlocks):
                buddy.allocate(length)
        taken = [u for s, n in held for u in range(s, s + run_length(n))]
        free = [
            unit
            for order, starts in enumerate(buddy.free)
            for start in starts
            for unit in range(start, start + 2**order)
        ]
        assert sorted(taken + free) == list(range(size))
        assert all(start % run_length(n) == 0 for start, n in held)
    for run in held:
        buddy.release(*run)
    assert [set(starts) for starts in buddy.free] == [set(starts) for starts in whole]


@given(size=SIZES, lengths=st.lists(LENGTHS, max_size=8))
def test_whatever_fits_the_longest_run_together_is_placed(size, lengths):
    """So the scheduler may add up what several requests need, and ask ``num_free``."""
    buddy = Buddy(size)
    if sum(map(run_length, lengths)) <= buddy.largest:
        for length in lengths:
            buddy.allocate(length)


@pytest.mark.parametrize("name", MANAGERS)
@given(prompt_len=st.integers(1, 100), output_len=st.integers(1, 100))
def test_what_is_promised_is_enough_and_no_more_than_the_longest(name, prompt_len, output_len):
    manager = Manager(name, num_blocks=64, block_size=4, max_len=200)
    promised = manager.promised(prompt_len, output_len)
    assert promised <= 200
    assert manager.is_paged or promised >= prompt_len + output_len - 1
