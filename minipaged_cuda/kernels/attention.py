"""Rung 4: attention on tensor cores; decode, verify, append and chunked prefill are one text.

The grid is (num_splits, num_kv_heads, tiles), the number of threads 128. With ONE_QUERY the tiles
are ``num_tokens * ceil(G / 16)``, else ``num_tokens * G // 16 + num_seqs + 1``. Caches, query and
output are words of two 16-bit numbers (or four float8), strides count words; every head of a token
begins at a multiple of 16 bytes, and BS is a multiple of 16. With SPLIT the output is float32, the
lse in base 2, and ``merge`` puts the splits together.

Rung 3 multiplies number by number, so G heads cost G times the instructions of one. Here one
instruction multiplies 16 rows at once: a tile is 16 rows (query token, head of the group), its keys
and values are read once, straight into the registers that are multiplied, and a row may see less of
them than its neighbours.

::

    row 0   query 0, head 0  |xxxxxxxxxxxxxxxx|xxxxxxxxxxxxxxxx|xxxxxxx         |      G = 2
    row 1   query 0, head 1  |xxxxxxxxxxxxxxxx|xxxxxxxxxxxxxxxx|xxxxxxx         |      causal
    row 2   query 1, head 0  |xxxxxxxxxxxxxxxx|xxxxxxxxxxxxxxxx|xxxxxxxx        |
     ...                          16 tokens: warp 0    warp 1        warp 2

The tiles of 16 tokens that any row sees go round the warps of all splits; each warp has an online
softmax of its own, and the end of the kernel merges the four of a CTA through shared memory.

**What a lane holds.** ``mma.sync.m16n8k16`` adds A [16, 16] times B [16, 8] to C [16, 8]. Lane
``4 * quad + pair`` holds of them

::

            A                            B                               C
            columns 2 pair, 2 pair + 1   rows 2 pair, 2 pair + 1         columns 2 pair, 2 pair + 1
            and these + 8                and these + 8                   of rows quad and quad + 8
            of rows quad and quad + 8    of column quad

    Q K^T   row of the tile x column     column x token                  row x token
    P V     row of the tile x token      token x column of the output    row x column of the output

Two things make staging and shuffling unnecessary. C of ``Q K^T`` for tokens 0-7 and 8-15 lies just
as A of ``P V`` must: weights never leave their lane. And a sum may be taken in any order, so the 16
columns of a step need not be neighbours, as long as Q and K agree on them. B asks a lane for two
words that lie 16 bytes apart. We load 16 bytes in a row, and call them its columns of two steps:

::

    a key, columns   0 1 2 3 4 5 6 7 | 8 .. 15 | 16 .. 23 | 24 .. 31 |    one load of four lanes
                     pair 0          | pair 1  | pair 2   | pair 3   |    64 bytes of each of 8 keys
    step 0           a a b b         | a a b b | a a b b  | a a b b  |    a: 2 pair, 2 pair + 1
    step 1                   a a b b |  ...                               b: the same + 8

The columns of the output may be in any order as well. A lane loads columns ``8 quad ..
8 quad + 7`` of the four tokens whose weights it holds, and product i takes column i of each:

::

    token 2 pair       v0 v1 v2 v3 v4 v5 v6 v7      B of product 0 is (v0, w0), and the same of the
    token 2 pair + 1   w0 w1 w2 w3 w4 w5 w6 w7      tokens 2 pair + 8, + 9: a byte permutation each

Where a row ends with 64 bytes in place of 128, lanes load half as much. A float8 load holds 16
columns, four steps or sixteen products; they are widened to float16, exactly, as are queries in
bfloat16, which must not exceed 65504.

**What is not read.** A lane asks for a token only if some row of the tile sees it: 0 times NaN is
NaN, and an unseen slot may hold anything. Where it asks for none its words stay those of an earlier
tile, or zeros, and their weights are 0. So nothing else of K and V is read, and with one query of
up to 16 heads nothing twice. (A NaN that one row of a tile sees does reach those that do not.)

**What it costs.** For D = 128, 16 bits and one query of up to 8 heads, 16 tokens are 8 KiB in 16
loads and 32 products, among some 260 instructions (sm_90). 168 registers let three CTAs share an
SM; so the query is in shared memory, as it would take 32 more. At D = 256 a lane has no room for
keys and values at once: there values take the place of keys that have been multiplied. Weights are
rounded to 16 bits before they meet the values; all sums are float32, and a row's bits depend on its
own query, keys and position, and on the number of splits: not on the chunk or batch it came in.
"""

