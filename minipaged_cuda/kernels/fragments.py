"""How a warp holds the matrices of the tensor-core kernel: query, keys, values, sums.

Knows lanes and words, not positions: those are in ``kernels.tiles``. What a lane holds of an
instruction's A, B and C is drawn in ``kernels.attention``.
"""

from minipaged_cuda.kernels.common import NEG, natural_lse
from minipaged_cuda.kernels.tiles import query_and_head
from minipaged_cuda.primitives import (
    FULL_MASK,
    Pointer,
    bf16x2_high,
    bf16x2_low,
    cuda,
    e4m3x2_high_to_f16x2,
    e4m3x2_to_f16x2,
    ex2,
    f32,
    f32_bits,
    i32,
    i64,
    ld128,
    lg2,
    pack_f16x2,
    prmt,
    registers,
    st128,
    static,
    sts128,
    u32,
)
from minipaged_cuda.primitives import pack_bf16x2 as pack_out

D = PAIRS = TO_FLOAT16 = SPLIT = 0  # put in by the specialisation

MULTIPLIED = {"float16": ("mma_f16", "pack_f16x2"), "bfloat16": ("mma_bf16", "pack_bf16x2")}

# Selectors of prmt: an element of one word beside the same element of another.
LOW_HALVES, HIGH_HALVES = u32(0x5410), u32(0x7632)
LOW_BYTES, HIGH_BYTES = u32(0x5140), u32(0x7362)  # two such pairs


def layout(head_dim: int, query_type: str, cache_type: str) -> dict[str, int | str]:
    """The constants that follow from sizes and types: which words a lane holds.

    Args:
        head_dim: A multiple of 32, or of 64 for a float8_e4m3fn cache; at most 256.
        query_type: "float16" or "bfloat16"; of the output, too.
        cache_type: The same, or "float8_e4m3fn".
    """
    is_float8 = cache_type == "float8_e4m3fn"
    row_words = head_dim // (4 if is_float8 else 2)
    is_late = row_words > 64
    mma, pack = MULTIPLIED["float16" if is_float8 else query_type]
    return {
        "D": head_dim,
        "PAIRS": 2 if is_float8 else 1,  # of numbers in a word
        "STEP": 1 if is_float8 else 2,  # words of a key that a lane needs in one step
        "KEY": row_words // 4,  # words of a key that a lane loads,
        "VALUE": row_words // 8,  # of a value,
        "VALUES": 0 if is_late else row_words // 2,  # those of values beginning here
        "LATE": int(is_late),  # whether they take the place of the keys
        "WORDS": row_words // 2 if is_late else row_words,
        "TO_FLOAT16": int(is_float8 and query_type == "bfloat16"),
        "mma": mma,
        "pack": pack,
        "pack_out": MULTIPLIED[query_type][1],
    }


# --- what is multiplied ------------------------------------------------------------------------


