"""A kernel without races does not care who comes first; an exchange without a barrier does."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import Race, Simulator, cuda

SCHEDULES = [("forward", 0), ("reverse", 0), ("random", 0), ("random", 1)]


def ring(out, steps):
    """Every thread hands its number to its neighbour, `steps` times."""
    i, n = cuda.threadIdx.x, cuda.blockDim.x
    box = cuda.shared.array(96, np.int64)
    box[i] = i
    for _ in range(steps):
        cuda.syncthreads()
        value = box[(i + 1) % n]
        cuda.syncthreads()
        box[i] = value
    out[cuda.grid(1)] = box[i]


def careless(out):
    i, n = cuda.threadIdx.x, cuda.blockDim.x
    out[i] = out[(i + 1) % n] + 1


def run(kernel, *arguments, num_threads, grid=1, **options):
    out = np.zeros(grid * num_threads, np.int64)
    Simulator(**options).launch(kernel, grid, num_threads, (out, *arguments))
    return out


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_kernel_without_races_has_one_result(schedule, seed):
    out = run(ring, 3, num_threads=96, grid=2, schedule=schedule, seed=seed)
    assert (out == np.tile((np.arange(96) + 3) % 96, 2)).all()


def test_a_racy_kernel_has_several_and_is_found_under_all():
    results = {
        tuple(run(careless, num_threads=8, schedule=s, seed=seed, check_races=False))
        for s, seed in SCHEDULES
    }
    assert len(results) >= 3
    for schedule, seed in SCHEDULES:
        with pytest.raises(Race):
            run(careless, num_threads=8, schedule=schedule, seed=seed)


def test_a_seed_is_a_schedule():
    results = [
        run(careless, num_threads=64, schedule="random", seed=4, check_races=False)
        for _ in range(2)
    ]
    assert (results[0] == results[1]).all()


def order_of_ctas(order, ticket):
    order[cuda.atomic.add(ticket, 0, 1)] = cuda.blockIdx.x + 10 * cuda.blockIdx.y


@pytest.mark.parametrize(
    ("schedule", "expected"), [("forward", [0, 1, 10, 11]), ("reverse", [11, 10, 1, 0])]
)
def test_ctas_follow_the_schedule(schedule, expected):
    order = np.zeros(4, np.int64)
    arguments = order, np.zeros(1, np.int32)
    Simulator(schedule=schedule).launch(order_of_ctas, (2, 2), 1, arguments)
    assert order.tolist() == expected
