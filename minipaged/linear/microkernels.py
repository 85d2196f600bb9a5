"""The innermost loops of a product, in LLVM's words; knows addresses and vectors, not matrices.

A tile is ``num_rows`` rows of X times one panel: ``WIDTH`` rows of W, kept side by side in memory
so that one column of the panel is one or two vectors. All sums of a tile stay in registers:

                 panel      k -> column of WIDTH weights
    x[0, k]  *  |·········|        tile[0, :] += x[0, k] * panel[k, :]
    x[1, k]  *  |·········|        tile[1, :] += x[1, k] * panel[k, :]

Every element of a tile is summed in the order of k, whatever the number of rows, so that a row's
product never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from minipaged.attention.cpu_primitives import FEATURES, LANES

NUM_VECTORS = 2
WIDTH = NUM_VECTORS * LANES  # weights of a panel that lie side by side
ROWS = 8 if LANES != 8 else 4  # of a tile: 16 vectors of sums where there are 32 registers
GROUP = 64  # numbers that share a scale, along the contraction
HAS_DOT = {"avx512f", "avx512vnni"} <= FEATURES  # multiplies four bytes and sums them

_int8, _int32, _int64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_float, _floats = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES)
_integers = ir.VectorType(_int32, LANES)


def float32_tile(num_rows: int) -> Any:
    """Compile ``tile = x[0 : num_rows] @ panel``, all of them float32.

    Arguments are addresses, and sizes in elements: ``(tile, x, x_row, panel, in_size)``; the panel
    is ``[in_size, WIDTH]``, the tile ``[num_rows, WIDTH]``.
    """

    def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
        tile, x, x_row, panel, in_size = arguments
        rows = [_at(builder, x, builder.mul(x_row, _int64(r)), _float) for r in range(num_rows)]
        zero = ir.Constant(_floats, [0.0] * LANES)
        sums = [[_variable(builder, zero) for _ in range(NUM_VECTORS)] for _ in rows]
        with _loop(builder, in_size) as k:
            column = _at(builder, panel, builder.mul(k, _int64(WIDTH)), _float)
            weights = [_load(builder, column, v, _floats) for v in range(NUM_VECTORS)]
            for row, totals in zip(rows, sums):
                factor = _everywhere(builder, builder.load(builder.gep(row, [k])), _floats)
                for weight, total in zip(weights, totals):
                    _add_product(builder, total, factor, weight)
        for r, totals in enumerate(sums):
            row = _at(builder, tile, _int64(r * WIDTH), _float)
            for v, total in enumerate(totals):
                _store(builder, row, v, builder.load(total))
        return context.get_dummy_value()

    @intrinsic
    def multiply(_, tile, x, x_row, panel, in_size):
        return types.void(*[types.int64] * 5), generate

    return multiply


def int8_tile(num_rows: int) -> Any:
    """Compile the same for numbers of 8 bits that share a scale in groups of ``GROUP``.

    Arguments: ``(tile, x, scales, x_row, scales_row, panel, panel_scales, offsets, num_groups)``.
    X is uint8, 128 more than the number that is meant; ``offsets`` begin each sum at what that adds
    to it, ``-128 * sum(panel)``. The panel is ``[in_size / 4, WIDTH, 4]`` int8, its scales and
    offsets are ``[num_groups, WIDTH]``.
    """

    def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
        tile, x, scales, x_row, scales_row, panel, panel_scales, offsets, num_groups = arguments
        numbers = range(num_rows)
        rows = [_at(builder, x, builder.mul(x_row, _int64(r)), _int8) for r in numbers]
        row_scales = [
            _at(builder, scales, builder.mul(scales_row, _int64(r)), _float) for r in numbers
        ]
        tile_rows = [_at(builder, tile, _int64(r * WIDTH), _float) for r in numbers]
        for row in tile_rows:
            for v in range(NUM_VECTORS):
                _store(builder, row, v, ir.Constant(_floats, [0.0] * LANES))
        with _loop(builder, num_groups) as group:
            here = builder.mul(group, _int64(WIDTH))
            begin = _at(builder, offsets, here, _int32)
            starts = [_load(builder, begin, v, _integers) for v in range(NUM_VECTORS)]
            sums = [[_variable(builder, start) for start in starts] for _ in numbers]
            with _loop(builder, _int64(GROUP // 4)) as four:
                k = builder.add(builder.mul(group, _int64(GROUP // 4)), four)
                column = _at(builder, panel, builder.mul(k, _int64(WIDTH)), _int32)
                weights = [_load(builder, column, v, _integers) for v in range(NUM_VECTORS)]
                for row, totals in zip(rows, sums):
                    at = builder.gep(row, [builder.mul(k, _int64(4))])
                    at = builder.bitcast(at, _int32.as_pointer())
                    factor = _everywhere(builder, builder.load(at, align=1), _integers)
                    for weight, total in zip(weights, totals):
                        builder.store(_dot(builder, builder.load(total), factor, weight), total)
            at = _at(builder, panel_scales, here, _float)
            steps = [_load(builder, at, v, _floats) for v in range(NUM_VECTORS)]
            for row, row_scale, totals in zip(tile_rows, row_scales, sums):
                scale = _everywhere(builder, builder.load(builder.gep(row_scale, [group])), _floats)
                for v, (step, total) in enumerate(zip(steps, totals)):
                    value = builder.sitofp(builder.load(total), _floats)
                    value = builder.fmul(builder.fmul(value, scale), step)
                    _store(builder, row, v, builder.fadd(_load(builder, row, v, _floats), value))
        return context.get_dummy_value()

    @intrinsic
    def multiply(_, tile, x, scales, x_row, scales_row, panel, panel_scales, offsets, num_groups):
        return types.void(*[types.int64] * 9), generate

    return multiply


# --- LLVM --------------------------------------------------------------------------------------


@contextmanager
def _loop(builder: ir.IRBuilder, size: Any) -> Iterator[Any]:
    with cgutils.for_range_slice(builder, _int64(0), size, _int64(1)) as (k, _):
        yield k


def _at(builder: ir.IRBuilder, address: Any, offset: Any, kind: ir.Type) -> Any:
    """A pointer to an element, by its number."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [offset])


