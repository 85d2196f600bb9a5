"""The compiled loops of a product on a CPU: rows by panels, tile by tile; knows addresses only.

    an item: some rows of X, one panel of W
        tile = x[8 rows] @ panel      in registers, see `microkernels`
        out  = what `finish` says     from the tile, which is in the nearest cache

Threads take items until there are none, so that a thread that is held up holds up nobody.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit, prange

from minipaged.attention.cpu_primitives import exp, pointer, take_number, version_of
from minipaged.linear import microkernels
from minipaged.linear.microkernels import GROUP, ROWS, WIDTH, float32_tile, int8_tile

STORE, ADD, GATE = range(3)  # what becomes of a tile: see `_finish`
ROW_BLOCK = 32 * ROWS  # rows of X that stay in the second cache while panels pass by
SERIAL = 1 << 17  # multiply-adds below which waking threads costs more than it gains
F = np.float32

_options = {"nogil": True, "error_model": "numpy"}
_compiled = njit(fastmath={"contract"}, **_options)

_float32_8, _float32_4, _float32_2, _float32_1 = (float32_tile(rows) for rows in (8, 4, 2, 1))
_int8_8, _int8_4, _int8_2, _int8_1 = (int8_tile(rows) for rows in (8, 4, 2, 1))


# --- one tile ----------------------------------------------------------------------------------


@_compiled
def _tile_float32(tile, rows, x, x_row, panel, in_size):
    if rows == 8:
        _float32_8(tile, x, x_row, panel, in_size)
    elif rows == 4:
        _float32_4(tile, x, x_row, panel, in_size)
    elif rows == 2:
        _float32_2(tile, x, x_row, panel, in_size)
    else:
        _float32_1(tile, x, x_row, panel, in_size)


@_compiled
def _tile_int8(tile, rows, x, x_scales, in_size, panel, panel_scales, offsets):
    groups = in_size // GROUP
    if rows == 8:
        _int8_8(tile, x, x_scales, in_size, groups, panel, panel_scales, offsets, groups)
    elif rows == 4:
        _int8_4(tile, x, x_scales, in_size, groups, panel, panel_scales, offsets, groups)
    elif rows == 2:
        _int8_2(tile, x, x_scales, in_size, groups, panel, panel_scales, offsets, groups)
    else:
        _int8_1(tile, x, x_scales, in_size, groups, panel, panel_scales, offsets, groups)


@_compiled
def _num_together(rows_left):
    """Rows of the next tile."""
    if rows_left >= ROWS:
        return ROWS
    if rows_left >= 4:
        return 4
    return 2 if rows_left >= 2 else 1


@_compiled
def _silu(x):
    """The value x / (1 + exp(-x)), by an exponential that never grows."""
    shrunk = exp(-abs(x))
    return x * ((F(1) if x >= F(0) else shrunk) / (F(1) + shrunk))


@_compiled
def _finish(tile, rows, bias, out, out_row, out_size, panel, finish):
    """Bring a tile to its rows of `out`: stored, added, or as a gate and what it lets through."""
    width = WIDTH // 2 if finish == GATE else WIDTH
    first = panel * width
    count = min(width, out_size - first)
    for r in range(rows):
        sums = tile[r]
        if bias:
            part = carray(pointer(bias + 4 * panel * WIDTH), WIDTH, F)
            for j in range(WIDTH):
                sums[j] += part[j]
        target = carray(pointer(out + 4 * (r * out_row + first)), count, F)
        if finish == GATE:
            for j in range(count):
                target[j] = _silu(sums[j]) * sums[width + j]
        elif finish == ADD:
            for j in range(count):
                target[j] += sums[j]
        else:
            for j in range(count):
                target[j] = sums[j]


# --- numbers of 8 bits -------------------------------------------------------------------------


@_compiled
def _quantize(x, x_row, in_size, bytes_, scales, padded_size, first, last):
    """Rows of X as uint8, 128 for 0, and a scale for each group. What is not finite stays so."""
    groups = padded_size // GROUP
    for i in range(first, last):
        row = carray(pointer(x + 4 * i * x_row), in_size, F)
        for g in range(groups):
            begin, end = g * GROUP, min((g + 1) * GROUP, in_size)
            largest, nothing = F(0), F(0)
            for k in range(begin, end):
                largest = max(largest, abs(row[k]))
                nothing += row[k] - row[k]  # NaN, if any of them is no number or infinite
            scales[i, g] = largest / F(127) + nothing
            inverse = F(127) / largest if largest > F(0) else F(0)
            for k in range(begin, end):
                bytes_[i, k] = np.uint8(np.int32(row[k] * inverse + F(128.5)))
            for k in range(end, (g + 1) * GROUP):
                bytes_[i, k] = np.uint8(128)


@njit(parallel=True, **_options)
def _quantize_together(x, x_row, in_size, bytes_, scales, padded_size, num_rows):
    for i in prange(num_rows):
        _quantize(x, x_row, in_size, bytes_, scales, padded_size, i, i + 1)


# --- all items ---------------------------------------------------------------------------------


@_compiled
def _work(
    x, x_scales, x_row, in_size, panels, panel_scales, offsets,
    bias, out, out_row, num_rows, out_size, finish, next_item,
):  # fmt: skip
    """Take items while there are any. X is uint8 if there are scales, else float32."""
    tile = np.empty((ROWS, WIDTH), F)
    width = WIDTH // 2 if finish == GATE else WIDTH
    num_panels, num_blocks = -(-out_size // width), -(-num_rows // ROW_BLOCK)
    item = take_number(next_item)
    while item < num_panels * num_blocks:
        row, panel = item // num_panels * ROW_BLOCK, item % num_panels
        last, weights = min(row + ROW_BLOCK, num_rows), panel * WIDTH * in_size
        steps = 4 * panel * WIDTH * (in_size // GROUP)
        while row < last:
            rows = _num_together(last - row)
            if x_scales:
                at, scales = x + row * x_row, x_scales + 4 * row * (in_size // GROUP)
                _tile_int8(
                    tile.ctypes.data, rows, at, scales, in_size,
                    panels + weights, panel_scales + steps, offsets + steps,
                )  # fmt: skip
            else:
                at = x + 4 * row * x_row
                _tile_float32(tile.ctypes.data, rows, at, x_row, panels + 4 * weights, in_size)
            at = out + 4 * row * out_row
            _finish(tile, rows, bias, at, out_row, out_size, panel, finish)
            row += rows
        item = take_number(next_item)


@njit(parallel=True, **_options)
def _work_together(
    x, x_scales, x_row, in_size, panels, panel_scales, offsets,
    bias, out, out_row, num_rows, out_size, finish, next_item, num_threads,
):  # fmt: skip
    for _ in prange(num_threads):
        _work(
            x, x_scales, x_row, in_size, panels, panel_scales, offsets,
            bias, out, out_row, num_rows, out_size, finish, next_item,
        )  # fmt: skip


@_compiled
def _keep_until_here(*arrays):
    """Who holds an address does not hold the array: say that it is still needed."""


def _compile():
    """The entry, for this version of the files that it is made of."""
    version = version_of(__file__, microkernels.__file__)

    def multiply(
        x, x_row, in_size, panels, panel_scales, offsets, padded_size,
        bias, out, out_row, num_rows, out_size, finish, num_threads,
    ):  # fmt: skip
        """Out of X, its rows `x_row` apart, and packed W; addresses, sizes in elements.

        With scales the panels are int8 and X is quantised on the way, its `in_size` filled up to
        `padded_size`, a multiple of `GROUP`. `bias` may be 0 for none.
        """
        next_item, rows = np.zeros(1, np.int64), num_rows if panel_scales else 0
        small, scales = (
            np.empty((rows, padded_size), np.uint8),
            np.empty((rows, padded_size // GROUP), F),
        )
        is_serial = num_threads == 1 or num_rows * in_size * out_size < SERIAL
        x_scales = 0
        if panel_scales and version:
            if is_serial or num_rows < 8:
                _quantize(x, x_row, in_size, small, scales, padded_size, 0, num_rows)
            else:
                _quantize_together(x, x_row, in_size, small, scales, padded_size, num_rows)
            x, x_row = np.int64(small.ctypes.data), padded_size
            x_scales = np.int64(scales.ctypes.data)
        if is_serial:
            _work(
                x, x_scales, x_row, padded_size, panels, panel_scales, offsets,
                bias, out, out_row, num_rows, out_size, finish, next_item.ctypes.data,
            )  # fmt: skip
        else:
            _work_together(
                x, x_scales, x_row, padded_size, panels, panel_scales, offsets,
                bias, out, out_row, num_rows, out_size, finish, next_item.ctypes.data, num_threads,
            )  # fmt: skip
        _keep_until_here(small, scales, next_item)

    return njit(cache=True, **_options)(multiply)


multiply = _compile()


# --- the norm before a product -----------------------------------------------------------------


@njit(cache=True, fastmath={"contract"}, **_options)
def normalise(x, x_row, num_rows, size, weight, epsilon, out):
    """Rows of X over the root of their mean square, times `weight` unless that is 0; addresses.

    Squares are summed in sixteen lanes, then across them: always in the same order.
    """
    lanes = np.empty(16, F)
    for i in range(num_rows):
        row, target = (
            carray(pointer(x + 4 * i * x_row), size, F),
            carray(pointer(out + 4 * i * size), size, F),
        )
        lanes[:] = F(0)
        for k in range(0, size & ~15, 16):
            for j in range(16):
                lanes[j] += row[k + j] * row[k + j]
        for k in range(size & ~15, size):
            lanes[k & 15] += row[k] * row[k]
        total = F(0)
        for j in range(16):
            total += lanes[j]
        factor = F(1) / np.sqrt(total / F(size) + F(epsilon))
        if weight:
            scale = carray(pointer(weight), size, F)
            for k in range(size):
                target[k] = row[k] * factor * scale[k]
        else:
            for k in range(size):
                target[k] = row[k] * factor
