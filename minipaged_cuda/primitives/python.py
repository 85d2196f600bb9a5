"""The plain-Python twin: what each primitive means, in NumPy; the simulator's, and the definition.

A pointer here is an object with ``load(offset, count)`` and ``store(offset, values)``, a shared
array too; both check alignment and bounds. Offsets count elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minipaged_cuda.kernel import Pointer

__all__ = [
    "FULL_MASK",
    "Pointer",
    "bf16x2_high",
    "bf16x2_low",
    "bits_f32",
    "cp_async16",
    "cp_async_commit",
    "cp_async_wait_all",
    "cp_async_wait_but_one",
    "cuda",
    "e4m3x2_high_to_f16x2",
    "e4m3x2_to_f16x2",
    "ex2",
    "f16",
    "f16x2_high",
    "f16x2_low",
    "f32",
    "f32_bits",
    "i32",
    "i64",
    "ld64",
    "ld128",
    "ld128_stream",
    "lds128",
    "lg2",
    "load_bfloat16",
    "load_float8_e4m3",
    "load_float16",
    "load_float32",
    "mma_bf16",
    "mma_f16",
    "pack_bf16x2",
    "pack_e4m3x2",
    "pack_f16x2",
    "prmt",
    "rcp",
    "registers",
    "st128",
    "static",
    "store_bfloat16",
    "store_float16",
    "store_float32",
    "sts128",
    "u8",
    "u16",
    "u32",
]

f16, f32, i32, i64 = np.float16, np.float32, np.int32, np.int64
u8, u16, u32 = np.uint8, np.uint16, np.uint32
FULL_MASK = 0xFFFFFFFF  # all lanes of a warp

Four = tuple[Any, Any, Any, Any]


class _Cuda:
    """Stands where kernel text says ``cuda``; whoever runs the text puts the real thing there."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"cuda.{name}: kernel text runs in the simulator, or compiled")


cuda: Any = _Cuda()


def static(*bounds: int) -> range:
    """A loop that does not exist at run time: compiling unrolls it."""
    return range(*bounds)


def registers(size: int, value: Any) -> list[Any]:
    """``size`` variables that only constants and static loop variables may index."""
    return [value] * size


# --- memory ------------------------------------------------------------------------------------


def ld64(pointer: Any, offset: int) -> tuple[Any, Any]:
    """8 bytes at an element offset, as two u32; the address must be a multiple of 8."""
    return pointer.load(offset, 2)


def ld128(pointer: Any, offset: int) -> Four:
    """16 bytes at an element offset, as four u32; the address must be a multiple of 16."""
    return pointer.load(offset, 4)


def ld128_stream(pointer: Any, offset: int) -> Four:
    """The same for data that this launch never writes, and reads only once."""
    return pointer.load(offset, 4)


