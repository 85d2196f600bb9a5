"""Whose 16 rows a CTA of the tensor-core kernel computes, what they see, and their softmax.

Knows rows, positions and scores, not how a warp holds a matrix: that is ``kernels.fragments``. A
row is one head of one query token, ``row = query * G + head``: 16 of them may be the heads of one
token or of several, and meet each key together.
"""

from minipaged_cuda.kernels.common import base_2_score
from minipaged_cuda.primitives import FULL_MASK, Pointer, cuda, ex2, f32, i32, i64
from minipaged_cuda.primitives import pack_bf16x2 as pack

G = ONE_QUERY = CAUSAL = WINDOW = 0  # put in by the specialisation

HIDDEN = f32(-3e38)  # the score of an unseen key: so far below NEG that its weight is always 0


def find_tile(query_start_loc: Pointer[i32], num_tokens: i32, num_seqs: i32, tile: i32):
    """``(sequence, begin, num_queries, first_row)``; the tile is surplus if it has no such row.

    Sequence s has the tiles from ``query_start_loc[s] * G // 16 + s`` on: room for all its rows, so
    nobody has to count tiles before the launch, and few are surplus. The rows of query that belong
    to no sequence are one more sequence, which has no keys.

    ::

        G = 4    query_start_loc   0  1  8        num_tokens = 9: one row more
                 first tile        0  1  4
                 rows             [4][28]  [4]    tile 3 is surplus
    """
    if ONE_QUERY:
        token = i32(tile // ((G + 15) // 16))
        return min(token, num_seqs), token, i32(1), i32(tile % ((G + 15) // 16) * 16)
    low, high = i32(0), num_seqs
    while low < high:
        middle = i32((low + high + 1) >> 1)
        if first_tile(query_start_loc, middle) <= tile:
            low = middle
        else:
            high = i32(middle - 1)
    begin, first_row = query_start_loc[low], (tile - first_tile(query_start_loc, low)) * 16
    end = query_start_loc[low + 1] if low < num_seqs else num_tokens
    return low, begin, i32(end - begin), i32(first_row)


def first_tile(query_start_loc: Pointer[i32], sequence: i32):
    """The first of the tiles that are set aside for a sequence."""
    return i32((i64(query_start_loc[sequence]) * G >> 4) + sequence)


def query_and_head(row: i32, kv_head: i32):
    """The query token of its sequence that a row belongs to, and its head."""
    query = i32(0) if ONE_QUERY else i32(row // G)
    return query, i32(kv_head * G + row - query * G)


def view_of(row: i32, num_queries: i32, seq_len: i32, window: i32):
    """``(position, first, end)``: the row's query stands there, and sees keys first .. end - 1."""
    query, _ = query_and_head(row, i32(0))
    position, first, end = i32(seq_len - num_queries + query), i32(0), seq_len
    if WINDOW:
        first = i32(max(i64(position) - window + 1, i64(0)))
    if CAUSAL:
        end = min(end, i32(position + 1))
    return position, first, end


def is_between(first: i32, token: i32, end: i32):
    """Whether the token is one of first .. end - 1; without a window first is 0."""
    if WINDOW:
        return first <= token and token < end
    return token < end


def softmax(state, products, token: i32, view, options):
    """A row meets 16 more keys: ``(state, rescale, weights, weights)``.

    The state is the largest score so far and the sum of weights relative to it: of the row, but the
    sum only of this lane's keys. ``rescale`` makes what was summed before relative to the new one.

    Args:
        state: Of this row.
        products: With the keys of the tokens ``token + 0, 1, 8, 9``; the lane's three neighbours
            hold the other twelve.
        token: The first of them.
        view: Of this row, see `view_of`.
        options: scale, softcap, and the slope of this row.
    """
    a = score(products[0], token, view, options)
    b = score(products[1], i32(token + 1), view, options)
    c = score(products[2], i32(token + 8), view, options)
    d = score(products[3], i32(token + 9), view, options)
    top = max(max(a, b), max(c, d))
    top = max(top, cuda.shfl_xor_sync(FULL_MASK, top, 1))
    top = max(top, cuda.shfl_xor_sync(FULL_MASK, top, 2))
    top = max(top, state[0])
    rescale = ex2(state[0] - top)
    a, b, c, d = ex2(a - top), ex2(b - top), ex2(c - top), ex2(d - top)
    total = state[1] * rescale + ((a + b) + (c + d))
    return (top, total), rescale, pack(a, b), pack(c, d)


def score(product: f32, token: i32, view, options):
    """The score of a key in base 2, or HIDDEN."""
    position, first, end = view
    scale, softcap, slope = options
    if is_between(first, token, end):
        return base_2_score(product * scale, softcap, slope, i32(token - position))
    return HIDDEN
