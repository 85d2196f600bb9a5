"""Copies blocks, K and V of all layers in one launch: copy-on-write, and swapping to the host.

The grid is (ceil(words of a block / num_threads), num_pairs, num_layers), the number of threads
anything, and every thread moves one word of K and one of V: 16 bytes with WIDE = 1 (pointers and
strides count u32), one element of any type ``WORD`` with WIDE = 0. A block is TOKENS x HEADS rows
of ROW such words; where it has no gaps it is one row, TOKENS = HEADS = 1, in any layout.

No block may be both a source and a destination, because CTAs run in any order. A pair of -1 is
skipped. K and V have the same strides; where they do not, VALUES = 0 copies ``key_*`` alone.
"""

from minipaged_cuda.primitives import Pointer, cuda, i32, i64, ld128, st128, u32

TOKENS = HEADS = ROW = WIDE = VALUES = 0  # put in by the specialisation, as is the type
WORD = u32


def copy_blocks(
    key_source: Pointer["WORD"],
    value_source: Pointer["WORD"],
    key_destination: Pointer["WORD"],
    value_destination: Pointer["WORD"],
    pairs: Pointer[i32],  # [num_pairs, 2] source, destination
    source_layer_stride: i64,
    source_block_stride: i64,
    source_token_stride: i64,
    source_head_stride: i64,
    destination_layer_stride: i64,
    destination_block_stride: i64,
    destination_token_stride: i64,
    destination_head_stride: i64,
):
    """``destination[pair[1]] = source[pair[0]]`` in every layer."""
    pair, layer = i64(cuda.blockIdx.y), i64(cuda.blockIdx.z)
    source, destination = i64(pairs[2 * pair]), i64(pairs[2 * pair + 1])
    i = i64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    if i >= TOKENS * HEADS * ROW or source < 0:
        return
    row, word = i // ROW, i % ROW
    token, head = row // HEADS, row % HEADS
    source = (
        layer * source_layer_stride
        + source * source_block_stride
        + token * source_token_stride
        + head * source_head_stride
    )
    destination = (
        layer * destination_layer_stride
        + destination * destination_block_stride
        + token * destination_token_stride
        + head * destination_head_stride
    )
    move(key_source, source, key_destination, destination, word)
    if VALUES:
        move(value_source, source, value_destination, destination, word)


def move(source_cache: Pointer["WORD"], source: i64, cache: Pointer["WORD"], at: i64, word: i64):
    """One word of a row."""
    if WIDE:
        a, b, c, d = ld128(source_cache, source + 4 * word)
        st128(cache, at + 4 * word, a, b, c, d)
    else:
        cache[at + word] = source_cache[source + word]
