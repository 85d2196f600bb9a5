"""Shared, local and constant arrays: whose they are, and how long."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import Race, Simulator, cuda


def run(kernel, *arguments, grid=1, num_threads=1, **options):
    return Simulator().launch(kernel, grid, num_threads, arguments, **options)


def test_calls_on_one_line_are_different_arrays():
    def kernel(out):
        a, b = cuda.shared.array(1, np.int64), cuda.shared.array(1, np.int64)
        if cuda.threadIdx.x == 0:
            a[0], b[0] = 1, 2
        cuda.syncthreads()
        out[cuda.threadIdx.x] = 10 * a[0] + b[0]

    out = np.zeros(2)
    trace = run(kernel, out, num_threads=2)
    assert out.tolist() == [12, 12]
    assert trace.shared_bytes == 16


def test_dynamic_shared_memory_is_one_memory():
    def kernel(out):
        words = cuda.shared.array(0, np.uint32)
        halves = cuda.shared.array(shape=(0,), dtype=np.uint16)[2:]
        words[1] = 0x00020001
        out[0], out[1], out[2] = halves[0], halves[1], words.size

    out = np.zeros(3)
    run(kernel, out, dynamic_shared=16)
    assert out.tolist() == [1, 2, 4]


def test_half_a_word_of_dynamic_shared_memory_still_races_with_the_word():
    def kernel(out):
        if cuda.threadIdx.x == 0:
            words = cuda.shared.array(0, np.uint32)
            words[0] = 1
        else:
            halves = cuda.shared.array(0, np.uint16)
            halves[1] = 1

    with pytest.raises(Race, match=r"race on halves\[1\]"):
        run(kernel, np.zeros(1), num_threads=2, dynamic_shared=16)


def test_local_arrays_are_each_threads_own():
    def kernel(out):
        mine = cuda.local.array(2, np.int64)
        mine[0] = cuda.threadIdx.x
        cuda.syncthreads()
        out[cuda.threadIdx.x] = mine[0]

    out = np.zeros(3)
    run(kernel, out, num_threads=3)
    assert out.tolist() == [0, 1, 2]


def test_constants():
    table = np.arange(6).reshape(2, 3)

    def kernel(out):
        out[0] = cuda.const.array_like(table)[1, 2]

    out = np.zeros(1)
    run(kernel, out)
    assert out[0] == 5