from minipaged_cuda.kernels.common import LOG2E, NEG
from minipaged_cuda.kernels.fragments import (
    key_pair,
    merge_weights,
    put_query,
    put_sums,
    quad_sum,
    rescaled,
    value_pair,
    write_lse,
    write_piece,
)
from minipaged_cuda.kernels.tiles import find_tile, is_between, query_and_head, softmax, view_of
from minipaged_cuda.primitives import (
    Pointer,
    cuda,
    f32,
    i32,
    i64,
    ld64,
    ld128,
    lds128,
    registers,
    static,
    u32,
)
from minipaged_cuda.primitives import mma_bf16 as mma

# Put in by the specialisation; `fragments.layout` gives the second line.
G = BS = ONE_QUERY = SPLIT = WINDOW = ALIBI = SINKS = SCALES = 0
D = PAIRS = STEP = KEY = VALUE = VALUES = WORDS = LATE = 0


def attention(
    out: Pointer[u32],  # [num_tokens, num_heads, D], with SPLIT float32 [.., num_splits, D]
    lse: Pointer[f32],  # [num_tokens, num_heads], with SPLIT [.., num_splits]
    query: Pointer[u32],  # [num_tokens, num_heads, D]
    key_cache: Pointer[u32],  # [num_blocks, BS, num_kv_heads, D]
    value_cache: Pointer[u32],
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
    window: i32,
    softcap: f32,
    alibi_slopes: Pointer[f32],  # [num_heads]
    sinks: Pointer[f32],  # [num_heads]
    k_scale: Pointer[f32],  # [num_kv_heads]
    v_scale: Pointer[f32],  # [num_kv_heads]
):
    """Attention of 16 rows over one split of what they see."""
    split, kv_head = i32(cuda.blockIdx.x), i32(cuda.blockIdx.y)
    thread = i32(cuda.threadIdx.x)
    warp, lane = i32(thread >> 5), i32(thread & 31)
    quad, pair = i32(lane >> 2), i32(lane & 3)

    # Whose rows, and what they see: the tile from ``first`` to ``end``, this lane's two rows less.
    sequence, begin, num_queries, first_row = find_tile(
        query_start_loc, num_tokens, num_seqs, i32(cuda.blockIdx.z)
    )
    end_row = min(i32(first_row + 16), i32(num_queries * G))
    if first_row >= end_row:
        return  # all threads of the CTA do
    seq_len = seq_lens[sequence] if sequence < num_seqs else i32(0)
    _, first, _ = view_of(first_row, num_queries, seq_len, window)
    _, _, end = view_of(i32(end_row - 1), num_queries, seq_len, window)
    low_row, high_row = i32(first_row + quad), i32(first_row + quad + 8)
    low_view = view_of(low_row, num_queries, seq_len, window)
    high_view = view_of(high_row, num_queries, seq_len, window)
    low_slope, high_slope, value_scale = f32(0), f32(0), f32(1)
    if ALIBI:
        _, low_head = query_and_head(min(low_row, i32(end_row - 1)), kv_head)
        _, high_head = query_and_head(min(high_row, i32(end_row - 1)), kv_head)
        low_slope, high_slope = alibi_slopes[low_head], alibi_slopes[high_head]
    if SCALES:
        scale, value_scale = scale * k_scale[kv_head], v_scale[kv_head]

    fragments = cuda.shared.array(D * 8, u32, alignment=16)
    strides, rows = (query_token_stride, query_head_stride), (first_row, end_row)
    put_query(fragments, query, strides, begin, rows, kv_head, warp, lane)
    cuda.syncthreads()

    low, low_rescale, p0, p2 = (NEG, f32(0)), f32(1), u32(0), u32(0)
    high, high_rescale, p1, p3 = (NEG, f32(0)), f32(1), u32(0), u32(0)
    sums = registers(D // 8, (f32(0), f32(0), f32(0), f32(0)))  # C of product i
    words = registers(WORDS, u32(0))  # of two keys, KEY each, and from VALUES on of four values
    my_key = kv_head * key_head_stride + quad * key_token_stride + 4 * pair
    my_value = kv_head * value_head_stride + 2 * pair * value_token_stride
    tile, step = i32(split * 4 + warp), i32(4 * i32(cuda.gridDim.x))
    if WINDOW:  # the first of this warp's tiles that is not behind the window
        tile = i32(tile + ((first >> 4) - tile + step - 1) // step * step)
    while tile * 16 < end:
        block = i64(block_tables[sequence * table_stride + tile // (BS // 16)])
        slot = i64(tile % (BS // 16) * 16)

        key = block * key_block_stride + slot * key_token_stride + my_key
        for t in static(2):
            if is_between(first, i32(tile * 16 + quad + 8 * t), end):
                at = key + 8 * t * key_token_stride
                for w in static(KEY * t, KEY * t + KEY, 4):
                    words[w], words[w + 1], words[w + 2], words[w + 3] = ld128(
                        key_cache, at + 4 * (w - KEY * t)
                    )

        token = i32(tile * 16 + 2 * pair)  # this lane has the scores of token + 0, 1, 8, 9
        value = block * value_block_stride + slot * value_token_stride + my_value
        left = right = (f32(0), f32(0), f32(0), f32(0))
        for stage in static(2):  # all loads are under way before the first product, if they fit
            if stage == LATE:
                for t in static(4):
                    if is_between(first, i32(token + t // 2 * 8 + t % 2), end):
                        at = value + (t // 2 * 8 + t % 2) * value_token_stride
                        for w in static(VALUES + VALUE * t, VALUES + VALUE * t + VALUE - 3, 4):
                            words[w], words[w + 1], words[w + 2], words[w + 3] = ld128(
                                value_cache, at + 8 * (w - VALUES - VALUE * t) + 4 * quad
                            )
                        if VALUE % 4:
                            (
                                words[VALUES + VALUE * t + VALUE - 2],
                                words[VALUES + VALUE * t + VALUE - 1],
                            ) = ld64(value_cache, at + 8 * VALUE - 16 + 2 * quad)
            if stage == 0:
                for w in static(0, KEY, STEP):
                    a0, a1, a2, a3 = lds128(fragments, (w // STEP * 32 + lane) * 4)
                    b0, b1 = key_pair(words[w], words[w + STEP - 1])
                    left = mma(left, a0, a1, a2, a3, b0, b1)
                    b0, b1 = key_pair(words[KEY + w], words[KEY + w + STEP - 1])
                    right = mma(right, a0, a1, a2, a3, b0, b1)

        low, low_rescale, p0, p2 = softmax(
            low, left[:2] + right[:2], token, low_view, (scale, softcap, low_slope)
        )
        if not ONE_QUERY or G > 8:  # there are rows 8 to 15
            high, high_rescale, p1, p3 = softmax(
                high, left[2:] + right[2:], token, high_view, (scale, softcap, high_slope)
            )
        for w in static(VALUES, VALUES + VALUE):
            for i in static(2 * PAIRS):
                b0 = value_pair(words[w], words[w + VALUE], i)
                b1 = value_pair(words[w + 2 * VALUE], words[w + 3 * VALUE], i)
                c = rescaled(sums[2 * PAIRS * (w - VALUES) + i], low_rescale, high_rescale)
                sums[2 * PAIRS * (w - VALUES) + i] = mma(c, p0, p1, p2, p3, b0, b1)
        tile = i32(tile + step)

    # The four warps' sums meet; thread t reads number t of the 128 in each C.
    tops, totals = cuda.shared.array(64, f32), cuda.shared.array(64, f32)
    parts = cuda.shared.array(4096, f32)
    low_total, high_total = quad_sum(low[1]), quad_sum(high[1])
    if pair == 0:
        tops[warp * 16 + quad], totals[warp * 16 + quad] = low[0], low_total
        tops[warp * 16 + quad + 8], totals[warp * 16 + quad + 8] = high[0], high_total
    cuda.syncthreads()
    row, chunk = i32(quad + 8 * (warp >> 1)), i32(2 * pair + (warp & 1))
    query_token, head = query_and_head(i32(first_row + row), kv_head)
    is_there, sink = first_row + row < end_row, NEG
    if SINKS and not SPLIT and is_there and sequence < num_seqs:
        sink = sinks[head] * LOG2E
    weights, top, total = merge_weights(tops, totals, row, sink, value_scale)
    at = (i64(begin + query_token) * num_kv_heads * G + head) * cuda.gridDim.x + split
    if is_there and chunk == 0:
        write_lse(lse, at, top, total)
    for piece in static((D + 63) // 64):
        if piece > 0:
            cuda.syncthreads()  # the piece before this one has been read
        for i in static(8):
            if 8 * piece + i < D // 8:
                put_sums(parts, warp, i, lane, sums[8 * piece + i])
        cuda.syncthreads()
        if is_there:
            write_piece(out, at * D, piece, parts, weights, chunk, thread)
