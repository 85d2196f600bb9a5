"""Add up the products of a warp without shared memory and without a barrier.

A CTA of 32 threads, one warp, computes one head. What stands here is right: the products of query
and key go into shared memory, and six barriers a key keep the threads apart. Lanes of one warp can
read each other's registers instead. What holds:

- the same output, in all 32 dimensions;
- no shared memory and no barrier;
- at most 6 instructions of the warp (shuffles, votes) for each key.

`cuda.shfl_xor_sync(0xFFFFFFFF, x, step)` gives lane `i` the `x` of lane `i ^ step`, and has to be
executed by all 32 lanes. With keys of one token, the output is that token's value:

    >>> import numpy as np
    >>> from minipaged_cuda.simulator import Simulator
    >>> query, out = np.ones((1, 1, 32), np.float32), np.zeros((1, 1, 32), np.float32)
    >>> cache = np.full((1, 1, 1, 32), 7, np.float32)
    >>> tables, lens = np.zeros((1, 1), np.int32), np.ones(1, np.int32)
    >>> arguments = out, query, cache, cache, tables, lens, np.float32(1)
    >>> trace = Simulator().launch(decode, grid=(1, 1), num_threads=32, arguments=arguments)
    >>> print(out[0, 0, :4], trace.barriers)
    [7. 7. 7. 7.] 0
"""

import math

from numba import cuda, float32

D = 32  # head_dim: a lane for each dimension


def decode(
    out,  # [num_seqs, num_heads, D] float32
    query,  # [num_seqs, num_heads, D] float32
    key_cache,  # [num_blocks, block_size, num_heads, D] float32
    value_cache,  # [num_blocks, block_size, num_heads, D] float32
    block_tables,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens,  # [num_seqs] int32
    scale,  # float32
):
    """One warp computes one head of one sequence; the grid is (num_seqs, num_heads)."""
    sequence, head, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    block_size = key_cache.shape[1]
    mine = query[sequence, head, d] * scale
    largest, total, accumulator = float32(-math.inf), float32(0), float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // block_size], position % block_size
        score = mine * key_cache[block, slot, head, d]
        step = 16
        while step > 0:
            score += cuda.shfl_xor_sync(0xFFFFFFFF, score, step)
            step //= 2
        larger = max(largest, score)
        rescale, weight = math.exp(largest - larger), math.exp(score - larger)
        total = total * rescale + weight
        value = value_cache[block, slot, head, d]
        accumulator = accumulator * rescale + weight * value
        largest = larger
    out[sequence, head, d] = accumulator / total