def _vector_at(builder: ir.IRBuilder, pointer: Any, number: int, kind: ir.Type) -> Any:
    return builder.bitcast(builder.gep(pointer, [_int64(number * LANES)]), kind.as_pointer())


def _load(builder: ir.IRBuilder, pointer: Any, number: int, kind: ir.Type) -> Any:
    return builder.load(_vector_at(builder, pointer, number, kind), align=4)


def _store(builder: ir.IRBuilder, pointer: Any, number: int, value: Any) -> None:
    builder.store(value, _vector_at(builder, pointer, number, value.type), align=4)


def _variable(builder: ir.IRBuilder, value: Any) -> Any:
    """A variable that the optimizer will keep in a register."""
    with builder.goto_entry_block():
        place = builder.alloca(value.type)
    builder.store(value, place)
    return place


def _everywhere(builder: ir.IRBuilder, value: Any, kind: ir.Type) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    value = builder.insert_element(undefined, value, _int32(0))
    places = ir.Constant(ir.VectorType(_int32, LANES), [0] * LANES)
    return builder.shuffle_vector(value, undefined, places)


def _add_product(builder: ir.IRBuilder, total: Any, a: Any, b: Any) -> None:
    product = builder.fmul(a, b, flags=("contract",))
    total_now = builder.load(total)
    builder.store(builder.fadd(total_now, product, flags=("contract",)), total)


def _dot(builder: ir.IRBuilder, total: Any, unsigned: Any, signed: Any) -> Any:
    """Add to every lane the products of its four unsigned and four signed bytes."""
    if HAS_DOT:
        kind = ir.FunctionType(_integers, [_integers] * 3)
        name = "llvm.x86.avx512.vpdpbusd.512"
        dot = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(dot, [total, unsigned, signed])
    top = ir.Constant(_integers, [24] * LANES)
    for byte in range(4):
        up = ir.Constant(_integers, [24 - 8 * byte] * LANES)
        a = builder.lshr(builder.shl(unsigned, up), top)
        b = builder.ashr(builder.shl(signed, up), top)
        total = builder.add(total, builder.mul(a, b))
    return total
