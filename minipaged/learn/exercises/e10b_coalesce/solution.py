"""Add up values so that neighbouring threads read neighbouring numbers.

The weights of a softmax are known, and `weigh` adds up the values: `out = sum of weight * value`
over the tokens of a sequence. What stands here is right, and reads like `add_rows`: thread `h`
takes head `h`, and walks along its numbers. Of each 32 bytes that it moves, it asked for 4.

Rewrite both functions. `launch_shape` says how many CTAs there are, a number or a tuple of up to
three, which a kernel sees as `cuda.blockIdx.x`, `.y` and `.z`, and how many threads each has. What
holds:

- the same output;
- more than 60 % of the bytes of `value_cache` that are moved were asked for;
- blocks are found through the table, and no slot at or past `seq_lens` is read.

One sequence of 3 tokens in the blocks 1 and 0, with the values 10, 20 and 30:

    >>> import numpy as np
    >>> from minipaged_cuda.simulator import Simulator
    >>> cache, out = np.zeros((2, 2, 1, 32), np.float32), np.zeros((1, 1, 32), np.float32)
    >>> cache[1, 0], cache[1, 1], cache[0, 0] = 10, 20, 30
    >>> weights = np.array([[[0.5, 0.25, 0.25]]], np.float32)
    >>> tables, lens = np.array([[1, 0]], np.int32), np.array([3], np.int32)
    >>> trace = Simulator().launch(weigh, *launch_shape(1, 1), (out, weights, cache, tables, lens))
    >>> print(out[0, 0, :4])
    [17.5 17.5 17.5 17.5]
"""

from numba import cuda, float32

D = 32  # head_dim


def launch_shape(num_seqs, num_heads):
    """How many CTAs, and how many threads each of them has."""
    return (num_seqs, num_heads), D


def weigh(
    out,  # [num_seqs, num_heads, D] float32
    weights,  # [num_seqs, num_heads, max_seq_len] float32
    value_cache,  # [num_blocks, block_size, num_heads, D] float32
    block_tables,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens,  # [num_seqs] int32
):
    """The weighted sum of the values of every sequence and head."""
    block_size = value_cache.shape[1]
    sequence, head, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    total = float32(0)
    for position in range(seq_lens[sequence]):
        block, slot = block_tables[sequence, position // block_size], position % block_size
        total += weights[sequence, head, position] * value_cache[block, slot, head, d]
    out[sequence, head, d] = total
