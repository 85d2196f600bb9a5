"""Kernels of a few lines for the tests of launchers; annotations are read, so none are strings."""

from minipaged_cuda.primitives import Pointer, cuda, f32, i32
from minipaged_cuda.primitives import load_float32 as load_x

SCALED = BS = CAUSAL = 0  # put in by the specialisation, as is the type
X = f32


def add_scaled(out: Pointer[f32], x: Pointer["X"], scale: Pointer[f32], factor: f32, n: i32):
    """``out = x + factor * scale[0] / 2``, or ``x``."""
    i = cuda.threadIdx.x
    if i < n:
        value = load_x(x, i)
        if SCALED:
            value += factor * scale[0] * f32(0.5)
        out[i] = value


def sum_of_a_block(
    out: Pointer[f32],
    key_cache: Pointer[f32],
    value_cache: Pointer[f32],
    block_tables: Pointer[i32],
    seq_lens: Pointer[i32],
    query_start_loc: Pointer[i32],
):
    """The sum of all keys of a sequence's first block, whatever the sequence's length."""
    total = f32(0)
    for i in range(BS):
        total += key_cache[block_tables[0] * BS + i]
    out[0] = total
