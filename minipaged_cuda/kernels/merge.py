"""Puts the splits of a row together; knows partial softmaxes, no keys.

The grid is (num_tokens, num_heads), the number of threads anything, D at best: thread d computes
dimension d. A split that held no key has ``partial_lse <= NEG`` and its output is not read.

::

    partial_lse  [  3.1 | NEG | 2.9 ]         base 2, of the scores that the splits saw
    weight          1     -     2**-0.2       relative to the largest, the sink's logit included
    out          (out_0 + 2**-0.2 * out_2) / (1 + 2**-0.2)
"""

from minipaged_cuda.kernels.common import LOG2E, NEG, natural_lse
from minipaged_cuda.primitives import Pointer, cuda, ex2, f32, i32, i64
from minipaged_cuda.primitives import store_float32 as store_out

D = SINKS = 0  # put in by the specialisation, as is the type
OUT = f32


def merge(
    out: Pointer["OUT"],  # [num_tokens, num_heads, D]
    lse: Pointer[f32],  # [num_tokens, num_heads] natural log
    partial_out: Pointer[f32],  # [num_tokens, num_heads, num_splits, D]
    partial_lse: Pointer[f32],  # [num_tokens, num_heads, num_splits] base 2
    sinks: Pointer[f32],  # [num_heads]
    query_start_loc: Pointer[i32],  # [num_seqs + 1]
    num_seqs: i32,
    num_heads: i32,
    num_splits: i32,
):
    """The output and lse over all splits, and the sink where there is one."""
    token, head = i64(cuda.blockIdx.x), i64(cuda.blockIdx.y)
    row = token * num_heads + head
    largest, total = NEG, f32(0)
    for split in range(num_splits):
        largest = max(largest, partial_lse[row * num_splits + split])
    if SINKS and token < query_start_loc[num_seqs]:  # a row of nobody has no sink either
        sink = sinks[head] * LOG2E
        largest = max(largest, sink)
        total = ex2(sink - largest)
    for split in range(num_splits):
        here = partial_lse[row * num_splits + split]
        total += f32(0) if here <= NEG else ex2(here - largest)
    d = i64(cuda.threadIdx.x)
    if d == 0:
        lse[row] = natural_lse(largest, total)
    while d < D:
        found = f32(0)
        for split in range(num_splits):
            here = partial_lse[row * num_splits + split]
            if not here <= NEG:
                found += ex2(here - largest) * partial_out[(row * num_splits + split) * D + d]
        store_out(out, row * D + d, f32(0) if total <= f32(0) else found / total)
        d += cuda.blockDim.x
