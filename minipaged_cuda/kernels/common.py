"""What the attention kernels share: whose row this is, which keys it sees, what a score becomes.

Knows positions, not where keys are stored. Sums are kept in base 2, relative to the largest score,
because a card has a unit for 2**x and none for e**x; ``NEG`` is the largest score of no key at all.
"""

from minipaged_cuda.primitives import Pointer, ex2, f32, i32, i64, lg2, rcp

CAUSAL, WINDOW, SOFTCAP, ALIBI, ONE_QUERY = 1, 0, 0, 0, 0  # put in by the specialisation

NEG = f32(-1e30)  # finite, as NEG - NEG must not be NaN
MINUS_INFINITY = f32(float("-inf"))
LOG2E = f32(1.4426950408889634)
LN2 = f32(0.6931471805599453)
TWO_LOG2E = f32(2.8853900817779268)
TILE = 16  # splits begin at multiples of this many tokens


def find_sequence(query_start_loc: Pointer[i32], num_seqs: i32, token: i64):
    """The sequence whose rows of query include ``token``, or -1: a binary search.

    ::

        query_start_loc   0  3  3  7         token  0 1 2 3 4 5 6 7
        sequence           0  1  2                  0 0 0 2 2 2 2 -1
    """
    low, high = i64(0), i64(num_seqs) + 1  # how many sequences begin at or before the token
    while low < high:
        middle = (low + high) >> 1
        if query_start_loc[middle] <= token:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low <= num_seqs else i64(-1)


def visible_keys(
    token: i64, num_seqs: i32, seq_lens: Pointer[i32], query_start_loc: Pointer[i32], window: i32
):
    """``(sequence, position, first, end)``: the row's place, and the keys first..end-1 it sees.

    ``end <= first`` where there are none; ``sequence`` is -1 for a row that belongs to nobody.
    """
    sequence = i64(token)
    if ONE_QUERY:
        if token >= num_seqs:
            sequence = i64(-1)
    else:
        sequence = find_sequence(query_start_loc, num_seqs, token)
    if sequence < 0:
        return i64(-1), i64(0), i64(0), i64(0)
    length = i64(seq_lens[sequence])
    position = length - 1
    if not ONE_QUERY:  # the last row of the sequence is its last token
        position = length - query_start_loc[sequence + 1] + token
    first, end = i64(0), length
    if WINDOW:
        first = max(first, position - window + 1)
    if CAUSAL:
        end = position + 1
    return sequence, position, first, end


def share(first: i64, end: i64, part: i64, num_parts: i64):
    r"""The keys of one split: all tiles that hold visible keys, cut evenly into ``num_parts`` runs.

    ::

        first = 21          end = 75, num_parts = 2
        |----|-xxx|xxxx|xxxx|xxx-|          tiles of 16, x is seen
              \___ 0 __/\__ 1 __/
    """
    tile = first // TILE
    num_tiles = max((end + TILE - 1) // TILE - tile, i64(0))
    begin = (tile + num_tiles * part // num_parts) * TILE
    stop = (tile + num_tiles * (part + 1) // num_parts) * TILE
    return max(first, begin), min(end, stop)


def base_2_score(score: f32, softcap: f32, slope: f32, distance: i64):
    """A scaled score as the softmax takes it, in base 2: capped, then ALiBi."""
    if SOFTCAP:
        score = softcap * tanh(score / softcap)
    if ALIBI:
        score += slope * f32(distance)
    return score * LOG2E


def tanh(x: f32):
    """The hyperbolic tangent to 5e-7 of its value: a series near 0, where the formula cancels."""
    size, square = abs(x), x * x
    if size < f32(0.6):  # minimax in x**2, to 8e-8
        series = f32(-0.052231103) + square * f32(0.015640474)
        series = f32(-0.33332622) + square * (f32(0.13313521) + square * series)
        return x + x * square * series
    far = f32(1) - f32(2) * rcp(ex2(size * TWO_LOG2E) + f32(1))
    return far if x > f32(0) else -far


def meet(largest: f32, total: f32, score: f32):
    """One more key: ``(largest, total, rescale, weight)``, what sums so far and the key count for.

    A score of NEG is no key.
    """
    larger = max(largest, score)
    rescale = ex2(largest - larger)
    weight = f32(0) if score <= NEG else ex2(score - larger)  # so asked, NaN is not "no key"
    return larger, total * rescale + weight, rescale, weight


def natural_lse(largest: f32, total: f32):
    """The natural logarithm of ``total * 2**largest``; -inf where there was no key."""
    return MINUS_INFINITY if total <= f32(0) else (largest + lg2(total)) * LN2
