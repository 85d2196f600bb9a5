"""Load each key and each value once for all query heads that share it.

`G` query heads share one head of keys and values: query heads 0 to G - 1 have kv head 0, the next
`G` have kv head 1. What stands here is right: a warp for every query head. But every warp of a
group loads the same keys. Rewrite `launch_shape` and `decode` so that one warp computes all `G`
heads of a kv head. What holds:

- the same output, for every query head;
- each number of the visible keys and values is read once per kv head;
- blocks are found through the table, and no slot at or past `seq_lens` is read.

`cuda.local.array(G, float32)` is an array of the thread's own. One key, of value 7, four heads:

    >>> import numpy as np
    >>> from minipaged_cuda.simulator import Simulator
    >>> query, out = np.ones((1, 4, 32), np.float32), np.zeros((1, 4, 32), np.float32)
    >>> cache = np.full((1, 1, 1, 32), 7, np.float32)
    >>> tables, lens = np.zeros((1, 1), np.int32), np.ones(1, np.int32)
    >>> arguments = out, query, cache, cache, tables, lens, np.float32(1)
    >>> trace = Simulator().launch(decode, *launch_shape(1, 4, 1), arguments)
    >>> print(out[0, :, 0])
    [7. 7. 7. 7.]
    >>> print(trace.buffers["key_cache"].reads.elements)
    32
"""

import math

from numba import cuda, float32

D = 32  # head_dim: a lane for each dimension
G = 4  # query heads per kv head


def warp_sum(x):
    """The sum of x over the 32 lanes, in every lane."""
    step = 16
    while step > 0:
        x += cuda.shfl_xor_sync(0xFFFFFFFF, x, step)
        step //= 2
    return x


def launch_shape(num_seqs, num_heads, num_kv_heads):
    """How many CTAs, and how many threads each of them has."""
    return (num_seqs, num_kv_heads), D


def decode(
    out,  # [num_seqs, num_heads, D] float32
    query,  # [num_seqs, num_heads, D] float32
    key_cache,  # [num_blocks, block_size, num_kv_heads, D] float32
    value_cache,  # [num_blocks, block_size, num_kv_heads, D] float32
    block_tables,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens,  # [num_seqs] int32
    scale,  # float32
):
    """One warp computes the G query heads of a kv head."""
    sequence, kv_head, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    block_size = key_cache.shape[1]
    mine = cuda.local.array(G, float32)
    largest = cuda.local.array(G, float32)
    total = cuda.local.array(G, float32)
    accumulator = cuda.local.array(G, float32)
    for g in range(G):
        mine[g] = query[sequence, kv_head * G + g, d] * scale
        largest[g], total[g], accumulator[g] = float32(-math.inf), float32(0), float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // block_size], position % block_size
        key = key_cache[block, slot, kv_head, d]
        value = value_cache[block, slot, kv_head, d]
        for g in range(G):
            score = warp_sum(mine[g] * key)
            larger = max(largest[g], score)
            rescale, weight = math.exp(largest[g] - larger), math.exp(score - larger)
            total[g] = total[g] * rescale + weight
            accumulator[g] = accumulator[g] * rescale + weight * value
            largest[g] = larger
    for g in range(G):
        out[sequence, kv_head * G + g, d] = accumulator[g] / total[g]
