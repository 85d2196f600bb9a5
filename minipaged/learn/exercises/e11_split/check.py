"""Judges the two halves of split-KV alone and together: the parts, then their merge."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from minipaged.learn.exercise import Exercise, Wrong, reject
from minipaged.learn.exercises._kernels import UNWRITTEN, Problem, compare, launch, many, output

CASES = (  # lengths, heads, splits
    ((1,), 1, 1),
    ((8,), 1, 2),
    ((5,), 1, 2),
    ((10,), 1, 3),
    ((2, 7), 1, 4),  # the last two splits of the first sequence are empty
    ((0, 6), 2, 2),
)


def check(module: ModuleType) -> str:
    """Six batches: what each split leaves, then what `merge` makes of parts that are right."""
    parts = empty = 0
    for lens, num_heads, num_splits in CASES:
        problem = Problem.of(lens, num_heads, module.D, seed=sum(lens))
        problem.story(many(num_splits, "split"))
        shape = (len(lens), num_heads, num_splits)
        partial_out, partial_lse = output(*shape, module.D), output(*shape)
        arguments = partial_out, partial_lse, *problem.arguments
        trace = launch(module.attend_split, shape, module.D, arguments, problem)
        judge_parts(problem, partial_out, partial_lse)
        judge_shares(trace, -(-max(lens) // num_splits))
        partial_out, partial_lse = parts_of(problem, num_splits)
        out, lse = output(*problem.query.shape), output(len(lens), num_heads)
        launch(module.merge, shape[:2], module.D, (out, lse, partial_out, partial_lse))
        expected = problem.attention()
        compare(out, expected[0], "merge: out")
        compare(lse, expected[1], "merge: lse")
        parts, empty = parts + partial_lse.size, empty + int(np.isinf(partial_lse).sum())
    return f"{parts} splits, {empty} of them empty, merged to attention over all keys"


def judge_parts(problem: Problem, partial_out: Any, partial_lse: Any) -> None:
    """What the splits left must merge to attention over all keys, whoever had which."""
    out, lse = problem.attention()
    for sequence, head in np.ndindex(*lse.shape):
        told = partial_lse[sequence, head]
        where = f"partial_lse[{sequence}, {head}]"
        if (told.view(np.uint32) == UNWRITTEN).any():
            reject(f"{where} was not written by every split", f"got {told}")
        if np.isnan(told).any():
            reject(f"{where} has a NaN: a split without keys leaves -inf", f"got {told}")
        exact = told.astype(float)
        with np.errstate(divide="ignore"):
            together = np.log(np.exp(exact).sum())
        if not np.isclose(together, lse[sequence, head], rtol=1e-4, atol=1e-5):
            reject(
                f"{where}: the splits together do not weigh as much as all keys",
                f"lse of the splits {told}",
                f"together {together:.6g}, expected {lse[sequence, head]:.6g} (natural logarithm)",
            )
        here = exact > -np.inf
        weights = np.exp(exact[here] - lse[sequence, head])
        merged = weights @ partial_out[sequence, head][here].astype(float)
        if not np.allclose(merged, out[sequence, head], rtol=1e-4, atol=1e-5):
            reject(
                f"partial_out[{sequence}, {head}]: the lse are right, the outputs are not",
                f"merged   {merged[:3].round(4)} ...",
                f"expected {out[sequence, head][:3].round(4)} ...",
            )


def judge_shares(trace: Any, share: int) -> None:
    """Nobody does the work of the others."""
    most = trace.buffers["key_cache"].reads.max_per_thread
    if most > share:
        reject(
            f"right, but one split reads {many(most, 'key')}",
            f"wanted: at most {share}, so that the CTAs finish together",
        )


def parts_of(problem: Problem, num_splits: int) -> tuple[Any, Any]:
    """Parts that are right; the output beside an lse of -inf is NaN."""
    num_seqs, num_heads, head_dim = problem.query.shape
    out = np.full((num_seqs, num_heads, num_splits, head_dim), np.nan, np.float32)
    lse = np.full((num_seqs, num_heads, num_splits), -np.inf, np.float32)
    for sequence, head in np.ndindex(num_seqs, num_heads):
        keys = problem.rows(problem.key_cache, sequence, head)
        values = problem.rows(problem.value_cache, sequence, head)
        scores = keys @ problem.query[sequence, head] * float(problem.scale)
        for split in range(min(num_splits, len(scores))):
            mine = slice(split, None, num_splits)  # any split of the keys will do
            weights = np.exp(scores[mine])
            lse[sequence, head, split] = np.log(weights.sum())
            out[sequence, head, split] = weights / weights.sum() @ values[mine]
    return out, lse


EXERCISE = Exercise(
    name="split",
    title="Split-KV and its merge",
    function=("attend_split", "merge"),
    lines=24,
    hints=(
        "A share is `(seq_len + num_splits - 1) // num_splits` keys, and the last one may be "
        "shorter, or empty. `range(first, end)` with `first >= end` is no round at all.",
        "Divide by `total` only where `total > 0`; the lse is `largest + math.log(total)`, and "
        "one thread writes it.",
        "`merge` twice walks over the splits: first for the largest lse, then each part that is "
        "not empty counts `math.exp(part - largest)`. Divide the sum by the sum of these weights.",
        "If all are empty, nothing was added and the largest lse is still -inf: write just that.",
    ),
    learnt="Attention over some keys is an output and an lse, and such parts merge in any order: "
    "that is how one long sequence fills a whole card.",
    check=check,
    wrong=(
        Wrong(
            "the last split reads past the end",
            "end = min(first + share, seq_lens[sequence])",
            "end = first + share",
            says="holds no token of this sequence",
        ),
        Wrong(
            "shares are rounded down",
            "(seq_lens[sequence] + num_splits - 1) // num_splits",
            "seq_lens[sequence] // num_splits",
            says="do not weigh as much as all keys",
        ),
        Wrong(
            "un-normalised parts, to be merged as normalised ones",
            "split, d] = accumulator / total",
            "split, d] = accumulator",
            says="the lse are right, the outputs are not",
        ),
        Wrong(
            "an lse of base 2",
            "lse = largest + math.log(total)",
            "lse = (largest + math.log(total)) / math.log(2.0)",
            says="(natural logarithm)",
        ),
        Wrong(
            "an lse without its largest score",
            "lse = largest + math.log(total)",
            "lse = math.log(total)",
            says="do not weigh as much as all keys",
        ),
        Wrong(
            "an empty split leaves what was there before",
            "    if d == 0:\n        lse = float32(-math.inf)",
            "    if d == 0 and total > 0:\n        lse = float32(-math.inf)",
            says="was not written by every split",
        ),
        Wrong(
            "every lane writes the lse",
            "    if d == 0:\n        lse = float32(-math.inf)",
            "    if d >= 0:\n        lse = float32(-math.inf)",
            says="a race",
        ),
        Wrong(
            "every split has all keys",
            "    first = split * share\n    end = min(first + share, seq_lens[sequence])\n",
            "    first, end = 0, seq_lens[sequence]\n",
            says="do not weigh as much as all keys",
        ),
        Wrong(
            "the first split does all the work",
            "    first = split * share\n    end = min(first + share, seq_lens[sequence])\n",
            "    first, end = 0, seq_lens[sequence] if split == 0 else 0\n",
            says="right, but one split reads",
        ),
        Wrong(
            "parts count equally",
            "weight = math.exp(part - largest)",
            "weight = float32(1)",
            says="merge: out[0, 0, 0] is wrong",
        ),
        Wrong(
            "weights of base 2",
            "weight = math.exp(part - largest)",
            "weight = float32(2) ** (part - largest)",
            says="merge: out[0, 0, 0] is wrong",
        ),
        Wrong(
            "an empty split counts 0 times NaN",
            "if part > -math.inf:",
            "if largest > -math.inf:",
            says="merge: out[0, 0, 0] is wrong",
        ),
        Wrong(
            "-inf minus -inf",
            "if part > -math.inf:",
            "if True:",
            says="merge: out[0, 0, 0] is wrong",
        ),
        Wrong(
            "the lse is the largest part's",
            "        largest += math.log(total)\n",
            "",
            says="merge: lse[0, 0] is wrong",
        ),
    ),
)
