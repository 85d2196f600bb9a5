"""Rung 0: one thread computes one query head of one row, as one would on a CPU.

The grid is (ceil(num_tokens * num_heads / num_threads),), with any number of threads. Keys are read
once, thanks to the online softmax: the sum so far is rescaled whenever a larger score comes.

::

    lane          0            1            2         ...
    head          0            1            2
    key 5   [k0 k1 k2 ..][k0 k1 k2 ..][k0 k1 k2 ..]   a row of D numbers for each lane: what one
             ^            ^            ^              request of a warp reads lies D numbers apart

A card moves 32 bytes where one number is asked for, and D accumulators fill a thread's registers.
"""

from minipaged_cuda.kernels.common import LOG2E, NEG, natural_lse, visible_keys
from minipaged_cuda.primitives import Pointer, cuda, ex2, f32, i32, i64
from minipaged_cuda.primitives import load_float32 as load_kv
from minipaged_cuda.primitives import load_float32 as load_query
from minipaged_cuda.primitives import store_float32 as store_out

D = G = BS = 0  # put in by the specialisation, as are the types
OUT = QUERY = KV = f32


def decode_v0(
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
    row = i64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    if row >= i64(num_tokens) * num_heads:
        return
    token, head = row // num_heads, row % num_heads
    sequence, _, first, end = visible_keys(token, num_seqs, seq_lens, query_start_loc, i32(0))
    mine = token * query_token_stride + head * query_head_stride
    accumulator = cuda.local.array(D, f32)
    for d in range(D):
        accumulator[d] = f32(0)
    largest, total = NEG, f32(0)
    for position in range(first, end):
        block, slot = i64(block_tables[sequence * table_stride + position // BS]), position % BS
        key = block * key_block_stride + slot * key_token_stride + head // G * key_head_stride
        value = (
            block * value_block_stride + slot * value_token_stride + head // G * value_head_stride
        )
        score = f32(0)
        for d in range(D):
            score += load_query(query, mine + d) * load_kv(key_cache, key + d)
        score *= scale * LOG2E
        larger = max(largest, score)
        rescale, weight = ex2(largest - larger), ex2(score - larger)
        total = total * rescale + weight
        for d in range(D):
            accumulator[d] = accumulator[d] * rescale + weight * load_kv(value_cache, value + d)
        largest = larger
    for d in range(D):
        store_out(out, row * D + d, f32(0) if total <= f32(0) else accumulator[d] / total)
    lse[row] = natural_lse(largest, total)
