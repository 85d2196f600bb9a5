"""Attention over two sets of keys, from the attention over each.

`merge(out_a, lse_a, out_b, lse_b)` returns `(out, lse)` of both sets together, without seeing a
key, a score or a value. `out` is an array `[head_dim]`: the softmax-weighted mean of the values of
one set. `lse` is a float: the natural logarithm of the sum of `exp(score)` over that set.

What must hold:

- the result is attention over the union, whatever the sizes of the sets and in whatever order;
- scores may be as large as 1000 or as small as -1000, and no number becomes infinite or NaN;
- a set without keys has lse -inf, and its `out` is memory that nobody wrote: it may hold NaN;
- two sets without keys make a set without keys: zeros and -inf;
- the arrays that are passed in are not changed.

Key 1 has score 0 and value 8; key 2 has score ln 3 and value 4. So key 2 weighs three times as much
as key 1: (1 * 8 + 3 * 4) / 4 = 5, and the sum of exp(score) is 1 + 3 = 4:

    >>> out, lse = merge(np.array([8.0]), 0.0, np.array([4.0]), math.log(3))
    >>> out.round(6).tolist(), round(math.exp(lse), 6)
    ([5.0], 4.0)
    >>> out, lse = merge(np.array([8.0]), 0.0, np.array([math.nan]), -math.inf)
    >>> out.tolist(), lse
    ([8.0], 0.0)
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def merge(out_a: Array, lse_a: float, out_b: Array, lse_b: float) -> tuple[Array, float]:
    """``(out, lse)`` over two disjoint sets of keys, from ``(out, lse)`` over each."""
    largest = max(lse_a, lse_b)
    if largest == -math.inf:
        return np.zeros_like(out_a), -math.inf
    out, total = np.zeros_like(out_a), 0.0
    for part, lse in ((out_a, lse_a), (out_b, lse_b)):
        if lse > -math.inf:
            weight = math.exp(lse - largest)
            out, total = out + weight * part, total + weight
    return out / total, largest + math.log(total)
