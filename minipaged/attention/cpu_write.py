"""The compiled writer of a cache: rows of bytes into their slots; knows no numbers."""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from minipaged.attention.cpu_plan import OPTIONS
from minipaged.attention.cpu_primitives import pointer


@njit(cache=True, **OPTIONS)
def write_rows(source, token, head, target, block, slot, target_head, slots, shape):
    """Copy rows of bytes into their slots, skipping -1; addresses and strides count bytes.

    Returns the first slot that the cache does not have, with nothing written, or -1 if all is well.
    """
    num_tokens, num_heads, num_bytes, block_size, num_slots = shape
    slots = carray(pointer(slots), num_tokens, np.int64)
    for i in range(num_tokens):
        if slots[i] >= num_slots or slots[i] < -1:
            return slots[i]
    for i in range(num_tokens):
        if slots[i] >= 0:
            at = target + slots[i] // block_size * block + slots[i] % block_size * slot
            for h in range(num_heads):
                row = carray(pointer(source + i * token + h * head), num_bytes, np.uint8)
                copy = carray(pointer(at + h * target_head), num_bytes, np.uint8)
                for b in range(num_bytes):
                    copy[b] = row[b]
    return -1
