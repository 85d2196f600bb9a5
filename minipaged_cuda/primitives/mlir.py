"""The numba-cuda-mlir twin: each primitive as inline PTX; means what ``primitives.python`` says.

``inline_ptx`` wants its operands written out in the function that calls it, so a primitive is a
function whose text is made here. In the PTX ``$0`` is the first operand, results before arguments.
"""

# pyright: reportMissingImports=false
# ruff: noqa: D103

from __future__ import annotations

import linecache
import re
from typing import Any

import numpy as np
from numba_cuda_mlir import cuda, types
from numba_cuda_mlir.cuda import experimental, vector

f16, f32, i32, i64 = types.float16, types.float32, types.int32, types.int64
u8, u16, u32 = types.uint8, types.uint16, types.uint32
FULL_MASK = 0xFFFFFFFF
NUMPY = {"f": "np.float32", "r": "np.uint32", "h": "np.uint16"}

device = cuda.jit(device=True, forceinline=True)


def asm(name: str, ptx: str, results: str, arguments: str) -> Any:
    """A device function that is one piece of PTX; operands by their letters: "f", "r", "h", "l"."""
    ptx = re.sub(r"\$(\d+)", lambda m: _operand(int(m[1]), len(results)), ptx)
    names = [f"x{i}" for i in range(len(arguments))]
    operands = [f"'={letter}', {NUMPY[letter]}" for letter in results]
    operands += [f"'{letter}', {x}" for letter, x in zip(arguments, names)]
    call = f"experimental.inline_ptx({ptx!r}, {', '.join(operands)})"
    text = f"def {name}({', '.join(names)}):\n    {'return ' if results else ''}{call}\n"
    return device(_function(name, text))


def _operand(i: int, num_results: int) -> str:
    return f"{{${'w' if i < num_results else 'r'}{i}}}"


def _function(name: str, text: str) -> Any:
    file, scope = f"<primitive {name}>", {"experimental": experimental, "np": np}
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope)
    return scope[name]


# --- memory ------------------------------------------------------------------------------------


@device
def ld64(pointer: Any, offset: Any) -> Any:
    v = vector.load(pointer, offset, 2, 8)
    return v.x, v.y


@device
def ld128(pointer: Any, offset: Any) -> Any:
    v = vector.load(pointer, offset, 4, 16)
    return v.x, v.y, v.z, v.w


ld128_stream = ld128  # without the hints for the cache


@device
def lds128(array: Any, offset: Any) -> Any:
    # vector.load forgets where a shared array is that came as an argument, and reads address 0
    return array[offset], array[offset + 1], array[offset + 2], array[offset + 3]


@device
def sts128(array: Any, offset: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    array[offset], array[offset + 1], array[offset + 2], array[offset + 3] = a, b, c, d


st128 = asm(
    "st128",
    "{ .reg .b64 a; mad.lo.s64 a, $1, 4, $0; st.global.v4.u32 [a], {$2, $3, $4, $5}; }",
    "",
    "llrrrr",
)


@device
def cp_async16(array: Any, to: Any, pointer: Any, offset: Any) -> None:
    a, b, c, d = ld128(pointer, offset)  # there is no way to the address of a shared array
    sts128(array, to, a, b, c, d)


@device
def cp_async_commit() -> None:
    pass


cp_async_wait_all = cp_async_wait_but_one = cp_async_commit


@device
def load_float32(pointer: Any, offset: Any) -> Any:
    return pointer[offset]


@device
def load_float16(pointer: Any, offset: Any) -> Any:
    return _f16_to_f32(pointer[offset])


@device
def load_bfloat16(pointer: Any, offset: Any) -> Any:
    return bf16x2_low(u32(pointer[offset]))


@device
def load_float8_e4m3(pointer: Any, offset: Any) -> Any:
    return f16x2_low(e4m3x2_to_f16x2(u32(pointer[offset])))


@device
def store_float32(pointer: Any, offset: Any, value: Any) -> None:
    pointer[offset] = value


@device
def store_float16(pointer: Any, offset: Any, value: Any) -> None:
    pointer[offset] = _f32_to_f16(value)


@device
def store_bfloat16(pointer: Any, offset: Any, value: Any) -> None:
    pointer[offset] = _f32_to_bf16(value)


# --- numbers -----------------------------------------------------------------------------------

ex2 = asm("ex2", "ex2.approx.ftz.f32 $0, $1;", "f", "f")
lg2 = asm("lg2", "lg2.approx.f32 $0, $1;", "f", "f")
rcp = asm("rcp", "rcp.approx.ftz.f32 $0, $1;", "f", "f")
f32_bits = asm("f32_bits", "mov.b32 $0, $1;", "r", "f")
bits_f32 = asm("bits_f32", "mov.b32 $0, $1;", "f", "r")
prmt = asm("prmt", "prmt.b32 $0, $1, $2, $3;", "r", "rrr")
pack_f16x2 = asm("pack_f16x2", "cvt.rn.f16x2.f32 $0, $2, $1;", "r", "ff")
pack_bf16x2 = asm("pack_bf16x2", "cvt.rn.bf16x2.f32 $0, $2, $1;", "r", "ff")
bf16x2_low = asm("bf16x2_low", "shl.b32 $0, $1, 16;", "f", "r")
bf16x2_high = asm("bf16x2_high", "and.b32 $0, $1, 0xffff0000;", "f", "r")
_f16_to_f32 = asm("_f16_to_f32", "cvt.f32.f16 $0, $1;", "f", "h")
_f32_to_f16 = asm("_f32_to_f16", "cvt.rn.f16.f32 $0, $1;", "h", "f")
_f32_to_bf16 = asm("_f32_to_bf16", "cvt.rn.bf16.f32 $0, $1;", "h", "f")

HALVES = "{ .reg .b16 l, h; mov.b32 {l, h}, $1; "
f16x2_low = asm("f16x2_low", HALVES + "cvt.f32.f16 $0, l; }", "f", "r")
f16x2_high = asm("f16x2_high", HALVES + "cvt.f32.f16 $0, h; }", "f", "r")
e4m3x2_to_f16x2 = asm("e4m3x2_to_f16x2", HALVES + "cvt.rn.f16x2.e4m3x2 $0, l; }", "r", "r")
e4m3x2_high_to_f16x2 = asm(
    "e4m3x2_high_to_f16x2", HALVES + "cvt.rn.f16x2.e4m3x2 $0, h; }", "r", "r"
)
pack_e4m3x2 = asm(
    "pack_e4m3x2",
    "{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $2, $1; cvt.u32.u16 $0, t; }",
    "r",
    "ff",
)

# --- tensor cores ------------------------------------------------------------------------------

OPERANDS = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"


def _mma(name: str, kind: str) -> Any:
    ptx = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {OPERANDS}"
    multiply = asm(name, ptx, "ffff", "rrrrrrffff")

    @device
    def mma(c: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any) -> Any:
        return multiply(a0, a1, a2, a3, b0, b1, c[0], c[1], c[2], c[3])

    return mma


mma_bf16 = _mma("multiply_bf16", "bf16")
mma_f16 = _mma("multiply_f16", "f16")