def put_query(fragments, query: Pointer[u32], strides, begin: i32, rows, kv_head: i32, warp, lane):
    """Leave the A fragments of all steps in shared memory, a lane's four words side by side.

    A lane loads 8 columns of two rows at a time, which is what it needs in two steps. ``rows`` is
    ``(first, end)``; beyond the end there are zeros.
    """
    low_row, high_row = i32(rows[0] + (lane >> 2)), i32(rows[0] + (lane >> 2) + 8)
    low_query, low_head = query_and_head(low_row, kv_head)
    high_query, high_head = query_and_head(high_row, kv_head)
    low = i64(begin + low_query) * strides[0] + low_head * strides[1]
    high = i64(begin + high_query) * strides[0] + high_head * strides[1]
    for i in static((D + 127) // 128):
        chunk = warp + 4 * i
        at = chunk // PAIRS * (16 * PAIRS) + (lane & 3) * (4 * PAIRS) + chunk % PAIRS * 4
        if chunk < D // 32:
            a0, a1, a2, a3 = load_or_zeros(query, low + at, low_row < rows[1])
            b0, b1, b2, b3 = load_or_zeros(query, high + at, high_row < rows[1])
            sts128(fragments, (chunk * 64 + lane) * 4, a0, b0, a1, b1)
            sts128(fragments, (chunk * 64 + lane + 32) * 4, a2, b2, a3, b3)


def load_or_zeros(query: Pointer[u32], at: i64, is_there):
    """Four words of the query, as the type that is multiplied."""
    a, b, c, d = u32(0), u32(0), u32(0), u32(0)
    if is_there:
        a, b, c, d = ld128(query, at)
    if TO_FLOAT16:
        return to_float16(a), to_float16(b), to_float16(c), to_float16(d)
    return a, b, c, d


def to_float16(word: u32):
    """Two bfloat16 as two float16; beyond 65504 they become infinite."""
    return pack_f16x2(bf16x2_low(word), bf16x2_high(word))


def key_pair(first: u32, second: u32):
    """B of one step: two words, or the two halves of one, widened."""
    if PAIRS == 2:
        return e4m3x2_to_f16x2(first), e4m3x2_high_to_f16x2(second)
    return first, second


def value_pair(word: u32, next_token: u32, i: i32):
    """Half of B of one product: number i of a token's word beside that of the next token."""
    if PAIRS == 2:
        both = prmt(word, next_token, LOW_BYTES if i < 2 else HIGH_BYTES)
        return e4m3x2_high_to_f16x2(both) if i % 2 else e4m3x2_to_f16x2(both)
    return prmt(word, next_token, HIGH_HALVES if i else LOW_HALVES)


# --- what is summed ----------------------------------------------------------------------------


def rescaled(sums, low: f32, high: f32):
    """C of a product, its two rows times a factor each."""
    return sums[0] * low, sums[1] * low, sums[2] * high, sums[3] * high


def quad_sum(x: f32):
    """The sum over the four lanes that share a row."""
    x += cuda.shfl_xor_sync(FULL_MASK, x, 1)
    return x + cuda.shfl_xor_sync(FULL_MASK, x, 2)


def merge_weights(tops, totals, row: i32, sink: f32, v_scale: f32):
    """``(weights, top, total)``: what each warp's sums count for, and the softmax of the row.

    ``sink`` is one more score, NEG if there is none.
    """
    a, b, c, d = tops[row], tops[16 + row], tops[32 + row], tops[48 + row]
    top = max(max(max(a, b), max(c, d)), sink)
    a, b, c, d = ex2(a - top), ex2(b - top), ex2(c - top), ex2(d - top)
    total = (a * totals[row] + b * totals[16 + row]) + (c * totals[32 + row] + d * totals[48 + row])
    if sink > NEG:
        total += ex2(sink - top)
    share = f32(0) if total <= f32(0) else v_scale / total
    return (a * share, b * share, c * share, d * share), top, total


def put_sums(parts, warp: i32, i: i32, lane: i32, sums):
    """Leave C of a warp's product i where ``merged`` reads it, every lane in a bank of its own."""
    for j in static(4):
        parts[((warp * 8 + i) * 4 + j) * 32 + lane] = sums[j]


def merged(parts, weights, i: i32, thread: i32):
    """Number ``thread`` of the 128 in C of product i, of all warps together."""
    low = weights[0] * parts[i * 128 + thread] + weights[1] * parts[(8 + i) * 128 + thread]
    high = weights[2] * parts[(16 + i) * 128 + thread] + weights[3] * parts[(24 + i) * 128 + thread]
    return low + high


def write_piece(out: Pointer[u32], at: i64, piece: i32, parts, weights, chunk: i32, thread: i32):
    """Write the columns of a row that eight products computed, neighbours all, 16 bytes at a time.

    ``at`` is the row's first element in the output, ``chunk`` the place of the lane that loaded
    these columns of the values.
    """
    column = (piece // PAIRS * 64 + chunk * 8) * PAIRS + piece % PAIRS * 8
    if piece // PAIRS >= D // (64 * PAIRS):  # loads of 8 bytes
        column = piece * 64 + chunk * 4 * PAIRS
    if D % 64 == 0 or piece < D // 64:
        write_8(out, at + column, parts, weights, thread)
    else:
        write_4(out, at + column, parts, weights, thread)


def write_8(out: Pointer[u32], at: i64, parts, weights, thread: i32):
    """One number of each of eight products, from element ``at`` of the output on."""
    x = registers(8, f32(0))
    for i in static(8):
        x[i] = merged(parts, weights, i, thread)
    if SPLIT:
        st128(out, at, f32_bits(x[0]), f32_bits(x[1]), f32_bits(x[2]), f32_bits(x[3]))
        st128(out, at + 4, f32_bits(x[4]), f32_bits(x[5]), f32_bits(x[6]), f32_bits(x[7]))
    else:
        a, b = pack_out(x[0], x[1]), pack_out(x[2], x[3])
        c, d = pack_out(x[4], x[5]), pack_out(x[6], x[7])
        st128(out, at >> 1, a, b, c, d)


def write_4(out: Pointer[u32], at: i64, parts, weights, thread: i32):
    """The same of four products: D is an odd multiple of 32, and these are the last."""
    x = registers(4, f32(0))
    for i in static(4):
        x[i] = merged(parts, weights, i, thread)
    if SPLIT:
        st128(out, at, f32_bits(x[0]), f32_bits(x[1]), f32_bits(x[2]), f32_bits(x[3]))
    else:
        out[at >> 1] = pack_out(x[0], x[1])
        out[(at >> 1) + 1] = pack_out(x[2], x[3])


def write_lse(lse: Pointer[f32], at: i64, top: f32, total: f32):
    """Write the logarithm of a row's sum of exponentials: in base 2 for a split, else natural."""
    if SPLIT:
        lse[at] = NEG if total <= f32(0) else top + lg2(total)
    else:
        lse[at] = natural_lse(top, total)
