"""Atomic updates: what they leave, and whom they order."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import Race, Simulator, cuda


def run(kernel, *arguments, grid=1, num_threads=1, **options):
    return Simulator().launch(kernel, grid, num_threads, arguments, **options)


@pytest.mark.parametrize(
    ("name", "start", "values", "end"),
    [
        ("add", 1, [2, 3], 6),
        ("sub", 1, [2, 3], -4),
        ("max", 1, [5, 3], 5),
        ("min", 1, [5, -3], -3),
        ("and_", 7, [6, 3], 2),
        ("or_", 1, [2, 4], 7),
        ("xor", 1, [3, 4], 6),
        ("inc", 0, [1, 1, 1], 1),
        ("dec", 1, [5, 5, 5], 4),
        ("exch", 1, [9], 9),
    ],
)
def test_integer_updates(name, start, values, end):
    x = np.array([start], np.int32)
    before = []

    def kernel(x, values):
        before.append(getattr(cuda.atomic, name)(x, 0, values[cuda.threadIdx.x]))

    run(kernel, x, np.array(values), num_threads=len(values))
    assert x[0] == end
    assert before[0] == start


def test_updates_and_nan():
    x = np.array([np.nan, np.nan, 2, 2], np.float32)

    def kernel(x):
        cuda.atomic.nanmax(x, 0, 1)
        cuda.atomic.max(x, 1, 1)
        cuda.atomic.nanmin(x, 2, np.nan)
        cuda.atomic.min(x, (3,), np.nan)

    run(kernel, x)
    assert np.array_equal(x, np.array([1, np.nan, 2, np.nan], np.float32), equal_nan=True)


def test_updates_round_to_the_arrays_type():
    x = np.array([1], np.float32)
    run(lambda x: cuda.atomic.add(x, 0, 1e-9), x)
    assert x[0] == 1


def lock(x, count):
    while cuda.atomic.cas(x, 0, 0, 1) != 0:
        cuda.nanosleep(10)
    cuda.threadfence()
    count[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(x, 0, 0)


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random"])
def test_a_lock_with_fences_orders_ctas_and_threads(schedule):
    count = np.zeros(1)
    arguments = np.zeros(1, np.int32), count
    Simulator(schedule=schedule).launch(lock, 3, 4, arguments)
    assert count[0] == 12


def last_cta_adds_up(x, parts, ticket, out, num_ctas, fenced):
    parts[cuda.blockIdx.x] = x[cuda.blockIdx.x]
    if fenced:
        cuda.threadfence()
    if cuda.atomic.add(ticket, 0, 1) == num_ctas - 1:
        total = 0
        for i in range(num_ctas):
            total += parts[i]
        out[0] = total


def test_the_last_cta_needs_a_fence_before_its_ticket():
    x, out = np.arange(5), np.zeros(1, np.int64)
    buffers = x, np.zeros(5, np.int64)
    run(last_cta_adds_up, *buffers, np.zeros(1, np.int32), out, 5, True, grid=5)
    assert out[0] == 10
    with pytest.raises(Race, match=r"race on parts\[0\]"):
        run(last_cta_adds_up, *buffers, np.zeros(1, np.int32), out, 5, False, grid=5)
