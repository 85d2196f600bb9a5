"""What attention must give: loops, `exp`, and an error budget; imports nothing of the package.

Everything is Python floats, one query row, one head and one key at a time. Beside each number it
keeps how far off a right implementation may be, from the roundings it must make: no tolerance of
taste. Unit roundoff u; a sum of n terms may be off by n * u * (sum of their absolute values).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float64": 0.0, "float32": 2.0**-140, "float16": 2.0**-25, "bfloat16": 2.0**-130}


@dataclass(frozen=True)
class Rules:
    """The options of a call, for one head."""

    scale: float
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    slope: float | None = None
    sink: float | None = None
    k_scale: float = 1.0
    v_scale: float = 1.0


@dataclass(frozen=True)
class Row:
    """One head's output for one query, and how far off it may be."""

    out: list[float]
    lse: float
    out_budget: list[float]
    lse_budget: float


def attend(
    query: list[float],
    keys: list[list[float]],
    values: list[list[float]],
    position: int,
    value_dim: int,
    rules: Rules,
    compute: str = "float64",
    stored_as: str = "float64",
) -> Row:
    """Attention of one query of one head at a position; key k has position k."""
    u = UNIT_ROUNDOFF[compute] + UNIT_ROUNDOFF["float64"]  # the oracle rounds, too
    seen = [k for k in range(len(keys)) if sees(position, k, rules)]
    scores, doubts = [], []
    for k in seen:
        products = [q * x * rules.k_scale * rules.scale for q, x in zip(query, keys[k])]
        score = math.fsum(products)
        doubt = (len(products) + 4) * u * math.fsum(abs(p) for p in products)
        if rules.softcap is not None:
            score = rules.softcap * math.tanh(score / rules.softcap)
            doubt += 8 * u * rules.softcap
        if rules.slope is not None:
            bias = rules.slope * (k - position)
            score += bias
            doubt += 3 * u * abs(bias)
        scores.append(score)
        doubts.append(doubt + 3 * u * abs(score) + 8 * u)
    rows = [[x * rules.v_scale for x in values[k]] for k in seen]
    if rules.sink is not None:  # a key whose value is 0
        scores.append(rules.sink)
        doubts.append(8 * u + u * abs(rules.sink))
        rows.append([0.0] * value_dim)
    if not scores:
        return Row([0.0] * value_dim, -math.inf, [0.0] * value_dim, 0.0)
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    shares = [w / total for w in weights]
    # exp turns an absolute error of its argument into a relative one of the weight
    errors = [d + u * (top - s) for d, s in zip(doubts, scores)]
    lse = top + math.log(total)
    lse_budget = math.fsum(p * e for p, e in zip(shares, errors))
    lse_budget += (len(scores) + 8) * u + 2 * u * (abs(lse) + abs(top))
    out, out_budget = [], []
    for d in range(value_dim):
        column = [row[d] for row in rows]
        exact = math.fsum(p * x for p, x in zip(shares, column))
        budget = math.fsum(p * (abs(x) + abs(exact)) * e for p, x, e in zip(shares, column, errors))
        budget += 2 * (len(scores) + 8) * u * math.fsum(p * abs(x) for p, x in zip(shares, column))
        budget += 1e-36 * max(abs(x) for x in column)  # weights too small for float32
        out.append(exact)
        out_budget.append(budget + UNIT_ROUNDOFF[stored_as] * abs(exact) + SMALLEST[stored_as])
    return Row(out, lse, out_budget, lse_budget)


def sees(position: int, key: int, rules: Rules) -> bool:
    """Whether a query at a position sees a key: not after it, and not `window` or more before."""
    if rules.causal and key > position:
        return False
    return rules.window is None or position - key < rules.window
