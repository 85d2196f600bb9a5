"""Judges ``merge`` on every pair of small sets of keys, and on three sets in every order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from types import ModuleType
from typing import NamedTuple

import numpy as np

from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

SHIFTS = (0, 1000, -1000)  # added to every score: exp(1000) is too large for any float
DOUBLINGS = (1, 2, 4)  # scores in units of ln 2, so that exp(score) is 2, 4 or 16
VALUES = ((8, -4), (2, 1))


class Key(NamedTuple):
    """A key that the query has met: exp(score) is 2**doublings, before the shift."""

    doublings: int
    value: tuple[int, int]


Keys = tuple[Key, ...]
KEYS = tuple(Key(doublings, value) for doublings, value in product(DOUBLINGS, VALUES))


def sets(max_keys: int) -> list[Keys]:
    """All sets of keys, the smallest first."""
    sizes = range(max_keys + 1)
    return [keys for n in sizes for keys in combinations_with_replacement(KEYS, n)]


def pairs(max_keys: int) -> Iterator[tuple[Keys, ...]]:
    """All pairs of sets: without an empty one first, then the fewest keys, the most telling."""

    def size(pair: tuple[Keys, ...]) -> tuple[int, ...]:
        union = pair[0] + pair[1]
        unlike = len({key.value for key in union}) + len({key.doublings for key in union})
        return pair.count(()), len(union), len(pair[1]), -unlike

    found = (pair for pair in product(sets(max_keys), repeat=2) if sum(map(len, pair)) <= max_keys)
    yield from sorted(found, key=size)


def attention(keys: Keys, shift: float) -> tuple[np.ndarray, float]:
    """The truth, in whole numbers as long as that is possible."""
    if not keys:
        return np.zeros(2), -math.inf
    total = sum(2**key.doublings for key in keys)
    sums = (sum(2**key.doublings * key.value[i] for key in keys) for i in range(2))
    return np.array([float(Fraction(s, total)) for s in sums]), shift + math.log(total)


def told(keys: Keys, shift: float) -> str:
    """A set of keys as a story says it: ``score ln 4 + 1000, value [8, -4]``."""
    tail = f" {'+' if shift > 0 else '-'} {abs(shift)}" if shift else ""
    parts = (f"score ln {2**k.doublings}{tail}, value {list(k.value)}" for k in keys)
    return "; ".join(parts) or "no keys: lse is -inf, out is unwritten memory"


def part(keys: Keys, shift: float) -> tuple[np.ndarray, float]:
    """What is handed over: where there are no keys, ``out`` holds whatever memory held."""
    out, lse = attention(keys, shift)
    return (out if keys else np.full(2, np.nan)), lse


def judge(got: tuple, keys: Keys, shift: float, parts: tuple = ()) -> None:
    """Reject what is not attention over ``keys``; name the mistake, if it is a known one."""
    same_form(got, (np.zeros(2), 0.0), "merge(...)")
    if len(got) != 2:
        reject(f"merge returned {len(got)} things, expected (out, lse)")
    out, lse = got
    expected_out, expected_lse = attention(keys, shift)
    same_form(out, expected_out, "the first thing that merge returned")
    lines = (
        f"got      out {shown(out)}, lse {float(lse):.6g}",
        f"expected out {shown(expected_out)}, lse {expected_lse:.6g}",
    )
    if not np.allclose(out, expected_out, rtol=1e-9, atol=1e-9):
        reject(_why_out(out, parts), *lines)
    if not (lse == expected_lse or math.isclose(lse, expected_lse, rel_tol=1e-9, abs_tol=1e-9)):
        reject(_why_lse(float(lse), expected_lse, parts), *lines)


def shown(out: np.ndarray) -> str:
    """An output in a few digits."""
    return "[" + ", ".join(f"{x:.6g}" for x in out) + "]"


def _why_out(out: np.ndarray, parts: tuple) -> str:
    empty = sum(lse == -math.inf for _, lse in parts)
    if np.isnan(out).any() and empty == 2:
        return "two sets without keys gave NaN"
    if np.isnan(out).any() and empty:
        return "NaN came out of a set without keys: it was read, or -inf was subtracted from -inf"
    if not np.isfinite(out).all():
        return "out is not finite: a score near 1000 or -1000 was too much for exp"
    outs = [part_out for part_out, _ in parts]
    if outs and np.allclose(out, sum(outs)):
        return "out is the plain sum of the two outputs"
    if outs and np.allclose(out, sum(outs) / len(outs)):
        return "out is the plain mean of the two: a set weighs as much as its keys"
    return "out is not attention over both sets"


def _why_lse(lse: float, expected: float, parts: tuple) -> str:
    lses = [part_lse for _, part_lse in parts]
    if math.isnan(lse):
        return "lse is NaN"
    if lses and lse == max(lses):
        return "lse is only the larger of the two: there are more keys now"
    if lses and math.isclose(lse, sum(lses), abs_tol=1e-9):
        return "lse is the sum of the two: logarithms of sums do not add"
    return "lse is not the natural logarithm of the sum of exp(score) over both sets"


def check(module: ModuleType) -> str:
    """All pairs of sets with up to three keys; then three sets in every order and grouping."""
    with np.errstate(all="ignore"):
        num_pairs = sum(_try_pair(module.merge, a, b) for a, b in pairs(3))
        num_orders = sum(_try_three(module.merge, keys) for keys in product(sets(1), repeat=3))
    return f"{num_pairs:,} pairs of sets, and {num_orders:,} ways to merge three"


def _try_pair(merge, keys_a: Keys, keys_b: Keys) -> int:
    for shift in SHIFTS:
        a, b = part(keys_a, shift), part(keys_b, shift)
        trying(f"set a: {told(keys_a, shift)}", f"set b: {told(keys_b, shift)}")
        before = [a[0].copy(), b[0].copy()]
        got = merge(*a, *b)
        if not all(np.array_equal(x, y[0], equal_nan=True) for x, y in zip(before, (a, b))):
            reject("merge changed an array that was passed in: others may still need it")
        judge(got, keys_a + keys_b, shift, (a, b))
    return len(SHIFTS)


def _try_three(merge, keys: tuple[Keys, ...]) -> int:
    ways = 0
    for order in permutations(keys):
        a, b, c = (part(k, 0) for k in order)
        lines = (f"set {name}: {told(k, 0)}" for name, k in zip("abc", order))
        trying(*lines, "merged as (a, b), c and as a, (b, c)")
        union = sum(order, ())
        judge(merge(*merge(*a, *b), *c), union, 0)
        judge(merge(*a, *merge(*b, *c)), union, 0)
        ways += 2
    return ways


EXERCISE = Exercise(
    name="merge",
    title="Merge attention over two sets of keys",
    function="merge",
    lines=9,
    hints=(
        "An output was divided by the sum of exp(score) of its set, and lse still knows that sum. "
        "So a set weighs exp(lse) against the other.",
        "exp(1000) is infinite. Only the ratio of the two weights matters, so subtract the larger "
        "lse from both before exp, and add it again at the end, when lse is computed.",
        "largest = max(lse_a, lse_b). If that is -inf, there are no keys at all: return early. "
        "Otherwise add up weight * out and weight, but only over sets with lse > -inf, since "
        "0 * NaN is NaN; then divide, and return largest + log(sum of the weights).",
    ),
    learnt="A part of the keys is summed up by (out, lse); parts may be merged in any order.",
    check=check,
    wrong=(
        Wrong(
            "each set counts the same",
            "weight = math.exp(lse - largest)",
            "weight = 1.0",
            says="plain mean",
        ),
        Wrong(
            "nothing is divided",
            "return out / total, ",
            "return out, ",
            says="out is",
        ),
        Wrong(
            "exp of the bare lse",
            "largest = max(lse_a, lse_b)",
            "largest = -math.inf if lse_a == lse_b == -math.inf else 0.0",
            says="OverflowError",
        ),
        Wrong(
            "-inf minus -inf",
            text="""import math

