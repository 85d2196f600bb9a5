"""Merges attention over two disjoint sets of keys; knows two outputs and their lse, no keys.

The grid is (num_tokens, num_heads), the number of threads anything, D at best: thread d computes
dimension d. ``(0, -inf)`` is the identity, and what is merged of two of them; the output beside an
lse of -inf is not read.
"""

from minipaged_cuda.kernels.common import LOG2E, MINUS_INFINITY, NEG, natural_lse
from minipaged_cuda.primitives import Pointer, cuda, ex2, f32, i32, i64
from minipaged_cuda.primitives import load_float32 as load_state
from minipaged_cuda.primitives import store_float32 as store_out

D = 0  # put in by the specialisation, as is the type
OUT = f32


def merge_states(
    out: Pointer["OUT"],  # [num_tokens, num_heads, D]
    lse: Pointer[f32],  # [num_tokens, num_heads], natural log like the two others
    out_a: Pointer["OUT"],  # [num_tokens, num_heads, D]
    lse_a: Pointer[f32],  # [num_tokens, num_heads]
    out_b: Pointer["OUT"],
    lse_b: Pointer[f32],
    num_heads: i32,
):
    """The output and lse over both sets of keys."""
    row = i64(cuda.blockIdx.x) * num_heads + cuda.blockIdx.y
    a, b = lse_a[row], lse_b[row]
    largest = max(a, b)
    weight_a = f32(0) if a <= NEG else ex2((a - largest) * LOG2E)
    weight_b = f32(0) if b <= NEG else ex2((b - largest) * LOG2E)
    total = weight_a + weight_b
    d = i64(cuda.threadIdx.x)
    if d == 0:
        lse[row] = MINUS_INFINITY if total <= f32(0) else largest + natural_lse(f32(0), total)
    while d < D:
        found = f32(0)
        if not a <= NEG:  # NaN is not "no key"
            found += weight_a * load_state(out_a, row * D + d)
        if not b <= NEG:
            found += weight_b * load_state(out_b, row * D + d)
        store_out(out, row * D + d, f32(0) if total <= f32(0) else found / total)
        d += cuda.blockDim.x
