"""Rung 1: a CTA of D threads computes one head of one row, and thread d owns dimension d.

The grid is (num_tokens, num_heads), the number of threads is D. Rung 0 read each number of a row in
a request of its own; here neighbouring threads read neighbouring numbers, K and V move in whole
sectors, and the accumulator is one register. The price: a score is a sum over threads, through
shared memory, with a barrier after every halving.

::

    thread      0    1    2    3    4
    q * k     [ a  | b  | c  | d  | e ]     D = 5: the upper part is added to the lower,
              [a+d |b+e | c  ]              and the odd one waits
              [a+d+c | b+e]
              [ score ]
"""

from minipaged_cuda.kernels.common import LOG2E, NEG, natural_lse, visible_keys
from minipaged_cuda.primitives import Pointer, cuda, ex2, f32, i32, i64
from minipaged_cuda.primitives import load_float32 as load_kv
from minipaged_cuda.primitives import load_float32 as load_query
from minipaged_cuda.primitives import store_float32 as store_out

D = G = BS = 0  # put in by the specialisation, as are the types
OUT = QUERY = KV = f32


def decode_v1(
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
    token, head, d = i64(cuda.blockIdx.x), i64(cuda.blockIdx.y), i64(cuda.threadIdx.x)
    sequence, _, first, end = visible_keys(token, num_seqs, seq_lens, query_start_loc, i32(0))
    mine = load_query(query, token * query_token_stride + head * query_head_stride + d)
    mine *= scale * LOG2E
    products = cuda.shared.array(D, f32)
    largest, total, accumulator = NEG, f32(0), f32(0)
    for position in range(first, end):
        block, slot = i64(block_tables[sequence * table_stride + position // BS]), position % BS
        key = block * key_block_stride + slot * key_token_stride + head // G * key_head_stride
        value = (
            block * value_block_stride + slot * value_token_stride + head // G * value_head_stride
        )
        products[d] = mine * load_kv(key_cache, key + d)
        cuda.syncthreads()
        size = i64(D)
        while size > 1:
            half = (size + 1) >> 1
            if d < size - half:
                products[d] += products[d + half]
            cuda.syncthreads()
            size = half
        score = products[0]
        cuda.syncthreads()  # everyone has read it before the next key's products come
        larger = max(largest, score)
        rescale, weight = ex2(largest - larger), ex2(score - larger)
        total = total * rescale + weight
        accumulator = accumulator * rescale + weight * load_kv(value_cache, value + d)
        largest = larger
    row = token * num_kv_heads * G + head
    store_out(out, row * D + d, f32(0) if total <= f32(0) else accumulator / total)
    if d == 0:
        lse[row] = natural_lse(largest, total)
