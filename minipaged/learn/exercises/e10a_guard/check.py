"""Judges which sequence and head a thread takes, on grids with threads left over."""

from __future__ import annotations

from types import ModuleType

from minipaged.learn.exercise import Exercise, Wrong
from minipaged.learn.exercises._kernels import Problem, compare, launch, many, output

CASES = (  # lengths, heads, threads of a CTA
    ((1,), 1, 1),
    ((2,), 1, 4),
    ((5, 2, 3), 1, 2),
    ((3, 6), 3, 4),
    ((7, 4, 1), 2, 32),
)


def check(module: ModuleType) -> str:
    """Five launches; in four of them the last CTA has threads without work."""
    idle = 0
    for lens, num_heads, num_threads in CASES:
        problem = Problem.of(lens, num_heads, module.D, seed=len(lens))
        rows = len(lens) * num_heads
        num_ctas = -(-rows // num_threads)
        idle += num_ctas * num_threads - rows
        problem.story(
            f"{many(num_ctas, 'CTA')} of {many(num_threads, 'thread')} for {many(rows, 'row')}"
        )
        out = output(*problem.query.shape)
        launch(module.decode, num_ctas, num_threads, (out, *problem.arguments), problem)
        compare(out, problem.attention()[0], "out")
    return f"{len(CASES)} launches, {idle} threads had nothing to do and did nothing"


EXERCISE = Exercise(
    name="guard",
    title="Guard the grid",
    function="decode",
    lines=4,
    hints=(
        "Number the threads of the whole grid from 0: how many are in the CTAs before mine?",
        "`row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x`. There are "
        "`num_seqs * num_heads` rows, and `return` ends a thread.",
        "Of a row, `row // num_heads` is the sequence and `row % num_heads` the head. Return "
        "before that if `row >= num_seqs * num_heads`.",
    ),
    learnt="A grid is rounded up to whole CTAs, so each kernel begins by asking whether there is "
    "anything for this thread to do.",
    check=check,
    wrong=(
        Wrong(
            "no guard",
            "    if row >= num_seqs * num_heads:\n        return\n",
            says="an index outside of its array",
        ),
        Wrong("one thread too many", "if row >=", "if row >", says="outside of its array"),
        Wrong(
            "every CTA begins at row 0",
            "cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x",
            "cuda.threadIdx.x",
            says="a race",
        ),
        Wrong(
            "a CTA is taken for a sequence",
            "row // num_heads, row % num_heads",
            "cuda.blockIdx.x, cuda.threadIdx.x",
            says="outside of its array",
        ),
        Wrong(
            "sequence and head exchanged",
            "row // num_heads, row % num_heads",
            "row % num_heads, row // num_heads",
            says="outside of its array",
        ),
        Wrong(
            "rows counted without their heads",
            "if row >= num_seqs * num_heads:",
            "if row >= num_seqs:",
            says="was never written",
        ),
    ),
)
