"""The part of a row that one lane holds: a tuple of ELEMENTS neighbouring numbers.

Knows how K and V are stored, not where. With WIDE = 1 a part is 16 bytes of ``Pointer[u32]``, of
which ``low`` and ``high`` take a word apart; with WIDE = 0 it is one element, read by ``load_kv``.
"""

# ruff: noqa: RUF005  Numba adds tuples, it does not unpack them.
from minipaged_cuda.primitives import (
    FULL_MASK,
    Pointer,
    bits_f32,
    cuda,
    e4m3x2_high_to_f16x2,
    e4m3x2_to_f16x2,
    f32,
    i64,
    ld128,
    static,
    u32,
)
from minipaged_cuda.primitives import f16x2_high as high
from minipaged_cuda.primitives import f16x2_low as low
from minipaged_cuda.primitives import load_float32 as load_kv
from minipaged_cuda.primitives import load_float32 as load_query

WIDE = PER_WORD = ELEMENTS = LANES = 0  # put in by the specialisation, as are the types
QUERY = KV = f32


def zeros():
    """A part of zeros."""
    part = (f32(0),)
    for _ in static(1, ELEMENTS):
        part = part + (f32(0),)
    return part


def load_part(query: Pointer["QUERY"], at: i64, factor: f32):
    """A part of the query, multiplied."""
    part = (factor * load_query(query, at),)
    for e in static(1, ELEMENTS):
        part = part + (factor * load_query(query, at + e),)
    return part


def no_words():
    """What `load_words` would return, without a load."""
    if WIDE:
        return u32(0), u32(0), u32(0), u32(0)
    else:
        return (f32(0),)


def load_words(cache: Pointer["KV"], at: i64):
    """A part of K or V as it is stored: four words, or one number."""
    if WIDE:
        return ld128(cache, at)
    else:
        return (load_kv(cache, at),)


def numbers(words):
    """The same as float32."""
    if WIDE:
        return widen(words[0]) + widen(words[1]) + widen(words[2]) + widen(words[3])
    else:
        return words


def widen(word: u32):
    """The numbers in a word: a float32, two float16 or bfloat16, or four float8."""
    if PER_WORD == 1:
        return (bits_f32(word),)
    elif PER_WORD == 2:
        return low(word), high(word)
    else:
        first, second = e4m3x2_to_f16x2(word), e4m3x2_high_to_f16x2(word)
        return low(first), high(first), low(second), high(second)


def dot(a, b):
    """The sum of the products of two parts."""
    total = a[0] * b[0]
    for e in static(1, ELEMENTS):
        total += a[e] * b[e]
    return total


def weighted(a, weight_a: f32, b, weight_b: f32):
    """``weight_a * a + weight_b * b``."""
    part = (weight_a * a[0] + weight_b * b[0],)
    for e in static(1, ELEMENTS):
        part = part + (weight_a * a[e] + weight_b * b[e],)
    return part


def sum_over_lanes(x: f32):
    """The sum over the LANES lanes that hold parts of one row, in each of them."""
    for i in static(5):
        if 1 << i < LANES:
            x += cuda.shfl_xor_sync(FULL_MASK, x, 1 << i)
    return x
