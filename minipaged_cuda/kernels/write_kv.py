"""Stores new keys and values in their slots; rows are opaque words unless they are converted.

The grid is (num_tokens,), the number of threads anything: the threads of a CTA share the heads and
words of a token. A slot of -1 is skipped. ``MODE`` says what moves:

- 0: ``ROW`` and ``VALUE_ROW`` times 16 bytes a head; all pointers ``u32``, strides in words;
- 1: as many elements of equal type and any alignment, their bits untouched (``NEW`` = ``KV``);
- 2: as many numbers, rounded to the cache's type by ``store_kv``;
- 3: the same into float8 e4m3, at most 448 in size.

::

    token          0    1    2    3           slot = block * BS + offset
    slot_mapping   9   -1    4    5           BS = 4: token 0 -> block 2, offset 1
"""

from minipaged_cuda.primitives import (
    Pointer,
    cuda,
    f32,
    i32,
    i64,
    ld128,
    pack_e4m3x2,
    st128,
    u8,
    u32,
)
from minipaged_cuda.primitives import load_float32 as load_new
from minipaged_cuda.primitives import store_float32 as store_kv

BS = ROW = VALUE_ROW = MODE = SCALES = 0  # put in by the specialisation, as are the types
NEW = KV = u32


def write_kv(
    key: Pointer["NEW"],  # [num_tokens, num_kv_heads, D]
    value: Pointer["NEW"],
    key_cache: Pointer["KV"],  # [num_blocks, BS, num_kv_heads, D]
    value_cache: Pointer["KV"],
    slot_mapping: Pointer[i64],  # [num_tokens], one every slot_stride
    num_kv_heads: i32,
    slot_stride: i64,
    new_key_token_stride: i64,
    new_key_head_stride: i64,
    new_value_token_stride: i64,
    new_value_head_stride: i64,
    key_block_stride: i64,
    key_token_stride: i64,
    key_head_stride: i64,
    value_block_stride: i64,
    value_token_stride: i64,
    value_head_stride: i64,
    k_scale: Pointer[f32],  # [num_kv_heads], where SCALES: stored * k_scale = key
    v_scale: Pointer[f32],
):
    """``key_cache[slot] = key[token]``, and the same of the values."""
    token = i64(cuda.blockIdx.x)
    slot = slot_mapping[token * slot_stride]
    if slot < 0:
        return
    block, offset = slot // BS, slot % BS
    key_from = token * new_key_token_stride
    value_from = token * new_value_token_stride
    key_to = block * key_block_stride + offset * key_token_stride
    value_to = block * value_block_stride + offset * value_token_stride
    i = i64(cuda.threadIdx.x)
    while i < num_kv_heads * ROW:
        head, word = i // ROW, i % ROW
        source = key_from + head * new_key_head_stride
        move(key, source, key_cache, key_to + head * key_head_stride, word, k_scale, head)
        i += cuda.blockDim.x
    i = i64(cuda.threadIdx.x)
    while i < num_kv_heads * VALUE_ROW:
        head, word = i // VALUE_ROW, i % VALUE_ROW
        source = value_from + head * new_value_head_stride
        move(value, source, value_cache, value_to + head * value_head_stride, word, v_scale, head)
        i += cuda.blockDim.x


def move(
    new: Pointer["NEW"],
    source: i64,
    cache: Pointer["KV"],
    destination: i64,
    word: i64,
    scale: Pointer[f32],
    head: i64,
):
    """One word of a row, or one number of it."""
    if MODE == 0:
        a, b, c, d = ld128(new, source + 4 * word)
        st128(cache, destination + 4 * word, a, b, c, d)
    elif MODE == 1:
        cache[destination + word] = new[source + word]
    else:
        x = load_new(new, source + word)
        if SCALES:
            x = x / scale[head]
        if MODE == 2:
            store_kv(cache, destination + word, x)
        else:
            cache[destination + word] = u8(pack_e4m3x2(x, f32(0)) & u32(0xFF))
