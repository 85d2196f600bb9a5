"""Let several CTAs share the keys of one sequence, and put their results together.

The grid of `attend_split` is `(num_seqs, num_heads, num_splits)`: CTA `(s, h, i)` computes
attention of head `h` over some of the keys of sequence `s`, and leaves an output and its lse.
`merge`, a second launch, makes the attention over all keys of them. Write which keys are this
CTA's, what it leaves, and all of `merge`. What holds:

- each key is in exactly one split, and no split has more than `ceil(seq_len / num_splits)` keys;
- `partial_out` is a finished output, divided by its own sum, and `partial_lse` its lse, the
  natural logarithm of the sum of `exp(score)`;
- a split without keys leaves the lse -inf, and `merge` does not look at its output;
- where no split has a key, `merge` writes 0, and -inf for the lse.

Two parts: keys that weigh 3 together and have the output 1, and one that weighs 1 and is 5. Merged
they weigh 4, and the output is (3 * 1 + 1 * 5) / 4:

    >>> import numpy as np
    >>> from minipaged_cuda.simulator import Simulator
    >>> partial_out = np.zeros((1, 1, 2, 32), np.float32)
    >>> partial_out[0, 0, 0], partial_out[0, 0, 1] = 1, 5
    >>> partial_lse = np.log(np.array([[[3, 1]]], np.float32))
    >>> out, lse = np.zeros((1, 1, 32), np.float32), np.zeros((1, 1), np.float32)
    >>> trace = Simulator().launch(merge, (1, 1), 32, (out, lse, partial_out, partial_lse))
    >>> print(out[0, 0, :3], np.exp(lse).round(3))
    [2. 2. 2.] [[4.]]
"""

import math

from numba import cuda, float32

D = 32  # head_dim: a lane for each dimension


def warp_sum(x):
    """The sum of x over the 32 lanes, in every lane."""
    step = 16
    while step > 0:
        x += cuda.shfl_xor_sync(0xFFFFFFFF, x, step)
        step //= 2
    return x


def attend_split(
    partial_out,  # [num_seqs, num_heads, num_splits, D] float32
    partial_lse,  # [num_seqs, num_heads, num_splits] float32
    query,  # [num_seqs, num_heads, D] float32
    key_cache,  # [num_blocks, block_size, num_heads, D] float32
    value_cache,  # [num_blocks, block_size, num_heads, D] float32
    block_tables,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens,  # [num_seqs] int32
    scale,  # float32
):
    """Attention of one head over the keys of one split; a CTA is a warp."""
    sequence, head, split = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
    d, num_splits, block_size = cuda.threadIdx.x, cuda.gridDim.z, key_cache.shape[1]
    share = (seq_lens[sequence] + num_splits - 1) // num_splits
    first = split * share
    end = min(first + share, seq_lens[sequence])

    mine = query[sequence, head, d] * scale
    largest, total, accumulator = float32(-math.inf), float32(0), float32(0)
    for position in range(first, end):
        block, slot = block_tables[sequence, position // block_size], position % block_size
        score = warp_sum(mine * key_cache[block, slot, head, d])
        larger = max(largest, score)
        rescale, weight = math.exp(largest - larger), math.exp(score - larger)
        total = total * rescale + weight
        value = value_cache[block, slot, head, d]
        accumulator = accumulator * rescale + weight * value
        largest = larger

    if total > 0:
        partial_out[sequence, head, split, d] = accumulator / total
    if d == 0:
        lse = float32(-math.inf)
        if total > 0:
            lse = largest + math.log(total)
        partial_lse[sequence, head, split] = lse


def merge(
    out,  # [num_seqs, num_heads, D] float32
    lse,  # [num_seqs, num_heads] float32
    partial_out,  # [num_seqs, num_heads, num_splits, D] float32
    partial_lse,  # [num_seqs, num_heads, num_splits] float32
):
    """The attention over all splits; the grid is (num_seqs, num_heads), a thread per dimension."""
    sequence, head, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    num_splits = partial_lse.shape[2]
    largest = float32(-math.inf)
    for split in range(num_splits):
        largest = max(largest, partial_lse[sequence, head, split])
    total, found = float32(0), float32(0)
    for split in range(num_splits):
        part = partial_lse[sequence, head, split]
        if part > -math.inf:
            weight = math.exp(part - largest)
            total += weight
            found += weight * partial_out[sequence, head, split, d]
    if total > 0:
        found /= total
        largest += math.log(total)
    out[sequence, head, d] = found
    if d == 0:
        lse[sequence, head] = largest
