"""What is counted: elements, bytes, sectors and banks, on patterns whose counts are known."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import Pointer, Simulator, cuda

f32 = np.float32


def reads_of(kernel, x, num_threads=32, **options):
    trace = Simulator().launch(kernel, 1, num_threads, (x,), **options)
    return trace.buffers["x"].reads


@pytest.mark.parametrize(
    ("stride", "sectors", "useful"), [(1, 4, 1.0), (2, 8, 0.5), (8, 32, 0.125), (0, 1, 0.125)]
)
def test_a_warp_moves_whole_sectors(stride, sectors, useful):
    def strided(x):
        return x[cuda.threadIdx.x * stride]

    reads = reads_of(strided, np.zeros(512, f32))
    assert (reads.elements, reads.bytes, reads.requests) == (32, 128, 1)
    assert (reads.sectors, reads.useful) == (sectors, useful)


def test_a_wide_access_is_one():
    def wide(x):
        return x.load(4 * cuda.threadIdx.x, 4)

    reads = reads_of(wide, Pointer(np.zeros(128, f32)))
    assert (reads.elements, reads.requests, reads.sectors, reads.useful) == (128, 1, 16, 1.0)
    assert reads.max_per_thread == 4


def test_sectors_begin_where_the_storage_does():
    def row(x):
        return x[cuda.threadIdx.x]

    assert reads_of(row, np.zeros(64, f32)[8:]).sectors == 4
    assert reads_of(row, np.zeros(64, f32)[9:]).sectors == 5


def test_the_nth_executions_belong_together():
    """Lanes that loop twice as often make requests of their own, with fewer lanes in them."""

    def loop(x):
        for i in range(2 if cuda.threadIdx.x < 16 else 4):
            x[32 * i + cuda.threadIdx.x]

    reads = reads_of(loop, np.zeros(128, f32))
    assert (reads.requests, reads.elements) == (4, 2 * 32 + 2 * 16)
    assert (reads.sectors, reads.max_per_thread) == (2 * 4 + 2 * 2, 4)


def test_warps_ask_apart():
    def row(x):
        return x[0]

    assert reads_of(row, np.zeros(1, f32), num_threads=64).requests == 2


@pytest.mark.parametrize(
    ("stride", "extra"), [(0, 0), (1, 0), (2, 1), (3, 0), (8, 7), (32, 31), (33, 0)]
)
def test_bank_conflicts(stride, extra):
    def strided(out):
        part = cuda.shared.array(1056, f32)
        part[cuda.threadIdx.x * stride] = 1

    trace = Simulator(check_races=False).launch(strided, 1, 32, (np.zeros(1),))
    assert trace.shared["part"].writes.extra_cycles == extra


@pytest.mark.parametrize(("stride", "extra"), [(4, 0), (8, 4), (32, 28)])
def test_sixteen_bytes_are_served_eight_lanes_at_a_time(stride, extra):
    def wide(out):
        part = cuda.shared.array(1024, f32, alignment=16)
        part.store(cuda.threadIdx.x * stride, (1, 2, 3, 4))

    trace = Simulator().launch(wide, 1, 32, (np.zeros(1),))
    assert trace.shared["part"].writes.extra_cycles == extra


def everything(x, out):
    i = cuda.grid(1)
    part = cuda.shared.array(64, f32)
    part[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    value = cuda.shfl_down_sync(0xFFFFFFFF, part[63 - cuda.threadIdx.x], 1)
    cuda.syncwarp()
    cuda.atomic.add(out, 0, value)


def test_the_table_of_a_launch():
    arguments = np.ones(192, f32), np.zeros(4, f32)
    trace = Simulator().launch(everything, 3, 64, arguments)
    assert trace.table().splitlines() == [
        "buffer  reads  writes  atomics  sectors  useful  extra cycles",
        "x         192       0        0       24    100%",
        "out         0       0      192        6     12%",
        "part      192     192        0                              0",
        "3 CTAs of 64 threads, 3 barriers, 6 shfl_down_sync, 6 syncwarp",
    ]
    assert trace.reads.elements == trace.atomics.elements == 192
    assert trace.reads.max_per_thread == 1
    assert (trace.shared_bytes, trace.writes.elements) == (256, 0)
