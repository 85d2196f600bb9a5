"""Judges a weighted sum of values by its output and by the bytes that it moves."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from minipaged.learn.exercise import Exercise, Wrong, reject
from minipaged.learn.exercises._kernels import Problem, compare, launch, output

CASES = (((1,), 1), ((3,), 2), ((6, 9), 4), ((10, 7, 4), 3))  # lengths, heads
BUDGET = 0.6  # of the moved bytes somebody must have asked for


def check(module: ModuleType) -> str:
    """Four batches: the output first, then what it cost."""
    useful, sectors = 1.0, 0
    for lens, num_heads in CASES:
        problem = Problem.of(lens, num_heads, module.D, seed=len(lens))
        problem.story("a weighted sum")
        room = problem.block_tables.shape[1] * problem.value_cache.shape[1]
        weights = np.full((len(lens), num_heads, room), np.nan, np.float32)
        expected = np.empty(problem.query.shape)
        for sequence, head in np.ndindex(*expected.shape[:2]):
            values = problem.rows(problem.value_cache, sequence, head)
            raw = np.exp(np.arange(len(values)) % 3 + head)
            weights[sequence, head, : len(values)] = raw / raw.sum()
            expected[sequence, head] = weights[sequence, head, : len(values)] @ values
        out = output(*problem.query.shape)
        arguments = out, weights, problem.value_cache, problem.block_tables, problem.seq_lens
        grid, num_threads = module.launch_shape(len(lens), num_heads)
        trace = launch(module.weigh, grid, num_threads, arguments, problem)
        compare(out, expected, "out")
        reads = trace.buffers["value_cache"].reads
        useful, sectors = min(useful, reads.useful), sectors + reads.sectors
        if useful <= BUDGET:
            moved = 32 * reads.sectors
            reject(
                f"right, but only {useful:.0%} of the moved bytes were asked for",
                f"value_cache: {reads.elements} reads, {reads.sectors} sectors, {moved} bytes",
                f"wanted: more than {BUDGET:.0%}",
            )
    return f"{sectors} sectors of values, at least {useful:.0%} of their bytes asked for"


EXERCISE = Exercise(
    name="coalesce",
    title="Coalesce the reads",
    function=("launch_shape", "weigh"),
    lines=7,
    hints=(
        "Which index of `value_cache` moves from one number to its neighbour in memory? That is "
        "the one that must differ between neighbouring threads.",
        "Thread `d` of a CTA computes `out[sequence, head, d]` and nothing else. So a CTA needs "
        "`D` threads, and the loop over `d` goes away.",
        "`launch_shape` returns `(num_seqs, num_heads), D`; in the kernel the sequence is "
        "`cuda.blockIdx.x`, the head `cuda.blockIdx.y` and `d` is `cuda.threadIdx.x`.",
    ),
    learnt="The same number of reads can cost eight times as much: the lanes of a warp should "
    "ask for numbers side by side.",
    check=check,
    wrong=(
        Wrong(
            "a thread walks along its head",
            text="""from numba import cuda, float32

D = 32


def launch_shape(num_seqs, num_heads):
    return num_seqs, num_heads


def weigh(out, weights, value_cache, block_tables, seq_lens):
    sequence, head, size = cuda.blockIdx.x, cuda.threadIdx.x, value_cache.shape[1]
    for d in range(D):
        total = float32(0)
        for position in range(seq_lens[sequence]):
            block, slot = block_tables[sequence, position // size], position % size
            total += weights[sequence, head, position] * value_cache[block, slot, head, d]
        out[sequence, head, d] = total
""",
            says="right, but only 12% of the moved bytes were asked for",
        ),
        Wrong(
            "a thread takes four numbers in a row, as one would on a CPU",
            text="""from numba import cuda, float32

D = 32


def launch_shape(num_seqs, num_heads):
    return (num_seqs, num_heads), D // 4


def weigh(out, weights, value_cache, block_tables, seq_lens):
    sequence, head, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    size = value_cache.shape[1]
    for d in range(4 * thread, 4 * thread + 4):
        total = float32(0)
        for position in range(seq_lens[sequence]):
            block, slot = block_tables[sequence, position // size], position % size
            total += weights[sequence, head, position] * value_cache[block, slot, head, d]
        out[sequence, head, d] = total
""",
            says="right, but only 25% of the moved bytes were asked for",
        ),
        Wrong(
            "a thread for each head, a CTA for each dimension",
            text="""from numba import cuda, float32

D = 32


def launch_shape(num_seqs, num_heads):
    return (num_seqs, D), num_heads


def weigh(out, weights, value_cache, block_tables, seq_lens):
    sequence, d, head = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    size, total = value_cache.shape[1], float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // size], position % size
        total += weights[sequence, head, position] * value_cache[block, slot, head, d]
    out[sequence, head, d] = total
""",
            says="right, but only 12% of the moved bytes were asked for",
        ),
        Wrong(
            "the table is ignored",
            "block_tables[sequence, position // block_size], position % block_size",
            "position // block_size, position % block_size",
            says="holds no token of this sequence",
        ),
        Wrong(
            "the last block is read to its end",
            "range(seq_lens[sequence])",
            "range((seq_lens[sequence] + block_size - 1) // block_size * block_size)",
            says="holds no token of this sequence",
        ),
        Wrong(
            "half of the dimensions",
            "return (num_seqs, num_heads), D",
            "return (num_seqs, num_heads), D // 2",
            says="was never written",
        ),
    ),
)
