"""Find the race in a kernel that is often right, and mend it.

A CTA of 64 threads, two warps, computes one head: thread `d` owns dimension `d`, and the
products of query and key are added up in shared memory. One line is missing. With luck, the
output is right all the same. What holds:

- two threads that use one element of shared memory, one of them writing, have a barrier between;
- all threads of the CTA come to every barrier;
- at most 8 barriers for each key: seven are here, and a CTA that waits does nothing else.

With keys of one token, the output is that token's value:

    >>> import numpy as np
    >>> from minipaged_cuda.simulator import Simulator
    >>> query, out = np.ones((1, 1, 64), np.float32), np.zeros((1, 1, 64), np.float32)
    >>> cache = np.full((1, 1, 1, 64), 7, np.float32)
    >>> tables, lens = np.zeros((1, 1), np.int32), np.ones(1, np.int32)
    >>> arguments = out, query, cache, cache, tables, lens, np.float32(1)
    >>> trace = Simulator().launch(decode, grid=(1, 1), num_threads=64, arguments=arguments)
    >>> print(out[0, 0, :4])
    [7. 7. 7. 7.]
"""

import math

from numba import cuda, float32

D = 64  # head_dim


def decode(
    out,  # [num_seqs, num_heads, D] float32
    query,  # [num_seqs, num_heads, D] float32
    key_cache,  # [num_blocks, block_size, num_heads, D] float32
    value_cache,  # [num_blocks, block_size, num_heads, D] float32
    block_tables,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens,  # [num_seqs] int32
    scale,  # float32
):
    """One CTA computes one head of one sequence; the grid is (num_seqs, num_heads)."""
    sequence, head, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    block_size = key_cache.shape[1]
    products = cuda.shared.array(D, float32)
    mine = query[sequence, head, d] * scale
    largest, total, accumulator = float32(-math.inf), float32(0), float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // block_size], position % block_size
        products[d] = mine * key_cache[block, slot, head, d]
        cuda.syncthreads()
        step = D // 2
        while step > 0:
            if d < step:
                products[d] += products[d + step]
            cuda.syncthreads()
            step //= 2
        score = products[0]
        cuda.syncthreads()
        larger = max(largest, score)
        rescale, weight = math.exp(largest - larger), math.exp(score - larger)
        total = total * rescale + weight
        value = value_cache[block, slot, head, d]
        accumulator = accumulator * rescale + weight * value
        largest = larger
    out[sequence, head, d] = accumulator / total