import numpy as np


def merge(out_a, lse_a, out_b, lse_b):
    largest = max(lse_a, lse_b)
    a, b = np.exp(lse_a - largest), np.exp(lse_b - largest)
    lse = float(largest + np.log(a + b))
    return (a * np.nan_to_num(out_a) + b * np.nan_to_num(out_b)) / (a + b), lse
""",
            says="two sets without keys gave NaN",
        ),
        Wrong(
            "zero times what an empty set holds",
            "        if lse > -math.inf:\n",
            "        if True:\n",
            says="NaN came out of a set without keys",
        ),
        Wrong(
            "hands on the memory of an empty set",
            "return np.zeros_like(out_a), -math.inf",
            "return out_b, -math.inf",
            says="two sets without keys gave NaN",
        ),
        Wrong(
            "lse of the larger set",
            "largest + math.log(total)",
            "largest",
            says="only the larger of the two",
        ),
        Wrong(
            "adds the two logarithms",
            "largest + math.log(total)",
            "lse_a + lse_b",
            says="logarithms of sums do not add",
        ),
        Wrong(
            "lse in base 2",
            "largest + math.log(total)",
            "largest + math.log2(total)",
            says="natural logarithm",
        ),
        Wrong(
            "weights in base 2",
            "weight = math.exp(lse - largest)",
            "weight = 2.0 ** (lse - largest)",
            says="out is not attention over both sets",
        ),
        Wrong(
            "forgets to add the largest again",
            "largest + math.log(total)",
            "math.log(total)",
            says="natural logarithm",
        ),
        Wrong(
            "weighs into the first array in place",
            "    out, total = np.zeros_like(out_a), 0.0\n",
            "    out, total = np.zeros_like(out_a), 0.0\n"
            "    out_a *= 1.0 if lse_a == largest else math.exp(lse_a - largest)\n",
            says="changed an array",
        ),
    ),
)
