"""Judges a sum over the lanes of a warp: its value in every lane, and what it took."""

from __future__ import annotations

from types import ModuleType

from minipaged.learn.exercise import Exercise, Wrong, reject
from minipaged.learn.exercises._kernels import Problem, compare, launch, many, output

CASES = (((1,), 1), ((3,), 1), ((5, 2), 2), ((10, 7, 4), 1))  # lengths, heads
BUDGET = 6  # instructions of a warp for each key

SUM = """        step = 16
        while step > 0:
            score += cuda.shfl_xor_sync(0xFFFFFFFF, score, step)
            step //= 2
"""


def check(module: ModuleType) -> str:
    """Four batches: the output first, then what the warp did for it."""
    met = keys = 0
    for lens, num_heads in CASES:
        problem = Problem.of(lens, num_heads, module.D, seed=len(lens))
        problem.story("a warp for each head")
        out = output(*problem.query.shape)
        grid = len(lens), num_heads
        trace = launch(module.decode, grid, 32, (out, *problem.arguments), problem)
        compare(out, problem.attention()[0], "out")
        here, collectives = sum(lens) * num_heads, sum(trace.collectives.values())
        if trace.barriers:
            reject(f"right, but {trace.barriers} barriers for {many(here, 'key')}", "wanted: none")
        if trace.shared:
            reject(f"right, but uses shared memory: {', '.join(trace.shared)}", "wanted: none")
        if collectives > BUDGET * here:
            each = f"{collectives / here:g} instructions of the warp for each key"
            reject(f"right, but {each}", f"{BUDGET} are enough: halve the distance each time")
        met, keys = met + collectives, keys + here
    return f"{met} shuffles for {keys} keys, no barrier, no shared memory"


EXERCISE = Exercise(
    name="shuffle",
    title="Shuffles instead of shared memory",
    function="decode",
    lines=4,
    hints=(
        "The product of a lane can stay in a variable. What does lane `i` hold after "
        "`score += cuda.shfl_xor_sync(0xFFFFFFFF, score, 16)`?",
        "The sum of lanes `i` and `i ^ 16`, and lane `i ^ 16` holds the same. Go on with 8, 4, 2 "
        "and 1: five shuffles, and each lane has all 32.",
        "All 32 lanes must execute the shuffle, so it stands in no `if`. `products` and every "
        "`cuda.syncthreads()` go away.",
    ),
    learnt="The lanes of a warp read each other's registers: five shuffles replace shared memory "
    "and all the barriers.",
    check=check,
    wrong=(
        Wrong(
            "shuffles go down, so only lane 0 has the sum",
            "score += cuda.shfl_xor_sync(",
            "score += cuda.shfl_down_sync(",
            says="is wrong",
        ),
        Wrong("the last step is missing", "while step > 0:", "while step > 1:", says="is wrong"),
        Wrong("begins at 32", "step = 16", "step = 32", says="is wrong"),
        Wrong("half a mask", "0xFFFFFFFF, score", "0xFFFF, score", says="a lane asks for"),
        Wrong(
            "only the lower lanes shuffle",
            "            score += cuda.shfl_xor_sync(0xFFFFFFFF, score, step)\n",
            "            if d < step:\n"
            "                score += cuda.shfl_xor_sync(0xFFFFFFFF, score, step)\n",
            says="whose mask is not the lanes",
        ),
        Wrong(
            "one lane after the other",
            SUM,
            """        mine_only, score = score, float32(0)
        for lane in range(32):
            score += cuda.shfl_sync(0xFFFFFFFF, mine_only, lane)
""",
            says="right, but 32 instructions of the warp for each key",
        ),
        Wrong(
            "shared memory, because a warp needs no barrier",
            "        score = mine * key_cache[block, slot, head, d]\n" + SUM,
            """        products = cuda.shared.array(D, float32)
        products[d] = mine * key_cache[block, slot, head, d]
        score = float32(0)
        for j in range(D):
            score += products[j]
""",
            says="a race: two threads use one element",
        ),
        Wrong(
            "shared memory and syncwarp",
            "        score = mine * key_cache[block, slot, head, d]\n" + SUM,
            """        products = cuda.shared.array(D, float32)
        products[d] = mine * key_cache[block, slot, head, d]
        cuda.syncwarp()
        score = float32(0)
        for j in range(D):
            score += products[j]
        cuda.syncwarp()
""",
            says="right, but uses shared memory",
        ),
    ),
)
