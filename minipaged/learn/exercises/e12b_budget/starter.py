"""Say how far a right kernel in half precision may be from the truth.

For one query the kernel has a weight for every key (they sum to 1), and values. It does this:

1. it rounds every weight to half precision;
2. it multiplies each by its key's values and adds up, so precisely that this counts as exact;
3. it rounds every element of the sum to half precision: the output.

Rounding moves a number x by at most `unit * abs(x)`, in either direction. `budget` returns, for
every element of the output, how far it may be from the exact `weights @ values`. Nothing else is
known of the kernel, so it may be unlucky in every rounding. A budget that is too small blames right
kernels; one that is too large lets a kernel pass that has lost a key.

`weights` is [num_keys], `values` [num_keys, head_dim], and the budget [head_dim]. Four keys of the
same weight; in the second element the values cancel, and the budget does not:

    >>> weights = np.full(4, 0.25)
    >>> values = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
    >>> (weights @ values).tolist()
    [1.0, 0.0]
    >>> budget(weights, values, unit=1 / 256).round(4).tolist()
    [0.0078, 0.0039]
    >>> budget(weights, 1000 * values, unit=1 / 256).round(1).tolist()
    [7.8, 3.9]
"""

import numpy as np


def budget(weights: np.ndarray, values: np.ndarray, unit: float) -> np.ndarray:
    """How far each element of the output may be from ``weights @ values``."""
    raise NotImplementedError("write budget here")
