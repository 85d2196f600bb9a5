"""Ordinary Numba kernels, as tutorials have them, run as they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip(
    "numba.cuda.dispatcher", reason="needs numba-cuda: pip install 'numba-cuda[cu13]'"
)
import numba
from numba import cuda, float32, int32, types, uint32
from numba.cuda import grid, shared, syncthreads

from minipaged_cuda.simulator import Race, Simulator, Uninitialised

TILE = 4


@cuda.jit
def matmul(a, b, c):
    tile_a = cuda.shared.array((TILE, TILE), dtype=float32)
    tile_b = cuda.shared.array((TILE, TILE), dtype=float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for i in range(cuda.gridDim.x):
        tile_a[ty, tx] = a[y, tx + i * TILE] if y < a.shape[0] else 0
        tile_b[ty, tx] = b[ty + i * TILE, x] if x < b.shape[1] else 0
        cuda.syncthreads()
        for j in range(TILE):
            total += tile_a[ty, j] * tile_b[j, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


def test_tiled_matmul():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    c = np.zeros((8, 8), np.float32)
    trace = Simulator().launch(matmul, (2, 2), (TILE, TILE), (a, b, c))
    assert np.allclose(c, a @ b, atol=1e-5)
    assert trace.buffers["a"].reads.elements == 2 * a.size, "every tile is read by two CTAs"


@cuda.jit
def histogram(values, counts, low, high):
    width = (high - low) / counts.size
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, int32((values[i] - low) / width), 1)


def test_histogram():
    values, counts = np.random.default_rng(1).random(300), np.zeros(10, np.int32)
    Simulator(schedule="random").launch(histogram, 2, 32, (values, counts, 0.0, 1.0))
    assert (counts == np.histogram(values, 10, (0, 1))[0]).all()


@cuda.jit(device=True, inline=True)
def halve(part, i, step):
    if i < step:
        part[i] += part[i + step]


def make_reduction(size, with_barrier):
    """A kernel made in a factory, which calls a device function."""

    @cuda.jit(fastmath=True)
    def reduce(x, out):
        part = shared.array(size, types.float64)
        i = cuda.threadIdx.x
        part[i] = x[grid(1)]
        syncthreads()
        step = size // 2
        while step > 0:
            halve(part, i, step)
            if with_barrier:
                syncthreads()
            step //= 2
        if i == 0:
            cuda.atomic.add(out, 0, part[0])

    return reduce


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random"])
def test_reduction(schedule):
    x, out = np.arange(192.0), np.zeros(1)
    Simulator(schedule=schedule).launch(make_reduction(64, True), 3, 64, (x, out))
    assert out[0] == x.sum()
    with pytest.raises(Race, match=r"race on part\[\d+\].*`part\[i\] \+= part\[i \+ step\]`"):
        Simulator(schedule=schedule).launch(make_reduction(64, False), 3, 64, (x, out))


@cuda.jit
def types_of_numbers(out):
    out[0] = uint32(-1)
    out[1] = numba.int8(200)
    out[2] = types.int32(7.9)
    out[3] = cuda.float32(1) / float32(3)
    out[4] = cuda.fma(2.0, 3.0, 4.0)
    out[5] = cuda.popc(uint32(0xF0)) + 100 * cuda.clz(int32(1)) + 10_000 * cuda.ffs(8)
    out[6] = cuda.brev(uint32(1))
    out[7] = cuda.selp(out[6] > 5, 1, 2) + cuda.cbrt(27.0)


def test_types_and_numbers():
    out = np.zeros(8)
    Simulator().launch(types_of_numbers, 1, 1, (out,))
    third = float(np.float32(1) / np.float32(3))
    assert out.tolist() == [2**32 - 1, -56, 7, third, 10, 43_104, 2**31, 4]


@cuda.jit
def special_values(x, out):
    i = cuda.threadIdx.x
    out[i, 0], out[i, 1], out[i, 2] = math.exp(x[i]), math.log(x[i]), math.sqrt(x[i])
    out[i, 3] = math.erf(x[i]) + math.floor(0.5)


def test_math_has_inf_and_nan_as_on_a_card():
    x = np.array([0, 1000, -1, 1], np.float32)
    out = np.zeros((4, 4), np.float32)
    Simulator().launch(special_values, 1, 4, (x, out))
    with np.errstate(all="ignore"):
        expected = np.stack([np.exp(x), np.log(x), np.sqrt(x), [math.erf(v) for v in x]], 1)
    assert np.array_equal(out, expected.astype(np.float32), equal_nan=True)


# --- paged decode attention, one query token per sequence ----------------------------------------

DIM, BLOCK = 8, 4


@cuda.jit
def decode_one_thread(out, query, key_cache, value_cache, block_tables, seq_lens, scale):
    """One thread per (sequence, head): right, small, and it reads memory in the worst way."""
    s, h = cuda.blockIdx.x, cuda.threadIdx.x
    m, l = -math.inf, 0.0
    acc = cuda.local.array(DIM, float32)
    for d in range(DIM):
        acc[d] = 0.0
    for t in range(seq_lens[s]):
        block = block_tables[s, t // BLOCK]
        x = 0.0
        for d in range(DIM):
            x += query[s, h, d] * key_cache[block, t % BLOCK, h, d]
        x *= scale
        top = max(m, x)
        shrink, p = math.exp(m - top), math.exp(x - top)
        l = l * shrink + p
        for d in range(DIM):
            acc[d] = acc[d] * shrink + p * value_cache[block, t % BLOCK, h, d]
        m = top
    for d in range(DIM):
        out[s, h, d] = acc[d] / l


@cuda.jit
def decode_thread_per_dim(out, query, key_cache, value_cache, block_tables, seq_lens, scale):
    """One CTA per (sequence, head), one thread per dimension: neighbours read neighbours."""
    s, h, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    part = cuda.shared.array(DIM, float32)
    q = query[s, h, d] * scale
    m, l, acc = -math.inf, 0.0, 0.0
    for t in range(seq_lens[s]):
        block = block_tables[s, t // BLOCK]
        part[d] = q * key_cache[block, t % BLOCK, h, d]
        cuda.syncthreads()
        x = 0.0
        for j in range(DIM):
            x += part[j]
        cuda.syncthreads()
        top = max(m, x)
        shrink, p = math.exp(m - top), math.exp(x - top)
        l = l * shrink + p
        acc = acc * shrink + p * value_cache[block, t % BLOCK, h, d]
        m = top
    out[s, h, d] = acc / l


@cuda.jit
def decode_shuffle(out, query, key_cache, value_cache, block_tables, seq_lens, scale):
    """The same with the sum in registers: no shared memory, no barrier."""
    s, h, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    q = query[s, h, d] * scale
    m, l, acc = -math.inf, 0.0, 0.0
    for t in range(seq_lens[s]):
        block = block_tables[s, t // BLOCK]
        x = q * key_cache[block, t % BLOCK, h, d]
        step = DIM // 2
        while step > 0:
            x += cuda.shfl_xor_sync(0xFF, x, step)
            step //= 2
        top = max(m, x)
        shrink, p = math.exp(m - top), math.exp(x - top)
        l = l * shrink + p
        acc = acc * shrink + p * value_cache[block, t % BLOCK, h, d]
        m = top
    out[s, h, d] = acc / l


class Decode:
    """Sequences of 10, 7 and 4 tokens, 2 heads, blocks of 4 tokens in a scrambled order."""

    def __init__(self):
        rng = np.random.default_rng(3)
        self.seq_lens = np.array([10, 7, 4], np.int32)
        self.caches = [np.full((12, BLOCK, 2, DIM), np.nan, np.float32) for _ in range(2)]
        self.block_tables = np.full((3, 3), -1, np.int32)
        self.block_tables.flat[[0, 1, 2, 3, 4, 6]] = rng.permutation(12)[:6]
        self.written = np.zeros((12, BLOCK, 2, DIM), bool)
        for s, t in ((s, t) for s, n in enumerate(self.seq_lens) for t in range(n)):
            slot = self.block_tables[s, t // BLOCK], t % BLOCK
            self.written[slot] = True
            for cache in self.caches:
                cache[slot] = rng.standard_normal((2, DIM))
        self.query = rng.standard_normal((3, 2, DIM)).astype(np.float32)

    def run(self, kernel, grid, num_threads):
        """What the kernel moves, after its result was compared with dense attention."""
        out = np.full((3, 2, DIM), np.nan, np.float32)
        simulator = Simulator()
        for cache in self.caches:
            simulator.readable(cache, self.written)
        arguments = out, self.query, *self.caches, self.block_tables, self.seq_lens
        trace = simulator.launch(kernel, grid, num_threads, (*arguments, np.float32(DIM**-0.5)))
        assert np.allclose(out, self.dense(), atol=1e-5)
        return trace

    def dense(self):
        out = np.zeros((3, 2, DIM))
        for s, n in enumerate(self.seq_lens):
            at = [(self.block_tables[s, t // BLOCK], t % BLOCK) for t in range(n)]
            keys, values = (np.stack([cache[i] for i in at]) for cache in self.caches)
            x = np.einsum("hd,thd->ht", self.query[s], keys) * DIM**-0.5
            p = np.exp(x - x.max(1, keepdims=True))
            out[s] = np.einsum("ht,thd->hd", p / p.sum(1, keepdims=True), values)
        return out


def moved(trace):
    """Reads, reads of the busiest thread, sectors both ways, and the useful share of them."""
    both = [trace.reads, trace.writes]
    sectors = sum(traffic.sectors for traffic in both)
    useful = sum(traffic.useful_bytes for traffic in both) / (32 * sectors)
    return trace.reads.elements, trace.reads.max_per_thread, sectors, round(useful, 2)


def test_one_thread_per_head_wastes_most_of_what_it_moves():
    trace = Decode().run(decode_one_thread, 3, 2)
    assert moved(trace) == (1056, 251, 1080, 0.12)
    assert (trace.num_ctas, trace.num_threads) == (3, 2)


def test_neighbours_that_read_neighbours_waste_little():
    trace = Decode().run(decode_thread_per_dim, (3, 2), DIM)
    assert moved(trace) == (1104, 32, 144, 0.71)
    assert trace.barriers == 84
    part = trace.shared["part"]
    assert (part.reads.elements, part.writes.elements) == (2688, 336)


def test_shuffles_need_neither_barriers_nor_shared_memory():
    trace = Decode().run(decode_shuffle, (3, 2), DIM)
    assert moved(trace)[2:] == (144, 0.71)
    assert (trace.barriers, trace.shared) == (0, {})
    assert trace.collectives == {"shfl_xor_sync": 3 * 42}


def test_keys_and_values_are_read_once():
    trace = Decode().run(decode_shuffle, (3, 2), DIM)
    for name in ("key_cache", "value_cache"):
        reads = trace.buffers[name].reads
        assert reads.sectors * 32 == reads.useful_bytes == 21 * 2 * DIM * 4


def test_padding_of_a_block_table_is_not_the_last_block():
    problem = Decode()
    problem.seq_lens[2] = 5
    with pytest.raises(IndexError, match=r"reads key_cache\[-1, 0, 0, 0\]"):
        problem.run(decode_one_thread, 3, 2)


def test_a_missing_write_is_found():
    @cuda.jit
    def partial(out):
        part = cuda.shared.array(4, float32)
        if cuda.threadIdx.x < 3:
            part[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        out[cuda.threadIdx.x] = part[cuda.threadIdx.x]

    with pytest.raises(Uninitialised, match=r"thread 3 of CTA \(0, 0, 0\) reads part\[3\]"):
        Simulator().launch(partial, 1, 4, (np.zeros(4),))
