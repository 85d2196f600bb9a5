"""Judges grouped heads: the output of every query head, and how often a key was read."""

from __future__ import annotations

from types import ModuleType

from minipaged.learn.exercise import Exercise, Wrong, reject
from minipaged.learn.exercises._kernels import Problem, compare, launch, output, reads

CASES = (((1,), 1), ((3,), 1), ((5, 2), 2))  # lengths, kv heads


def check(module: ModuleType) -> str:
    """Three batches: the output first, then the numbers that were read for it."""
    total = 0
    for lens, num_kv_heads in CASES:
        num_heads = module.G * num_kv_heads
        problem = Problem.of(
            lens, num_heads, module.D, num_kv_heads=num_kv_heads, seed=len(lens) + num_kv_heads
        )
        problem.story(f"{module.G} query heads for each kv head")
        out = output(*problem.query.shape)
        grid, num_threads = module.launch_shape(len(lens), num_heads, num_kv_heads)
        trace = launch(module.decode, grid, num_threads, (out, *problem.arguments), problem)
        compare(out, problem.attention()[0], "out")
        budget = sum(lens) * num_kv_heads * module.D
        for name in ("key_cache", "value_cache"):
            if (here := reads(trace, name)) > budget:
                reject(
                    f"right, but every number of {name} is read {here / budget:g} times",
                    f"got      {here} reads",
                    f"expected {budget}, once for each kv head",
                )
            total += here
    return f"{total} reads of keys and values, for {module.G} query heads each"


EXERCISE = Exercise(
    name="grouped",
    title="Grouped heads",
    function=("launch_shape", "decode"),
    lines=18,
    hints=(
        "A CTA now belongs to a kv head. Which query heads use it? `kv_head * G + g`, for `g` "
        "from 0 to `G - 1`.",
        "Each head has a softmax of its own, so `mine`, `largest`, `total` and `accumulator` "
        "become arrays: `cuda.local.array(G, float32)`.",
        "Load `key` and `value` once, before the loop over `g`; everything from `warp_sum` on "
        "goes inside it, with `[g]`.",
    ),
    learnt="With grouped heads a loaded key serves G queries: the same arithmetic, one G-th of "
    "the traffic.",
    check=check,
    wrong=(
        Wrong(
            "the key is loaded in the loop over heads",
            "            score = warp_sum(mine[g] * key)",
            "            score = warp_sum(mine[g] * key_cache[block, slot, kv_head, d])",
            says="every number of key_cache is read 5 times",
        ),
        Wrong(
            "keys once, values once per head",
            "+ weight * value\n",
            "+ weight * value_cache[block, slot, kv_head, d]\n",
            says="every number of value_cache is read 5 times",
        ),
        Wrong(
            "heads are dealt out in turn",
            text="",
            old="query[sequence, kv_head * G + g, d]",
            new="query[sequence, g * (query.shape[1] // G) + kv_head, d]",
            says="is wrong",
        ),
        Wrong(
            "only the first head of the group is written",
            "    for g in range(G):\n        out[",
            "    for g in range(1):\n        out[",
            says="was never written",
        ),
        Wrong(
            "one sum for all heads",
            "total[g] = total[g] * rescale + weight",
            "total[g] = total[0] * rescale + weight",
            says="is wrong",
        ),
        Wrong(
            "a warp for every query head",
            text="""import math

from numba import cuda, float32

D, G = 32, 4


def warp_sum(x):
    step = 16
    while step > 0:
        x += cuda.shfl_xor_sync(0xFFFFFFFF, x, step)
        step //= 2
    return x


def launch_shape(num_seqs, num_heads, num_kv_heads):
    return (num_seqs, num_heads), D


def decode(out, query, key_cache, value_cache, block_tables, seq_lens, scale):
    sequence, head, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    size, kv_head = key_cache.shape[1], head // G
    mine = query[sequence, head, d] * scale
    largest, total, accumulator = float32(-math.inf), float32(0), float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // size], position % size
        score = warp_sum(mine * key_cache[block, slot, kv_head, d])
        larger = max(largest, score)
        rescale, weight = math.exp(largest - larger), math.exp(score - larger)
        total = total * rescale + weight
        accumulator = accumulator * rescale + weight * value_cache[block, slot, kv_head, d]
        largest = larger
    out[sequence, head, d] = accumulator / total
""",
            says="right, but every number of key_cache is read 4 times",
        ),
    ),
)
