"""Numbers in the simulator are what Numba makes of them: its PTX leaves the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from minipaged_cuda.emulator import Emulator, numba_arguments, parse
from minipaged_cuda.simulator import Simulator
from support.cuda_compiled import need_numba_cuda

need_numba_cuda()
numba = pytest.importorskip("numba")
cuda: Any = pytest.importorskip("numba.cuda")
types, from_dtype = numba.types, pytest.importorskip("numba.np.numpy_support").from_dtype

INPUTS = {
    "b": np.array([1, 0], bool),
    "i1": np.array([-128, -3, 127], np.int8),
    "i2": np.array([-32768, -7, 300], np.int16),
    "i4": np.array([-(2**31), -5, 2**31 - 1], np.int32),
    "i8": np.array([-(2**63), -9, 2**63 - 1], np.int64),
    "u1": np.array([0, 3, 255], np.uint8),
    "u2": np.array([0, 7, 65535], np.uint16),
    "u4": np.array([0, 5, 2**32 - 1], np.uint32),
    "u8": np.array([0, 9, 2**64 - 1], np.uint64),
    "f4": np.array([0.1, -2.5, 3e9], np.float32),
    "f8": np.array([0.1, -2.5, 1e20], np.float64),
}
WHOLE = {
    "sums": """
        i4[2] + i4[2]; i4[0] - i4[2]; i4[2] * i4[2]; i1[1] + u1[2]; u4[2] + u4[2]; u4[0] - 1
        u2[2] * u2[2]; i4[1] + u4[2]; u8[0] - 1; u8[2] + i8[1]; u8[2] * u8[2]; i8[2] + 1
        i8[2] * 2; 2147483647 + i4[2]; 9223372036854775807 + i8[2]; 18446744073709551615 - u8[1]""",
    "quotients": """
        i4[1] // 2; i4[1] % -3; i4[1] // u4[1]; u8[2] // i8[1]; u4[1] // u1[0]; i8[1] % b[1]""",
    "bits": """
        u1[2] << 60; u4[2] << u1[1]; i4[0] >> 3; u8[2] >> 63; i8[1] >> u2[1]; 1 << u4[1]
        i4[1] << u1[2]; u4[2] >> u1[2]; i4[1] & u4[2]; u4[2] | -1; u8[2] ^ i8[1]; b[1] | i4[1]
        ~i4[1]; ~u1[1]; ~u8[1]""",
    "signs": "-i4[0]; -u1[1]; -i1[0]; -u8[1]; +u1[1] - 2; abs(i4[0]); abs(u8[2]); -b[0]; ~b[0]",
    "truths": """
        u4[1] > -1; i8[2] < u8[2]; i8[2] == u8[0] + 9223372036854775807; i4[1] < u4[1]
        i1[1] < u1[1]; u4[2] == i4[1]; f4[0] < 0.1; f4[0] == 0.1; b[0] + b[0]; b[0] - b[1]
        b[0] & b[1]; not f4[0] < 1; f4[0] < 1 and u4[2] > -1""",
    "powers": "pow(i4[1], 3); pow(u1[1], 39)",
    "casts": """
        int32(i8[2]); int16(i4[2]); int32(-f8[2]); uint32(f4[1]); uint32(f8[2]); uint32(-1)
        uint32(i4[1]) + 1; uint64(f8[2]); int16(f4[2]); int64(u8[2]); int64(f8[0] * math.nan)
        int(f4[1]); int(b[0]) + 1; int(u4[2]) + 1; round(f8[1]); int8(100) + int8(100)
        uint8(200) * uint8(2); np.int32(i8[2]) + 1""",
    "extremes": "min(i4[1], 7); max(u1[1], i1[1]); min(u4[2], u4[1]) - 6",
    "cuda": """
        cuda.popc(i4[1]); cuda.popc(255); cuda.popc(u4[2]) - 40; cuda.clz(i4[2]); cuda.clz(u1[1])
        cuda.clz(1); cuda.ffs(i4[0]); cuda.ffs(8) - 5; cuda.brev(u4[1]); cuda.brev(u8[1])
        cuda.brev(i4[1]); cuda.threadIdx.x - 1; cuda.blockDim.x * 2147483647 * 4; cuda.grid(1) - 1
        cuda.ballot_sync(1, 1) << 31; cuda.lanemask_lt() - 1; cuda.shfl_sync(1, i4[2], 0) + 1
        cuda.syncthreads_count(1) << 31; cuda.any_sync(1, 1) + cuda.all_sync(1, 1); len(i4) - 7
        i4.size * 2147483647 * 2""",
}
REAL = {
    "products": """
        0.5 * f4[0]; 2 * f4[0]; f4[0] + f4[0]; f4[0] * f8[0]; f4[0] * i1[1]; f4[0] * u1[1]
        f4[0] * i2[1]; f4[0] * u2[1]; f4[0] * i4[1]; f4[0] * i8[1]; f4[0] * b[0]; u2[1] * f4[0]
        i4[1] - f8[0]""",
    "quotients": """
        i4[1] / i4[2]; u8[2] / i8[1]; f4[0] / 0; -1 / i4[1]; f8[1] // 0.75; f8[1] % 0.75
        cuda.blockDim.x / 2; i4.shape[0] / 2""",
    "powers": "pow(f4[0], 2); pow(f4[0], i8[1]); pow(f8[0], -3)",
    "extremes": "max(f4[0], 0.1); min(f4[0], 1); max(f4[0], i4[1], f8[1]); max(u8[2], i8[1])",
    "casts": """
        float32(0.1); float32(u8[2]); float(f4[0]); float(u8[2]); float32(f8[2] * f8[2])
        float32(i4[2]) + 1; float32(math.pi) * f4[0]; math.pi * f4[0]""",
    "math": """
        math.sqrt(f4[0]); math.sqrt(u8[2]); math.floor(f4[1]); math.floor(i4[1]) / 2
        math.fabs(i1[0]); math.copysign(f4[0], f4[1]); math.ldexp(f4[0], 3)
        cuda.fma(f4[0], f4[1], f4[0]); cuda.shfl_sync(1, f4[0], 0) * 0.5""",
}


