"""What the CPU kernels need below Numba: addresses, vectors and numbers; knows no attention.

Each name is an operation that plain Python could do, slowly: read at an address, count among
threads, multiply small matrices, exp and tanh, and widen a half-precision number.
"""

from __future__ import annotations

import math
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic, overload

F = np.float32
LOWEST = F(-87.0)  # exp(LOWEST) is about the smallest normal float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1 / math.log(2)), F(0.693359375), F(math.log(2) - 0.693359375)


def processor_features() -> set[str]:
    """What the processor can do that Numba compiles for: this one, unless it was told otherwise."""
    if config.CPU_FEATURES is not None:
        return {name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+")}
    return {name for name, has in llvm.get_host_cpu_features().items() if has}


FEATURES = processor_features()
LANES = 16 if "avx512f" in FEATURES else 8 if "avx2" in FEATURES else 4  # float32 in a vector
_byte, _int32, _int64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_inlined = {"jit_options": {"fastmath": {"contract"}, "error_model": "numpy"}}


def version_of(*files: str) -> int:
    """A number that is another one after a change to any of these files.

    Numba looks for changes only in the file of a function that it caches. A function that mentions
    this number is compiled anew after a change to what it calls, too.
    """
    return max(Path(file).stat().st_mtime_ns for file in (__file__, *files))


# -- addresses -------------------------------------------------------------------------------------


@intrinsic
def pointer(_, address):
    """An address as something `carray` makes an array of."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], _byte.as_pointer())

    return types.voidptr(types.int64), generate


@intrinsic
def call(_, function, argument, option):
    """Call a compiled function of two integers by its address."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_int64, _int64]).as_pointer()
        builder.call(builder.inttoptr(args[0], kind), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def take_number(_, address):
    """Read the integer at an address and add one to it, as one step among threads."""

    def generate(context, builder, signature, args):
        counter = builder.inttoptr(args[0], _int64.as_pointer())
        return builder.atomic_rmw("add", counter, _int64(1), "monotonic")

    return types.int64(types.int64), generate


def _prefetch(builder, place):
    """Ask for the cache line of a place without waiting for it."""
    line = builder.bitcast(place, _byte.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [line.type, _int32, _int32, _int32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    reading, into_second_level, data_not_code = _int32(0), _int32(2), _int32(1)
    builder.call(ask, [line, reading, into_second_level, data_not_code])


# -- vectors ---------------------------------------------------------------------------------------


def multiply_add_of(rows: int, width: int):
    """Compile `c[i : i + rows, n : n + width] += a[i : i + rows, first:last] @ b[first:last, n:]`.

    Nearly all time is spent in this loop, so its sums are told to stay in registers. All arrays are
    flat: row r of c begins at `r * c_stride`, row r of a at `a_at[r]`, row k of b at `b_at[k]`. An
    element of c is summed in the order of k.

    What comes from memory next is asked for meanwhile, one cache line with every k, since all at
    once they would be waited for: the one at `ahead[ahead_at[k] + n]`.
    """

    @intrinsic
    def block(_, c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, n, first, last):
        integer = types.int64
        where = (integer, integer, integer, integer)
        signature = types.void(c, integer, a, a_at, b, b_at, ahead, ahead_at, *where)

        def generate(context, builder, signature, args):
            c, c_stride, a, a_at, b, b_at, ahead, ahead_at, i, n, first, last = (
                context.make_array(kind)(context, builder, arg).data
                if isinstance(kind, types.Array)
                else arg
                for kind, arg in zip(signature.args, args)
            )
            vector = ir.VectorType(c.type.pointee, width)
            align = context.get_abi_alignment(c.type.pointee)
            undefined = ir.Constant(vector, ir.Undefined)
            everywhere = ir.Constant(ir.VectorType(_int32, width), [0] * width)

            def vector_at(array, offset):
                return builder.bitcast(builder.gep(array, [offset]), vector.as_pointer())

            def add_product(total, factor, row):
                factor = builder.insert_element(undefined, factor, _int32(0))
                factor = builder.shuffle_vector(factor, undefined, everywhere)
                product = builder.fmul(factor, row, flags=("contract",))
                product = builder.fadd(builder.load(total), product, flags=("contract",))
                builder.store(product, total)

            indices = [builder.add(i, _int64(r)) for r in range(rows)]
            a_rows = [builder.gep(a, [builder.load(builder.gep(a_at, [r]))]) for r in indices]
            c_rows = [vector_at(c, builder.add(builder.mul(r, c_stride), n)) for r in indices]
            loaded = [builder.load(row, align=align) for row in c_rows]
            totals = [cgutils.alloca_once_value(builder, value) for value in loaded]
            with cgutils.for_range_slice(builder, first, last, _int64(1)) as (k, _):
                at = builder.add(builder.load(builder.gep(ahead_at, [k])), n)
                _prefetch(builder, builder.gep(ahead, [at]))
                row = vector_at(b, builder.add(builder.load(builder.gep(b_at, [k])), n))
                row = builder.load(row, align=align)
                for a_row, total in zip(a_rows, totals):
                    add_product(total, builder.load(builder.gep(a_row, [k])), row)
            for row, total in zip(c_rows, totals):
                builder.store(builder.load(total), row, align=align)
            return context.get_dummy_value()

        return signature, generate

    return block


@intrinsic
def transpose_16x16(_, source, source_at, t, d, target, target_at, stride, ahead, ahead_at):
    """Compile `target[target_at + j * stride + i] = source[source_at[t + i] + d + j]`.

    For all i and j below 16; both arrays are flat and of one type. Halves are exchanged between
    rows 8, 4, 2 and 1 apart, which leaves every number in its mirror place. Meanwhile the cache
    lines at `ahead[ahead_at[t + i] + d]` are asked for.
    """
    integer = types.int64
    where = (integer, integer)
    signature = types.void(source, source_at, *where, target, *where, ahead, ahead_at)

    def generate(context, builder, signature, args):
        source, source_at, t, d, target, target_at, stride, ahead, ahead_at = (
            context.make_array(kind)(context, builder, arg).data
            if isinstance(kind, types.Array)
            else arg
            for kind, arg in zip(signature.args, args)
        )
        vector = ir.VectorType(source.type.pointee, 16)
        align = context.get_abi_alignment(source.type.pointee)

        def vector_at(array, offset):
            return builder.bitcast(builder.gep(array, [offset]), vector.as_pointer())

        def offset_in(starts, i):
            return builder.add(builder.load(builder.gep(starts, [builder.add(t, _int64(i))])), d)

        rows = []
        for i in range(16):
            rows.append(builder.load(vector_at(source, offset_in(source_at, i)), align=align))
            _prefetch(builder, builder.gep(ahead, [offset_in(ahead_at, i)]))
        for step in (8, 4, 2, 1):
            low = [i if i & step == 0 else i - step + 16 for i in range(16)]
            high = [i + step if i & step == 0 else i + 16 for i in range(16)]
            masks = [ir.Constant(ir.VectorType(_int32, 16), mask) for mask in (low, high)]
            for i in range(16):
                if i & step == 0:
                    pair = rows[i], rows[i + step]
                    rows[i], rows[i + step] = (builder.shuffle_vector(*pair, m) for m in masks)
        for j, row in enumerate(rows):
            offset = builder.add(target_at, builder.mul(stride, _int64(j)))
            builder.store(row, vector_at(target, offset), align=align)
        return context.get_dummy_value()

    return signature, generate


def _fold_of(combine):
    """Compile a fold: every 16th number of `x` first, from `begin` on, then these 16 by halves."""

    @intrinsic
    def fold(_, x, begin):
        signature = x.dtype(x, x.dtype)

        def generate(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            vector = ir.VectorType(array.data.type.pointee, 16)
            align = context.get_abi_alignment(vector.element)
            undefined = ir.Constant(vector, ir.Undefined)

            def reordered(value, order):
                order = ir.Constant(ir.VectorType(_int32, 16), order)
                return builder.shuffle_vector(value, undefined, order)

            first = builder.insert_element(undefined, args[1], _int32(0))
            total = cgutils.alloca_once_value(builder, reordered(first, [0] * 16))
            with cgutils.for_range_slice(builder, _int64(0), array.nitems, _int64(16)) as (t, _):
                at = builder.bitcast(builder.gep(array.data, [t]), vector.as_pointer())
                row = builder.load(at, align=align)
                builder.store(combine(builder, builder.load(total), row), total)
            value = builder.load(total)
            for half in (8, 4, 2, 1):
                other = reordered(value, [(i + half) % 16 for i in range(16)])
                value = combine(builder, value, other)
            return builder.extract_element(value, _int32(0))

        return signature, generate

    return fold


def _larger(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


# Called with a multiple of 16 numbers, and with what each of the 16 lanes begins with.
largest, sum_of = _fold_of(_larger), _fold_of(lambda builder, a, b: builder.fadd(a, b))


# -- numbers ---------------------------------------------------------------------------------------


@intrinsic
def float_of_bits(_, bits):
    """The float32 that has these 32 bits."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


def exp(x):
    """The exponential of x <= 0: in float32 to a relative error of 3e-7, and 0 below `LOWEST`."""


@overload(exp, **_inlined)
def _compile_exp(x):
    def polynomial(x):
        y = LOWEST if x < LOWEST else x
        n = np.int32(y * LOG2_E - F(0.5))  # truncation rounds to the nearest, as y <= 0
        r = (y - F(n) * LN2_HIGH) - F(n) * LN2_LOW  # at most ln(2) / 2 away from 0
        p = F(1 / 6) + r * (F(1 / 24) + r * (F(1 / 120) + r * F(1 / 720)))
        p = F(1) + r * (F(1) + r * (F(1 / 2) + r * p))
        p *= float_of_bits(np.int32((n + 127) << 23))  # 2 to the n
        return F(0) if x < LOWEST else p

    return polynomial if x == types.float32 else lambda x: math.exp(x)


def tanh(x):
    """The hyperbolic tangent: in float32 to an absolute error of 2e-7."""


@overload(tanh, **_inlined)
def _compile_tanh(x):
    def by_exp(x):
        t = exp(F(-2) * abs(x))
        t = (F(1) - t) / (F(1) + t)
        return -t if x < F(0) else t

    return by_exp if x == types.float32 else lambda x: math.tanh(x)


def widen(bits):
    """A stored number as a float: int16 holds bfloat16's bits, uint16 those of float16."""


@overload(widen, **_inlined)
def _compile_widen(bits):
    def bfloat16(bits):
        return float_of_bits(np.int32(np.int32(bits) << 16))

    def float16(bits):
        magnitude = np.int32((np.int32(bits) & 0x7FFF) << 13)
        infinite = magnitude >= np.int32(0x7C00 << 13)
        number = float_of_bits(np.int32(magnitude | 0x7F800000) if infinite else magnitude)
        number = number if infinite else number * F(2.0**112)  # exponents are biased differently
        return -number if bits & 0x8000 else number

    return {types.int16: bfloat16, types.uint16: float16}.get(bits, lambda bits: bits)
