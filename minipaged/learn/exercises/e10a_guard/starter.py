"""A thread for each head of each sequence, and nothing for the threads that are left over.

A launch has whole CTAs of equally many threads, so its last CTA has threads without work.
`decode` runs in every thread. Write its first lines: which sequence and which head are this
thread's, and what does it do if there are none? The attention below them is finished.

A thread knows three numbers: `cuda.blockIdx.x`, the number of its CTA, `cuda.blockDim.x`, how
many threads a CTA has, and `cuda.threadIdx.x`, its number in the CTA. What holds:

- every head of every sequence is computed by one thread, whatever the size of a CTA;
- a thread without a head touches no memory.

Two sequences of 3 heads are 6 rows. In CTAs of 4 threads they take 2 CTAs, and the last two
threads have nothing to do. With keys of one token, the output is that token's value, here 7:

    >>> import numpy as np
    >>> from minipaged_cuda.simulator import Simulator
    >>> query, out = np.ones((2, 3, 8), np.float32), np.zeros((2, 3, 8), np.float32)
    >>> cache = np.full((2, 1, 3, 8), 7, np.float32)  # 2 blocks of 1 token
    >>> tables, lens = np.array([[1], [0]], np.int32), np.array([1, 1], np.int32)
    >>> arguments = out, query, cache, cache, tables, lens, np.float32(1)
    >>> trace = Simulator().launch(decode, grid=2, num_threads=4, arguments=arguments)
    >>> print(out[:, :, 0])
    [[7. 7. 7.]
     [7. 7. 7.]]
"""

import math

from numba import cuda, float32

D = 8  # head_dim


def decode(
    out,  # [num_seqs, num_heads, D] float32
    query,  # [num_seqs, num_heads, D] float32
    key_cache,  # [num_blocks, block_size, num_heads, D] float32
    value_cache,  # [num_blocks, block_size, num_heads, D] float32
    block_tables,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens,  # [num_seqs] int32
    scale,  # float32
):
    """One thread computes one head of one sequence."""
    num_seqs, num_heads, block_size = query.shape[0], query.shape[1], key_cache.shape[1]
    sequence = head = 0  # yours: the right ones, or return
    raise NotImplementedError("which sequence and which head are this thread's?")

    accumulator = cuda.local.array(D, float32)
    for d in range(D):
        accumulator[d] = float32(0)
    largest, total = float32(-math.inf), float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // block_size], position % block_size
        score = float32(0)
        for d in range(D):
            score += query[sequence, head, d] * key_cache[block, slot, head, d]
        score *= scale
        larger = max(largest, score)
        rescale, weight = math.exp(largest - larger), math.exp(score - larger)
        total = total * rescale + weight
        for d in range(D):
            value = value_cache[block, slot, head, d]
            accumulator[d] = accumulator[d] * rescale + weight * value
        largest = larger
    for d in range(D):
        out[sequence, head, d] = accumulator[d] / total
