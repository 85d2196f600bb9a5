"""Tiny kernels around single primitives, run through each twin on numbers at the edges."""

import warnings
from typing import Any

import numpy as np

from minipaged_cuda import compile_mlir, primitives
from minipaged_cuda.emulator import Emulator, parse
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.primitives import (
    Pointer,
    cp_async16,
    cp_async_commit,
    cp_async_wait_all,
    cp_async_wait_but_one,
    cuda,
    f32,
    ld64,
    ld128,
    lds128,
    rcp,
    st128,
    sts128,
    u32,
)
from minipaged_cuda.primitives import mma_bf16 as mma
from minipaged_cuda.simulator import Pointer as Window
from minipaged_cuda.simulator import Simulator
from support.cuda_compiled import emulate

word, load = rcp, ld128  # chosen by constants, as are the types
IN = OUT = STORED = f32


def of_one(out: Pointer["OUT"], a: Pointer["IN"]):
    """A primitive of one number."""
    i = cuda.threadIdx.x
    out[i] = word(a[i])


def of_two(out: Pointer["OUT"], a: Pointer["IN"], b: Pointer["IN"]):
    """A primitive of two numbers."""
    i = cuda.threadIdx.x
    out[i] = word(a[i], b[i])


def of_three(out: Pointer[u32], a: Pointer[u32], b: Pointer[u32], c: Pointer[u32]):
    """A primitive of three words."""
    i = cuda.threadIdx.x
    out[i] = word(a[i], b[i], c[i])


def loads(out: Pointer[f32], stored: Pointer["STORED"]):
    """One element as float32."""
    i = cuda.threadIdx.x
    out[i] = word(stored, i)


def stores(out: Pointer["STORED"], a: Pointer[f32]):
    """One float32 as an element."""
    i = cuda.threadIdx.x
    word(out, i, a[i])


def moves(out: Pointer[u32], words: Pointer[u32]):
    """16 bytes through shared memory, to the place of the opposite thread."""
    i = cuda.threadIdx.x
    shared = cuda.shared.array(128, u32, alignment=16)
    a, b, c, d = load(words, 4 * i)
    sts128(shared, 4 * (31 - i), d, c, b, a)
    cuda.syncthreads()
    a, b, c, d = lds128(shared, 4 * i)
    st128(out, 4 * i, a, b, c, d)


def moves_halves(out: Pointer[u32], words: Pointer[u32]):
    """8 bytes, swapped."""
    i = cuda.threadIdx.x
    a, b = ld64(words, 2 * i)
    out[2 * i], out[2 * i + 1] = b, a


def copies(out: Pointer[u32], words: Pointer[u32]):
    """16 bytes copied in the background, twice, and read by the opposite thread."""
    i = cuda.threadIdx.x
    first = cuda.shared.array(128, u32, alignment=16)
    second = cuda.shared.array(128, u32, alignment=16)
    cp_async16(first, 4 * i, words, 4 * i)
    cp_async_commit()
    cp_async16(second, 4 * i, words, 128 + 4 * i)
    cp_async_commit()
    cp_async_wait_but_one()
    cuda.syncthreads()
    a, b, c, d = lds128(first, 4 * (31 - i))
    st128(out, 4 * i, a, b, c, d)
    cp_async_wait_all()
    cuda.syncthreads()
    a, b, c, d = lds128(second, 4 * (31 - i))
    st128(out, 128 + 4 * i, a, b, c, d)


def reads_too_early(out: Pointer[u32], words: Pointer[u32]):
    """The same without a wait."""
    i = cuda.threadIdx.x
    shared = cuda.shared.array(128, u32, alignment=16)
    cp_async16(shared, 4 * i, words, 4 * i)
    cp_async_commit()
    cuda.syncthreads()
    out[i] = shared[i]


def multiplies(out: Pointer[f32], a: Pointer[u32], b: Pointer[u32], c: Pointer[f32]):
    """One matrix product of a warp; fragments lie lane by lane."""
    i = cuda.threadIdx.x
    a0, a1, a2, a3 = ld128(a, 4 * i)
    start = (c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3])
    w, x, y, z = mma(start, a0, a1, a2, a3, b[2 * i], b[2 * i + 1])
    out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3] = w, x, y, z


# --- twins -------------------------------------------------------------------------------------


def python_twin(specialisation: Specialisation, num_threads: int, arrays: list[Any]) -> None:
    """Run the text as it is written, in the simulator."""
    words = {
        name: getattr(primitives, x, None) or np.dtype(x).type
        for name, x in specialisation.names.items()
    }
    parameters = specialisation.parameters
    pointers = [Window(x, np.dtype(p.type_name)) for x, p in zip(arrays, parameters)]
    simulator = Simulator(bindings={**specialisation.numbers, **words})
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # overflow is what is being tried
        simulator.launch(specialisation.kernel, 1, num_threads, pointers)


def ptx_twin(specialisation: Specialisation, num_threads: int, arrays: list[Any]) -> None:
    """Run what numba-cuda makes of it, in the emulator."""
    emulate(specialisation, num_threads, arrays)


def mlir_twin(specialisation: Specialisation, num_threads: int, arrays: list[Any]) -> None:
    """Run what numba-cuda-mlir makes of it, in the emulator."""
    entry = parse(compile_mlir.compile_ptx(specialisation, (9, 0))).entry()
    Emulator().launch(entry, (1, 1, 1), num_threads, arrays)


def bits(x: np.ndarray) -> np.ndarray:
    """The words behind numbers."""
    return x.view(f"u{x.itemsize}")


# --- numbers at the edges ----------------------------------------------------------------------


def edge_floats() -> np.ndarray:  # [256] float32
    """Zeros, infinities, NaN, subnormals, ties of all narrow types and their limits, and noise."""
    nan = [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC12345]
    limits = [1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF]
    magnitudes = [0.0, 1.0, np.inf, *bits_as_floats(limits)]
    for digits in (3, 7, 10):  # of e4m3, bfloat16, float16
        for code in (1.0, 1.0 + 2.0**-digits):
            half = 2.0 ** -(digits + 1)
            magnitudes += [code + half, code + half * (1 - 2.0**-12), code + half * (1 + 2.0**-12)]
    for smallest in (2.0**-9, 2.0**-24, 2.0**-133):  # subnormals of e4m3, float16, bfloat16
        magnitudes += [smallest * x for x in (0.49, 0.5, 0.51, 1, 1.5, 2.5)]
    for largest, step in ((448, 32), (65504, 32), (3.3895314e38, 1.3e36)):
        magnitudes += [largest, largest + 0.49 * step, largest + step / 2, largest + step]
    edges = np.array([*magnitudes, *(-x for x in magnitudes)], dtype=np.float64)
    num_left = 256 - len(nan) - len(edges)
    noise = np.random.default_rng(0).integers(0, 2**32, num_left, dtype=np.uint32)
    with np.errstate(over="ignore"):
        return np.concatenate([bits_as_floats(nan), edges.astype(np.float32), noise.view("f4")])


def bits_as_floats(words: list[int]) -> np.ndarray:
    """float32 numbers by their bits."""
    return np.array(words, dtype=np.uint32).view(np.float32)


def all_halves() -> np.ndarray:  # [256, 256] uint16
    """Every number of 16 bits."""
    return np.arange(65536, dtype=np.uint16).reshape(256, 256)