def expressions(table):
    """The expressions of a table."""
    lines = (line for text in table.values() for line in text.splitlines())
    return [x.strip() for line in lines for x in line.split(";") if x.strip()]


def make(texts):
    """A kernel that writes one number for each expression."""
    lines = [f"def kernel(out, {', '.join(INPUTS)}):"]
    lines += [f"    x{i} = {text}\n    out[{i}] = x{i}" for i, text in enumerate(texts)]
    names = {name: getattr(types, name) for name in ("float32", "float64")}
    names |= {f"{sign}int{n}": getattr(numba, f"{sign}int{n}") for sign in ("", "u") for n in SIZES}
    names |= {"cuda": cuda, "math": math, "np": np}
    exec("\n".join(lines), names)
    return names["kernel"]


SIZES = (8, 16, 32, 64)


def simulated(kernel, out):
    Simulator().launch(kernel, 1, 1, (out, *INPUTS.values()))


def compiled(kernel, out):
    arguments = [out, *INPUTS.values()]
    signature = tuple(types.Array(from_dtype(x.dtype), 1, "C") for x in arguments)
    ptx, _ = cuda.compile(kernel, signature, cc=(9, 0), device=False, abi="numba")
    entry = parse(ptx if isinstance(ptx, str) else ptx.decode()).entry()
    Emulator().launch(entry, 1, 1, numba_arguments(entry, arguments))


@pytest.mark.parametrize(("table", "kind"), [(WHOLE, np.int64), (REAL, np.float64)])
def test_an_expression_is_what_numba_makes_of_it(table, kind):
    texts = expressions(table)
    outs = [np.zeros(len(texts), kind) for _ in range(2)]
    kernel = make(texts)
    for run, out in zip((simulated, compiled), outs):
        run(kernel, out)
    bits = [out.view(np.int64) for out in outs]
    differ = {text: (a, b) for text, a, b, x, y in zip(texts, *outs, *bits) if x != y}
    assert not differ