def st128(pointer: Any, offset: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """Write four u32 as one access of 16 bytes."""
    pointer.store(offset, (a, b, c, d))


def lds128(array: Any, offset: int) -> Four:
    """16 bytes of a one-dimensional shared array of u32."""
    return array.load(offset, 4)


def sts128(array: Any, offset: int, a: Any, b: Any, c: Any, d: Any) -> None:
    """Write 16 bytes of a one-dimensional shared array of u32."""
    array.store(offset, (a, b, c, d))


def cp_async16(array: Any, to: int, pointer: Any, offset: int) -> None:
    """Begin to copy 16 bytes into a shared array of u32; they are there after a wait."""
    array.store(to, pointer.load(offset, 4))


def cp_async_commit() -> None:
    """Close a group of copies."""


def cp_async_wait_all() -> None:
    """Wait for this thread's copies; the others' are there after a barrier."""


def cp_async_wait_but_one() -> None:
    """Wait for all groups of this thread's copies but the newest."""


def load_float32(pointer: Any, offset: int) -> np.float32:
    """One element of ``Pointer[f32]``."""
    return pointer[offset]


def load_float16(pointer: Any, offset: int) -> np.float32:
    """One float16, by its bits in ``Pointer[u16]``, as float32."""
    return f32(u16(pointer[offset]).view(np.float16))


def load_bfloat16(pointer: Any, offset: int) -> np.float32:
    """One bfloat16, by its bits in ``Pointer[u16]``, as float32."""
    return (u32(pointer[offset]) << u32(16)).view(np.float32)


def load_float8_e4m3(pointer: Any, offset: int) -> np.float32:
    """One float8 e4m3fn, by its bits in ``Pointer[u8]``, as float32."""
    return f16x2_low(e4m3x2_to_f16x2(u32(pointer[offset])))


def store_float32(pointer: Any, offset: int, value: Any) -> None:
    """Write one float32 to ``Pointer[f32]``."""
    pointer[offset] = value


def store_float16(pointer: Any, offset: int, value: Any) -> None:
    """Round to the nearest float16, ties to even, and write its bits to ``Pointer[u16]``."""
    pointer[offset] = u16(pack_f16x2(value, f32(0)) & u32(0xFFFF))


def store_bfloat16(pointer: Any, offset: int, value: Any) -> None:
    """Round to the nearest bfloat16, ties to even, and write its bits to ``Pointer[u16]``."""
    pointer[offset] = u16(pack_bf16x2(value, f32(0)) & u32(0xFFFF))


# --- numbers -----------------------------------------------------------------------------------


def ex2(x: Any) -> np.float32:
    """2**x. The card's own unit: 2 ulp, and subnormal results become 0."""
    with np.errstate(over="ignore", under="ignore"):
        return _flushed(np.exp2(np.float64(x)))


def lg2(x: Any) -> np.float32:
    """log2(x), the card's within 2**-22 or 1 ulp; -inf for 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return f32(np.log2(np.float64(x)))


def rcp(x: Any) -> np.float32:
    """1 / x to 1 ulp; a subnormal x counts as 0, and a subnormal result becomes 0."""
    with np.errstate(divide="ignore"):
        return _flushed(f32(1) / _flushed(x))


def _flushed(x: Any) -> np.float32:
    """The float32, or a zero of its sign where that is subnormal."""
    with np.errstate(over="ignore", under="ignore"):
        y = f32(x)
    return np.copysign(f32(0), y) if abs(y) < np.finfo(np.float32).tiny else y


def f32_bits(x: Any) -> np.uint32:
    """The 32 bits of a float32."""
    return f32(x).view(u32)


def bits_f32(word: Any) -> np.float32:
    """The float32 that 32 bits stand for."""
    return u32(word).view(f32)


def prmt(a: Any, b: Any, selector: Any) -> np.uint32:
    """Four bytes of the eight in (a, b): nibble i of the selector names the i-th.

    A nibble of 8 or more takes, in place of the byte, its sign eight times over.
    """
    both, out = int(a) | int(b) << 32, 0
    for i in range(4):
        nibble = int(selector) >> 4 * i & 15
        byte = both >> 8 * (nibble & 7) & 0xFF
        out |= (byte if nibble < 8 else 0xFF * (byte >> 7)) << 8 * i
    return u32(out)


def pack_f16x2(low: Any, high: Any) -> np.uint32:
    """Two float32 as two float16 in one word, rounded to nearest even; any NaN becomes 0x7FFF."""
    with np.errstate(over="ignore"):
        both = [int(f16(x).view(u16)) if x == x else 0x7FFF for x in (low, high)]
    return u32(both[0] | both[1] << 16)


def pack_bf16x2(low: Any, high: Any) -> np.uint32:
    """Two float32 as two bfloat16 in one word, rounded to nearest even; any NaN becomes 0x7FFF."""
    return u32(_bfloat16_bits(low) | _bfloat16_bits(high) << 16)


def _bfloat16_bits(x: Any) -> int:
    bits = int(f32(x).view(u32))
    if x != x:
        return 0x7FFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def f16x2_low(word: Any) -> np.float32:
    """The float16 in the lower half of a word."""
    return f32(u16(int(word) & 0xFFFF).view(f16))


def f16x2_high(word: Any) -> np.float32:
    """The float16 in the upper half of a word."""
    return f32(u16(int(word) >> 16).view(f16))


def bf16x2_low(word: Any) -> np.float32:
    """The bfloat16 in the lower half of a word."""
    return (u32(word) << u32(16)).view(f32)


def bf16x2_high(word: Any) -> np.float32:
    """The bfloat16 in the upper half of a word."""
    return (u32(word) & u32(0xFFFF0000)).view(f32)


def e4m3x2_to_f16x2(word: Any) -> np.uint32:
    """Two float8 e4m3fn, in the lower half of a word, as two float16: exact."""
    low, high = (E4M3_VALUES[int(word) >> shift & 0xFF] for shift in (0, 8))
    return np.array([low, high], f16).view(u32)[0]


def e4m3x2_high_to_f16x2(word: Any) -> np.uint32:
    """The same of the upper half of a word."""
    return e4m3x2_to_f16x2(u32(word) >> u32(16))


def pack_e4m3x2(low: Any, high: Any) -> np.uint32:
    """Two float32 as two float8 e4m3fn in the lower half of a word: nearest even, at most 448."""
    return u32(_e4m3_bits(low) | _e4m3_bits(high) << 8)


def _e4m3_values() -> np.ndarray:
    """The float32 that each code stands for: sign, 4 bits of exponent, 3 of fraction; [256]."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    normal = (8 + fraction) * 2.0 ** (exponent - 10.0)
    value = np.where(exponent == 0, fraction * 2.0**-9, normal)
    value[(code & 127) == 127] = np.nan  # e4m3fn has no infinity
    return np.where(code < 128, value, -value).astype(np.float32)


E4M3_VALUES = _e4m3_values()


def _e4m3_bits(x: Any) -> int:
    """The nearest code; of two equally near the even one; beyond 448 the largest."""
    x = f32(x)
    if np.isnan(x):
        return 0x7F
    magnitude = np.float64(min(abs(x), f32(448)))
    distance = np.abs(E4M3_VALUES[:127].astype(np.float64) - magnitude)
    nearest = np.flatnonzero(distance == distance.min())
    code = int(nearest[nearest % 2 == 0][0] if len(nearest) > 1 else nearest[0])
    return code | (0x80 if np.signbit(x) else 0)


# --- tensor cores ------------------------------------------------------------------------------


def mma_bf16(c: Four, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any) -> Four:
    """``mma.sync.m16n8k16``: C + A B over a warp, A and B in bfloat16, C in float32.

    With ``row, pair = lane >> 2, lane & 3`` a lane holds of A [16, 16] the words
    ``(row, 2 pair), (row + 8, 2 pair), (row, 2 pair + 8), (row + 8, 2 pair + 8)``, of B [16, 8] the
    words ``(2 pair, row), (2 pair + 8, row)``, each with its neighbour along the contraction, and
    of C [16, 8] the numbers ``(row, 2 pair), (row, 2 pair + 1), (row + 8, ...)``.
    """
    return _together("mma_bf16", (c, (a0, a1, a2, a3), (b0, b1)), _mma_bf16)


def mma_f16(c: Four, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any) -> Four:
    """The same with A and B in float16."""
    return _together("mma_f16", (c, (a0, a1, a2, a3), (b0, b1)), _mma_f16)


def _together(kind: str, fragments: Any, multiply: Any) -> Four:
    """What a whole warp does at once; only the simulator has warps."""
    from minipaged_cuda.simulator import collective

    return collective(kind, FULL_MASK, fragments, multiply)


def _mma_bf16(lanes: dict[int, Any]) -> dict[int, Four]:
    return _mma(lanes, lambda words: words.astype(u32)[..., None] << [16, 0] & 0xFFFF0000)


def _mma_f16(lanes: dict[int, Any]) -> dict[int, Four]:
    return _mma(lanes, None)


def _mma(lanes: dict[int, Any], widen: Any) -> dict[int, Four]:
    """All lanes' fragments put together, multiplied in float64, and taken apart again."""
    c, a, b = (np.array([lanes[lane][part] for lane in range(32)]) for part in range(3))
    a, b = (_pairs(words, widen) for words in (a, b))  # [32, 4, 2], [32, 2, 2]
    lane = np.arange(32)
    row, pair, two = lane >> 2, (lane & 3) * 2, np.arange(2)
    left, right, total = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    for i, (down, along) in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
        left[(row + down)[:, None], pair[:, None] + along + two] = a[:, i]
    for i, along in enumerate((0, 8)):
        right[pair[:, None] + along + two, row[:, None]] = b[:, i]
    places = [(row + down, pair + i) for down in (0, 8) for i in (0, 1)]
    for i, place in enumerate(places):
        total[place] = c[:, i]
    total = (left @ right + total).astype(f32)
    out = np.stack([total[place] for place in places], 1)
    return {i: tuple(out[i]) for i in range(32)}


def _pairs(words: np.ndarray, widen: Any) -> np.ndarray:
    """The two numbers in each word, the lower half first."""
    words = words.astype(u32)
    if widen is None:
        return words.view(f16).reshape(*words.shape, 2).astype(np.float64)
    return widen(words).astype(u32).view(f32).astype(np.float64)
