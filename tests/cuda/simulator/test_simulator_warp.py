"""Shuffles, votes and barriers: each against NumPy, or as a law that holds for all lanes."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import SimulationError, Simulator, collective, cuda, current

FULL = 0xFFFFFFFF
LANES = np.arange(32)
VALUES = np.random.default_rng(5).permutation(32).astype(np.int32)


def per_lane(function, num_threads=32, dtype=np.int64, **options):
    """What a function of a lane's index returns, for every thread."""

    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = function(i)

    out = np.zeros(num_threads, dtype)
    Simulator(**options).launch(kernel, 1, num_threads, (out,))
    return out


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random"])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 31])
def test_shuffles(n, schedule):
    own = lambda lane: VALUES[lane % 32]  # noqa: E731
    up = per_lane(lambda lane: cuda.shfl_up_sync(FULL, own(lane), n), 64, schedule=schedule)
    down = per_lane(lambda lane: cuda.shfl_down_sync(FULL, own(lane), n), schedule=schedule)
    xor = per_lane(lambda lane: cuda.shfl_xor_sync(FULL, own(lane), n), schedule=schedule)
    one = per_lane(lambda lane: cuda.shfl_sync(FULL, own(lane), lane + n), schedule=schedule)
    assert (up[32:] == VALUES[np.where(n > LANES, LANES, LANES - n)]).all()
    assert (down == VALUES[np.where(LANES + n > 31, LANES, LANES + n)]).all()
    assert (xor == VALUES[LANES ^ n]).all()
    assert (one == VALUES[(LANES + n) % 32]).all()


def test_a_shuffle_keeps_the_type():
    kinds = set()
    per_lane(lambda lane: kinds.add(type(cuda.shfl_xor_sync(FULL, np.float32(lane), 1))) or 0)
    assert kinds == {np.float32}


def test_a_butterfly_sums_the_warp():
    def total(lane):
        value = VALUES[lane]
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_xor_sync(FULL, value, step)
        return value

    assert (per_lane(total) == VALUES.sum()).all()


def test_part_of_a_warp_shuffles_under_its_own_mask():
    def half(lane):
        mask = 0xFFFF if lane < 16 else 0xFFFF0000
        return cuda.shfl_xor_sync(mask, lane, 15)

    assert (per_lane(half) == (LANES ^ 15)).all()


def test_a_last_warp_that_is_not_full_may_use_the_full_mask():
    swapped = per_lane(lambda lane: cuda.shfl_xor_sync(FULL, lane, 1), num_threads=40)
    assert (swapped == np.arange(40) ^ 1).all()


@pytest.mark.parametrize("true", [set(), {0, 5, 31}, set(range(32))])
def test_votes(true):
    bits = np.uint32(sum(1 << lane for lane in true)).astype(np.int32)
    every, some = len(true) == 32, bool(true)
    assert (per_lane(lambda lane: cuda.ballot_sync(FULL, lane in true)) == bits).all()
    assert (per_lane(lambda lane: cuda.all_sync(FULL, lane in true)) == every).all()
    assert (per_lane(lambda lane: cuda.any_sync(FULL, lane in true)) == some).all()
    same = every or not some
    assert (per_lane(lambda lane: cuda.eq_sync(FULL, lane in true)) == same).all()


def test_votes_among_a_few():
    def vote(lane):
        return cuda.all_sync(0b110, lane > 0) if lane in (1, 2) else False

    assert per_lane(vote).tolist() == [0, 1, 1] + [0] * 29


def test_matches():
    any_lane = per_lane(lambda lane: cuda.match_any_sync(FULL, lane % 3)).astype(np.int32)
    for lane in LANES:
        same = sum(1 << int(other) for other in LANES if other % 3 == lane % 3)
        assert int(any_lane[lane]) & FULL == same
    assert (per_lane(lambda lane: cuda.match_all_sync(FULL, 7)[0]) == -1).all()
    assert (per_lane(lambda lane: cuda.match_all_sync(FULL, 7)[1]) == 1).all()
    assert (per_lane(lambda lane: cuda.match_all_sync(FULL, lane)[0]) == 0).all()


def test_masks_of_lanes():
    assert (per_lane(lambda lane: cuda.lanemask_lt()) == (1 << LANES) - 1).all()
    assert (per_lane(lambda lane: cuda.laneid, num_threads=64) == np.tile(LANES, 2)).all()
    assert (per_lane(lambda lane: cuda.warpsize) == 32).all()


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random"])
def test_the_active_lanes_are_those_that_come_to_the_line(schedule):
    def active(lane):
        if lane == 31:
            return 0
        if lane < 3:
            mask = cuda.activemask()
        else:
            mask = np.int32(cuda.activemask())
        return cuda.shfl_sync(mask, mask, cuda.ffs(mask) - 1)

    low, high = 0b111, FULL >> 1 ^ 0b111
    assert per_lane(active, schedule=schedule).tolist() == [low] * 3 + [high] * 28 + [0]


def test_barriers_that_count():
    is_odd = lambda i: i % 2  # noqa: E731
    assert (per_lane(lambda i: cuda.syncthreads_count(is_odd(i)), 70) == 35).all()
    assert (per_lane(lambda i: cuda.syncthreads_and(i < 70), 70) == 1).all()
    assert (per_lane(lambda i: cuda.syncthreads_and(i < 69), 70) == 0).all()
    assert (per_lane(lambda i: cuda.syncthreads_or(i == 69), 70) == 1).all()
    assert (per_lane(lambda i: cuda.syncthreads_or(0), 70) == 0).all()


def test_a_barrier_orders_all_threads_and_syncwarp_a_warp():
    def turn(i):
        array = cuda.shared.array(64, np.int64)
        array[i] = i
        cuda.syncwarp()
        other = array[i ^ 31]
        cuda.syncthreads()
        array[i] = other + array[i ^ 32] * 0 if False else other
        cuda.syncthreads()
        return array[63 - i]

    assert (per_lane(turn, 64) == (63 - np.arange(64)) ^ 31).all()


def test_order_is_passed_on():
    """0 and 1 meet, then 1 and 2: what 0 wrote, 2 may read."""

    def relay(i):
        array = cuda.shared.array(1, np.int64)
        if i == 0:
            array[0] = 7
        if i < 2:
            cuda.syncwarp(0b011)
        if i > 0:
            cuda.syncwarp(0b110)
        return array[0] if i == 2 else 0

    assert per_lane(relay, 3).tolist() == [0, 0, 7]


def test_a_collective_of_ones_own():
    """Everybody gets the sorted values: `combine` runs once, over all lanes of the mask."""
    calls = []

    def sort(lanes):
        calls.append(lanes)
        return dict(zip(lanes, sorted(lanes.values())))

    assert per_lane(lambda lane: collective("sort", FULL, VALUES[lane], sort)).tolist() == [
        *range(32)
    ]
    assert len(calls) == 1
    assert list(calls[0]) == [*range(32)]


def test_a_lane_knows_where_it_is():
    places = []
    per_lane(lambda lane: places.append((current().thread, current().index)) or 0, 34)
    assert places == [(i, i % 32) for i in range(34)]
    with pytest.raises(SimulationError, match="no thread here"):
        current()
