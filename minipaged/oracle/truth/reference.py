"""Attention by its definition, in float64, and how far a kernel may be from it; knows only numpy.

Softmax attention with loops over sequences, queries and heads (Vaswani et al. 2017, section 3.2.1).
No line here is shared with the code that it judges.

How far: let a kernel's score of key j be wrong by at most delta_j. With the true weights P and the
true output o, its output is wrong by exactly

    sum_j P_j (e^eps_j - 1) (v_j - o) / sum_j P_j e^eps_j,      |eps_j| <= delta_j,

whatever eps is; the roundings of weights, sums and result are added to that. So the bound follows
each row, head and element, and a violation proves that the declared arithmetic was not performed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .formats import FORMATS, unit_roundoff
from .problem import Array, Problem


@dataclass(frozen=True)
class NumericModel:
    """The arithmetic that a kernel declares, by the names of its formats.

    Attributes:
        score: Format that scores are kept in.
        p: Format of the weights that multiply the values.
        acc: Format of all sums.
        out: Format of the output; None for the problem's dtype.
        lse: Format of the returned lse.
        load: Format that queries, keys and values are rounded to once more on loading, or None.
        exp_ulps: Error of the exponential, in units of the roundoff of `acc`.
    """

    score: str = "float32"
    p: str = "float32"
    acc: str = "float32"
    out: str | None = None
    lse: str = "float32"
    load: str | None = None
    exp_ulps: float = 4.0


@dataclass(frozen=True)
class Truth:
    """What attention is, and what a kernel of the declared arithmetic may return.

    All are per sequence.

    Attributes:
        out: `[query_len, num_heads, value_head_dim]`; 0 for a query that sees nothing.
        lse: `[query_len, num_heads]`, natural logarithm of the denominator, the sink included;
            -inf for a query that sees nothing.
        out_bound: Like `out`: the hard bound on the error of each element.
        lse_bound: Like `lse`.
        out_variance: Like `out`: the variance of the error if roundings are independent.
    """

    out: tuple[Array, ...]
    lse: tuple[Array, ...]
    out_bound: tuple[Array, ...]
    lse_bound: tuple[Array, ...]
    out_variance: tuple[Array, ...]


def reference(problem: Problem, numeric: NumericModel | None = None) -> Truth:
    """The output and lse of every query and head in float64, with their error bounds.

    Args:
        problem: The sequences and options.
        numeric: The arithmetic to allow for; float32 throughout if None.
    """
    numeric = numeric or NumericModel()
    allowance = _Allowance.of(numeric, problem)
    return Truth(*zip(*(_sequence(problem, s, allowance) for s in range(problem.num_seqs))))


def _sequence(problem: Problem, s: int, allow: _Allowance) -> tuple[Array, ...]:
    query, key, value = problem.query[s], problem.key[s], problem.value[s]
    rows = len(query), problem.num_heads
    out, bound, variance = (np.zeros((*rows, problem.value_head_dim)) for _ in range(3))
    lse, lse_bound = np.full(rows, -np.inf), np.zeros(rows)
    visible, positions = problem.visible(s), problem.positions(s)
    group = problem.num_heads // problem.num_kv_heads
    for i in range(rows[0]):
        seen = np.flatnonzero(visible[i])
        distance = (seen - positions[i]).astype(np.float64)
        for h in range(rows[1]):
            k, v = key[seen, h // group], value[seen, h // group]
            row = _Row(problem, query[i, h], k, v, distance, h)
            if row.weights.size:
                out[i, h], lse[i, h] = row.out, row.lse
                bound[i, h], lse_bound[i, h] = allow.bounds(row)
                variance[i, h] = allow.variance(row)
    return out, lse, bound, lse_bound, variance


class _Row:
    """One query of one head over the keys that it sees, the sink as a last key of value 0."""

    def __init__(self, problem: Problem, q: Array, k: Array, v: Array, distance: Array, head: int):
        spec = problem.spec
        # `einsum` without BLAS: a product with a NaN elsewhere must not depend on the library.
        products = np.einsum("d,jd->j", q, k) * spec.scale
        self.scaled_magnitude = abs(spec.scale) * np.einsum("d,jd->j", np.abs(q), np.abs(k))
        self.scaled_square = spec.scale**2 * np.einsum("d,jd->j", q**2, k**2)
        self.slope = np.ones_like(products)  # of the softcap: how much of an error it lets through
        scores = products
        if spec.softcap is not None:
            bent = np.tanh(products / spec.softcap)
            scores, self.slope = spec.softcap * bent, 1 - bent**2
        magnitude = np.abs(scores) + self.slope * np.abs(products)
        if spec.alibi_slopes is not None:
            bias = spec.alibi_slopes[head] * distance
            scores, magnitude = scores + bias, magnitude + np.abs(bias)
        self.num_products, self.is_sink = problem.head_dim, False
        if spec.sinks is not None and spec.sinks[head] > -np.inf:
            scores, magnitude = np.append(scores, spec.sinks[head]), np.append(magnitude, 0.0)
            v = np.vstack([v, np.zeros((1, v.shape[1]))])
            for name in ("scaled_magnitude", "scaled_square", "slope"):
                setattr(self, name, np.append(getattr(self, name), 0.0))
        self.scores, self.magnitude, self.value = scores, magnitude, v
        if not scores.size:
            self.weights = scores
            return
        self.top = scores.max()
        terms = np.exp(scores - self.top)
        self.weights = terms / terms.sum()
        self.out = np.einsum("j,jd->d", self.weights, v)
        self.lse = self.top + math.log(terms.sum())
        self.mean_magnitude = np.einsum("j,jd->d", self.weights, np.abs(v))


@dataclass(frozen=True)
class _Allowance:
    """Roundoffs of a numeric model: `u_score` is 0 where scores are kept as they were summed."""

    u_sum: float
    u_score: float
    u_p: float
    u_out: float
    u_lse: float
    u_load: float
    tiny_p: float
    tiny_out: float
    exp_ulps: float

    @classmethod
    def of(cls, numeric: NumericModel, problem: Problem) -> _Allowance:
        out, u_sum = numeric.out or problem.dtype, unit_roundoff(numeric.acc)
        u_score = unit_roundoff(numeric.score)
        quantised = problem.key_codes is not None or problem.value_codes is not None
        load = unit_roundoff(numeric.load) if numeric.load else 0.0
        return cls(
            u_sum=u_sum,
            u_score=u_score if u_score > u_sum else 0.0,
            u_p=unit_roundoff(numeric.p),
            u_out=unit_roundoff(out),
            u_lse=unit_roundoff(numeric.lse),
            u_load=load + (2 * u_sum if quantised else 0.0),  # number times scale is rounded
            tiny_p=FORMATS[numeric.p].vanishing,
            tiny_out=FORMATS[out].vanishing,
            exp_ulps=numeric.exp_ulps,
        )

    def score_errors(self, row: _Row) -> Array:
        """delta_j: the most that each score, and the exponential of it, may be wrong by."""
        u, gap = self.u_sum, np.minimum(np.abs(row.scores - row.top), 200)
        products = (row.num_products + 4) * u + 2 * self.u_load
        from_products = row.slope * products * row.scaled_magnitude
        kept = self.u_score * np.abs(row.scores) + 4 * u * row.magnitude
        return from_products + kept + 2 * u * gap + self.exp_ulps * u

    def bounds(self, row: _Row) -> tuple[Array, float]:
        """Hard bounds: of each element of the output, and of the lse."""
        u, n, delta = self.u_sum, len(row.weights), np.minimum(self.score_errors(row), 50)
        spread = np.abs(row.value - row.out)
        heaviest = np.maximum(np.abs(row.value), spread)
        wrong = row.weights * np.expm1(delta)
        least_total = row.weights @ np.exp(-delta)
        error = (wrong @ spread) / least_total
        error += self.u_p * (row.weights @ heaviest) + self.tiny_p * heaviest.sum(0)
        error += ((n + 8) * u + self.u_load) * row.mean_magnitude
        # The weights may have been divided by their rounded sum, or be e^(score - rounded lse).
        error += ((n + 8) + 2 * abs(row.lse)) * u * np.abs(row.out)
        error += self.u_out * (np.abs(row.out) + error) + self.tiny_out
        lse = max(math.log1p(wrong.sum()), -math.log(least_total))
        return error, lse + (n + 8) * u + 8 * max(u, self.u_lse) * (1 + abs(row.lse))

    def variance(self, row: _Row) -> Array:
        """Variance of each element of the output if all roundings are independent."""
        u, squares = self.u_sum, row.weights**2
        scores = (row.num_products * u**2 + 2 * self.u_load**2) / 3 * row.scaled_square
        scores = row.slope**2 * scores + self.u_score**2 / 3 * row.scores**2
        scores = scores + (4 * u * (1 + row.magnitude)) ** 2
        found = (squares * scores) @ (row.value - row.out) ** 2
        found += (self.u_p**2 + self.u_load**2) / 3 * (squares @ row.value**2)
        found += (self.u_out**2 / 3 + (u * row.lse) ** 2) * row.out**2
        found += u**2 * max(1.0, math.sqrt(len(row.weights))) * row.mean_magnitude**2
        return found + self.tiny_out**2 + self.tiny_p**2 * (row.value**2).sum(0)
