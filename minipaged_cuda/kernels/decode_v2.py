"""Rung 2: one warp computes one head of one row, and lane i owns the dimensions i, i + 32, ...

The grid is (ceil(num_tokens * num_heads / num_warps),), the number of threads 32 * num_warps for
any num_warps. In rung 1 all threads meet nine times for every key, at D = 128. The lanes of a warp
run together and read each other's registers, so the sum takes five shuffles, no shared memory and
no barrier.

::

    lane       0    1    2    3   ...        D = 96: a lane owns three numbers of K, V and q
    k [ 0 ..31]|    |    |    |              and sums their products alone, then
    k [32 ..63]|    |    |    |              xor 16, xor 8, xor 4, xor 2, xor 1
    k [64 ..95]|    |    |    |              leave the whole sum in every lane
"""

from minipaged_cuda.kernels.common import LOG2E, NEG, natural_lse, visible_keys
from minipaged_cuda.primitives import (
    FULL_MASK,
    Pointer,
    cuda,
    ex2,
    f32,
    i32,
    i64,
    registers,
    static,
)
from minipaged_cuda.primitives import load_float32 as load_kv
from minipaged_cuda.primitives import load_float32 as load_query
from minipaged_cuda.primitives import store_float32 as store_out

D = G = BS = 0  # put in by the specialisation, as are the types
OUT = QUERY = KV = f32


def decode_v2(
    out: Pointer["OUT"],  # [num_tokens, num_heads, D]
    lse: Pointer[f32],  # [num_tokens, num_heads]
    query: Pointer["QUERY"],  # [num_tokens, num_heads, D]
    key_cache: Pointer["KV"],  # [num_blocks, BS, num_kv_heads, D]
    value_cache: Pointer["KV"],
    block_tables: Pointer[i32],  # [num_seqs, table_stride]
    seq_lens: Pointer[i32],  # [num_seqs]
    query_start_loc: Pointer[i32],  # [num_seqs + 1]
    scale: f32,
    num_tokens: i32,
    num_seqs: i32,
    num_kv_heads: i32,
    table_stride: i64,
    query_token_stride: i64,
    query_head_stride: i64,
    key_block_stride: i64,
    key_token_stride: i64,
    key_head_stride: i64,
    value_block_stride: i64,
    value_token_stride: i64,
    value_head_stride: i64,
):
    """Causal attention of each row, and its lse."""
    num_heads = num_kv_heads * G
    thread = i64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    row, lane = thread >> 5, thread & 31
    if row >= i64(num_tokens) * num_heads:
        return  # the whole warp
    token, head = row // num_heads, row % num_heads
    sequence, _, first, end = visible_keys(token, num_seqs, seq_lens, query_start_loc, i32(0))
    query_row = token * query_token_stride + head * query_head_stride
    mine = registers((D + 31) // 32, f32(0))
    accumulator = registers((D + 31) // 32, f32(0))
    for i in static((D + 31) // 32):
        if D % 32 == 0 or lane + 32 * i < D:
            mine[i] = load_query(query, query_row + lane + 32 * i) * (scale * LOG2E)
    largest, total = NEG, f32(0)
    for position in range(first, end):
        block, slot = i64(block_tables[sequence * table_stride + position // BS]), position % BS
        key = block * key_block_stride + slot * key_token_stride + head // G * key_head_stride
        value = (
            block * value_block_stride + slot * value_token_stride + head // G * value_head_stride
        )
        score = f32(0)
        for i in static((D + 31) // 32):
            if D % 32 == 0 or lane + 32 * i < D:
                score += mine[i] * load_kv(key_cache, key + lane + 32 * i)
        for i in static(5):
            score += cuda.shfl_xor_sync(FULL_MASK, score, 16 >> i)
        larger = max(largest, score)
        rescale, weight = ex2(largest - larger), ex2(score - larger)
        total = total * rescale + weight
        for i in static((D + 31) // 32):
            accumulator[i] *= rescale
            if D % 32 == 0 or lane + 32 * i < D:
                accumulator[i] += weight * load_kv(value_cache, value + lane + 32 * i)
        largest = larger
    for i in static((D + 31) // 32):
        if D % 32 == 0 or lane + 32 * i < D:
            found = f32(0) if total <= f32(0) else accumulator[i] / total
            store_out(out, row * D + lane + 32 * i, found)
    if lane == 0:
        lse[row] = natural_lse(largest, total)
