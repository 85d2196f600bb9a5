"""Small matrices that stay in the nearest cache: turned and multiplied; knows no attention.

All arrays are flat: row r of a matrix begins where its `_at` says, or at a multiple of its stride.
Whoever computes asks for the cache lines that are needed next, on the way.
"""

from __future__ import annotations

from minipaged.attention.cpu_plan import TILE, compiled
from minipaged.attention.cpu_primitives import LANES, multiply_add_of, transpose_16x16

WIDE = 32 if LANES == 16 else 16  # columns of four rows of sums that fit into the registers


def _strip_of(num_rows):
    """Compile what `multiply_add` does for that many rows from row i on, 16 columns at a time."""
    wide, narrow = multiply_add_of(num_rows, WIDE), multiply_add_of(num_rows, 16)

    @compiled
    def strip(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, width, first, last):
        n = 0
        while n + WIDE <= width:
            wide(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, n, first, last)
            n += WIDE
        while n + 16 <= width:
            narrow(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, n, first, last)
            n += 16

    return strip


_strip_1, _strip_2, _strip_3, _strip_4 = map(_strip_of, (1, 2, 3, 4))


@compiled
def multiply_add(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, rows, width, first, last):
    """c[:rows, :width] += a[:rows, first:last] @ b[first:last, :]."""
    i = 0
    while i + 4 <= rows:
        _strip_4(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, width, first, last)
        i += 4
    if rows - i == 3:
        _strip_3(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, width, first, last)
    elif rows - i == 2:
        _strip_2(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, width, first, last)
    elif rows - i == 1:
        _strip_1(c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, width, first, last)
    for i in range(rows):  # heads whose size is no multiple of 16 have columns left
        for n in range(width & ~15, width):
            total = c[i * c_stride + n]
            for k in range(first, last):
                total += a[a_at[i] + k] * b[b_at[k] + n]
            c[i * c_stride + n] = total


@compiled
def turn(keys, key_at, first, last, dim, turned, ahead, ahead_at):
    """turned[d, t] = key[t, d], for the keys of a tile from `first` to `last`, multiples of 16."""
    for t in range(first, last, 16):
        for d in range(0, dim & ~15, 16):
            to = d * TILE + t
            transpose_16x16(keys, key_at, t, d, turned, to, TILE, ahead, ahead_at)
        for d in range(dim & ~15, dim):
            for j in range(t, t + 16):
                turned[d * TILE + j] = keys[key_at[j] + d]
