"""Judges whether the race is gone, and at what price."""

from __future__ import annotations

from types import ModuleType

from minipaged.learn.exercise import Exercise, Wrong, reject
from minipaged.learn.exercises._kernels import Problem, compare, launch, output

CASES = (((1,), 1), ((2,), 1), ((5, 3), 1), ((6, 2), 2))  # lengths, heads
BUDGET = 8  # barriers of a CTA for each key

AFTER_SCORE = "        score = products[0]\n        cuda.syncthreads()\n"


def check(module: ModuleType) -> str:
    """Four batches; with a single key there is nothing to race with."""
    barriers = keys = 0
    for lens, num_heads in CASES:
        problem = Problem.of(lens, num_heads, module.D, seed=len(lens))
        problem.story("a CTA of 64 threads for each head")
        out = output(*problem.query.shape)
        grid = len(lens), num_heads
        trace = launch(module.decode, grid, module.D, (out, *problem.arguments), problem)
        compare(out, problem.attention()[0], "out")
        here = sum(lens) * num_heads
        if trace.barriers > BUDGET * here:
            reject(
                f"right, but {trace.barriers / here:g} barriers for each key",
                f"{BUDGET} are enough: one line is missing, no more",
            )
        barriers, keys = barriers + trace.barriers, keys + here
    return f"no race, {barriers} barriers for {keys} keys"


EXERCISE = Exercise(
    name="barrier",
    title="The missing barrier",
    function="decode",
    lines=1,
    hints=(
        "Let the judge run it as it is: it names two lines and the element they share. Which of "
        "the two belongs to the next key?",
        "A fast thread has its `score` and is already at the next key. What may it overwrite "
        "that a slow thread has not read yet?",
        "Everybody must have read `products[0]` before anybody writes `products[d]` again: a "
        "`cuda.syncthreads()` between the two, outside of any `if`.",
    ),
    learnt="A barrier is needed on both sides: before others read what I wrote, and before I "
    "overwrite what others still read.",
    check=check,
    wrong=(
        Wrong(
            "nothing was mended",
            AFTER_SCORE,
            "        score = products[0]\n",
            says="a race: two threads use one element",
        ),
        Wrong(
            "the barrier comes before the score is read",
            AFTER_SCORE,
            "        cuda.syncthreads()\n        score = products[0]\n",
            says="a race: two threads use one element",
        ),
        Wrong(
            "only the lanes of a warp wait for each other",
            AFTER_SCORE,
            "        score = products[0]\n        cuda.syncwarp()\n",
            says="syncwarp() orders the lanes of one warp alone",
        ),
        Wrong(
            "only thread 0 waits",
            AFTER_SCORE,
            "        score = products[0]\n        if d == 0:\n            cuda.syncthreads()\n",
            says="not all threads of the CTA come to the same barrier",
        ),
        Wrong(
            "barriers everywhere",
            AFTER_SCORE,
            AFTER_SCORE + "        cuda.syncthreads()\n",
            says="right, but 9 barriers for each key",
        ),
        Wrong(
            "the barrier of the sum is moved to the end of the key",
            "                products[d] += products[d + step]\n            cuda.syncthreads()\n",
            "                products[d] += products[d + step]\n",
            says="a race: two threads use one element",
        ),
    ),
)
