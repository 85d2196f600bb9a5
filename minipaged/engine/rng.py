"""Random numbers as a pure function of who asks and for which token; nothing here has a state.

Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF


def philox4x32(
    counter: NDArray[np.uint64],  # [4, num_draws] uint64, each word below 2**32
    key: NDArray[np.uint64],  # [2, num_draws] uint64, each word below 2**32
) -> NDArray[np.uint64]:  # [4, num_draws] uint64, each word below 2**32
    """Scramble each counter under its key: a bijection of the 128 bits of the counter."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return np.stack([c0, c1, c2, c3])


def uniform(
    draws: Sequence[tuple[int, int, int]],  # seed, sample index, output index
    stream: int = 0,
) -> NDArray[np.float64]:  # [num_draws] float64
    """Return, for each draw, its number in [0, 1), a multiple of 2**-53.

    Seeds count modulo 2**64; indices lie in [0, 2**32). `stream` tells apart several numbers that
    one token may need; stream 0 chooses the token.
    """
    key = [[seed & _LOW for seed, _, _ in draws], [seed >> 32 & _LOW for seed, _, _ in draws]]
    counter = [[output, sample, stream, 0] for _, sample, output in draws]
    words = philox4x32(np.array(counter, np.uint64).reshape(-1, 4).T, np.array(key, np.uint64))
    return ((words[0] >> 5) * 2.0**26 + (words[1] >> 6)) * 2.0**-53
