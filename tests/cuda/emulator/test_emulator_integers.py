"""Every integer opcode computes what numpy, or a sentence of Python, computes."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from support.cuda_ptx import each

EDGES = [0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 100, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF]
WORDS = [*EDGES, 0x12345678, 0x7FFFFFFF, 0x80000000, 0xDEADBEEF, 0xFFFFFFFE, 0xFFFFFFFF]
LONGS = [*WORDS, 1 << 32, (1 << 63) - 1, 1 << 63, 0x123456789ABCDEF0, (1 << 64) - 1]
SIGNED = {16: np.int16, 32: np.int32, 64: np.int64}
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def pairs(bits: int) -> tuple[list[int], list[int]]:
    numbers = {16: EDGES, 32: WORDS, 64: LONGS}[bits]
    both = [(a, b) for a in numbers for b in numbers]
    return [a for a, _ in both], [b for _, b in both]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def check(text: str, bits: int, expected, result_bits: int | None = None) -> None:
    """For all pairs of edge cases, as Python integers of the type that the opcode ends in."""
    result_bits = result_bits or bits
    a, b = pairs(bits)
    is_signed = f".s{bits}" in text
    out = each(text, UNSIGNED[result_bits], *(np.array(x, UNSIGNED[bits]) for x in (a, b)))
    for x, y, found in zip(a, b, out):
        p, q = (signed(v, bits) if is_signed else v for v in (x, y))
        assert int(found) == expected(p, q) % (1 << result_bits), (text, hex(x), hex(y))


def truncated(p: int, q: int) -> int:
    return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("kind", ["s", "u"])
def test_arithmetic_wraps(bits: int, kind: str) -> None:
    type = f"{kind}{bits}"
    check(f"add.{type} %d, %a, %b;", bits, lambda p, q: p + q)
    check(f"sub.{type} %d, %a, %b;", bits, lambda p, q: p - q)
    check(f"mul.lo.{type} %d, %a, %b;", bits, lambda p, q: p * q)
    check(f"mul.hi.{type} %d, %a, %b;", bits, lambda p, q: p * q >> bits)
    check(f"mad.lo.{type} %d, %a, %b, 7;", bits, lambda p, q: p * q + 7)
    check(f"min.{type} %d, %a, %b;", bits, min)
    check(f"max.{type} %d, %a, %b;", bits, max)
    check(f"sad.{type} %d, %a, %b, 9;", bits, lambda p, q: abs(p - q) + 9)
    nonzero = f"setp.eq.{type} %p0, %b, 0; selp.b{bits} %b, 1, %b, %p0;"
    check(f"{nonzero} div.{type} %d, %a, %b;", bits, lambda p, q: truncated(p, q or 1))
    check(
        f"{nonzero} rem.{type} %d, %a, %b;", bits, lambda p, q: p - truncated(p, q or 1) * (q or 1)
    )


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("kind", ["s", "u"])
def test_wide_products(bits: int, kind: str) -> None:
    check(f"mul.wide.{kind}{bits} %d, %a, %b;", bits, lambda p, q: p * q, 2 * bits)
    check(f"mad.wide.{kind}{bits} %d, %a, %b, 5;", bits, lambda p, q: p * q + 5, 2 * bits)


def test_saturating_sums() -> None:
    clip = lambda x: max(-(1 << 31), min((1 << 31) - 1, x))  # noqa: E731
    check("add.sat.s32 %d, %a, %b;", 32, lambda p, q: clip(p + q))
    check("sub.sat.s32 %d, %a, %b;", 32, lambda p, q: clip(p - q))


def test_division_by_zero_does_not_stop_a_thread() -> None:
    a, zero = np.array([7, 8], np.uint32), np.zeros(2, np.uint32)
    assert (each("div.u32 %d, %a, %b;", np.uint32, a, zero) == 0xFFFFFFFF).all()
    assert (each("rem.u32 %d, %a, %b;", np.uint32, a, zero) == a).all()


def test_carries_add_up_to_wide_sums() -> None:
    """Two words each: a 64-bit sum, difference and product, by 32-bit halves."""
    a, b = (np.array(x, np.uint64) for x in pairs(64))
    split = "mov.b64 {%r0, %r1}, %a; mov.b64 {%r2, %r3}, %b;"
    join = "mov.b64 %d, {%r4, %r5};"
    added = f"{split} add.cc.u32 %r4, %r0, %r2; addc.u32 %r5, %r1, %r3; {join}"
    assert (each(added, np.uint64, a, b) == a + b).all()
    taken = f"{split} sub.cc.u32 %r4, %r0, %r2; subc.u32 %r5, %r1, %r3; {join}"
    assert (each(taken, np.uint64, a, b) == a - b).all()
    product = f"""{split} mul.lo.u32 %r4, %r0, %r2; mul.hi.u32 %r5, %r0, %r2;
        mad.lo.cc.u32 %r5, %r0, %r3, %r5; madc.hi.u32 %r6, %r0, %r3, 0;
        mad.lo.cc.u32 %r5, %r1, %r2, %r5; {join}"""
    assert (each(product, np.uint64, a, b) == a * b).all()


def test_a_carry_passes_through_a_word_of_ones() -> None:
    ones = np.array([0xFFFFFFFF], np.uint32)
    chain = "add.cc.u32 %r0, %a, 1; addc.cc.u32 %r1, %a, 0; addc.u32 %d, 0, 0;"
    assert each(chain, np.uint32, ones)[0] == 1
    through = "add.cc.u32 %r0, %a, 1; addc.cc.u32 %r1, 5, %a; addc.u32 %d, %r1, 0;"
    assert each(through, np.uint32, ones)[0] == 6
    borrow = "sub.cc.u32 %r0, 0, 1; subc.cc.u32 %r1, 0, 0; subc.u32 %d, 0, 0;"
    assert each(borrow, np.uint32, ones)[0] == 0xFFFFFFFF


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(bits: int) -> None:
    check(f"and.b{bits} %d, %a, %b;", bits, lambda p, q: p & q)
    check(f"or.b{bits} %d, %a, %b;", bits, lambda p, q: p | q)
    check(f"xor.b{bits} %d, %a, %b;", bits, lambda p, q: p ^ q)
    check(f"not.b{bits} %d, %a;", bits, lambda p, q: ~p)
    check(f"cnot.b{bits} %d, %a;", bits, lambda p, q: p == 0)
    amount = f"cvt.u32.u{bits} %r0, %b; and.b32 %r0, %r0, 127;"
    check(f"{amount} shl.b{bits} %d, %a, %r0;", bits, lambda p, q: p << (q & 127))
    check(f"{amount} shr.u{bits} %d, %a, %r0;", bits, lambda p, q: p >> (q & 127))
    shift = f"cvt.u32.u{bits} %r0, %b; and.b32 %r0, %r0, 127; shr.s{bits} %d, %a, %r0;"
    check(shift, bits, lambda p, q: p >> (q & 127))
    check(f"shl.b{bits} %d, %a, 3;", bits, lambda p, q: p << 3)
    check(f"shl.b{bits} %d, %a, 64;", bits, lambda p, q: 0)


def test_three_input_logic_is_a_truth_table() -> None:
    a, b = (np.array(x, np.uint32) for x in pairs(32))
    c = np.roll(a, 3)
    majority, choose = 0xE8, 0xCA
    found = each(f"lop3.b32 %d, %a, %b, %c, {majority};", np.uint32, a, b, c)
    assert (found == ((a & b) | (b & c) | (a & c))).all()
    found = each(f"lop3.b32 %d, %a, %b, %c, {choose};", np.uint32, a, b, c)
    assert (found == ((a & b) | (~a & c))).all()


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str) -> None:
    by = lambda q: q & 31 if mode == "wrap" else min(q, 32)  # noqa: E731
    high = 0x89ABCDEF
    check(
        f"shf.l.{mode}.b32 %d, %a, {high}, %b;",
        32,
        lambda p, q: ((high << 32 | p) << by(q)) >> 32,
    )
    check(f"shf.r.{mode}.b32 %d, %a, {high}, %b;", 32, lambda p, q: (high << 32 | p) >> by(q))


@pytest.mark.parametrize("bits", [32, 64])
def test_fields_of_bits(bits: int) -> None:
    full = (1 << bits) - 1
    check(f"cvt.u32.u{bits} %r0, %b; bfe.u{bits} %d, %a, %r0, 5;", bits,
          lambda p, q: p >> (q & 255) & 31)  # fmt: skip

    def extended(p: int, q: int) -> int:
        start, length = q & 255, 5
        sign = p >> min(start + length - 1, bits - 1) & 1
        field = (p & full) >> start & 31 if start < bits else 0
        known = max(0, min(length, bits - start))
        return field | (-sign << known)

    check(f"cvt.u32.u{bits} %r0, %b; bfe.s{bits} %d, %a, %r0, 5;", bits,
          lambda p, q: extended(p, q & full))  # fmt: skip

    def inserted(p: int, q: int) -> int:
        mask = 31 << 7
        return (p << 7 & mask) | (q & ~mask)

    check(f"bfi.b{bits} %d, %a, %b, 7, 5;", bits, inserted)
    check(f"bfi.b{bits} %d, %a, %b, 7, 0;", bits, lambda p, q: q)


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(bits: int) -> None:
    check(f"popc.b{bits} %d, %a;", bits, lambda p, q: p.bit_count(), 32)
    check(f"clz.b{bits} %d, %a;", bits, lambda p, q: bits - p.bit_length(), 32)
    check(f"bfind.u{bits} %d, %a;", bits, lambda p, q: p.bit_length() - 1, 32)
    check(f"bfind.s{bits} %d, %a;", bits, lambda p, q: (~p if p < 0 else p).bit_length() - 1, 32)
    check(f"brev.b{bits} %d, %a;", bits, lambda p, q: int(f"{p:0{bits}b}"[::-1], 2))


def permuted(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    nibbles = [selector >> 4 * n & 15 for n in range(4)]
    picked = [source[n & 7] if n < 8 else 255 * (source[n & 7] >> 7) for n in nibbles]
    return int.from_bytes(bytes(picked), "little")


def test_byte_permutations() -> None:
    check("prmt.b32 %d, %a, 0x8899AABB, %b;", 32, lambda p, q: permuted(p, 0x8899AABB, q))
    check("prmt.b32 %d, %a, %b, 0x5410;", 32, lambda p, q: permuted(p, q, 0x5410))
    check("prmt.b32 %d, %a, %b, 0xB7C0;", 32, lambda p, q: permuted(p, q, 0xB7C0))
    check("prmt.b32.f4e %d, %a, %b, 1;", 32, lambda p, q: permuted(p, q, 0x4321))
    check("prmt.b32.b4e %d, %a, %b, 1;", 32, lambda p, q: permuted(p, q, 0x6701))
    check("prmt.b32.rc16 %d, %a, %b, 1;", 32, lambda p, q: permuted(p, q, 0x3232))


def test_dot_product_of_bytes() -> None:
    a, b = (np.array(x, np.uint32) for x in pairs(32))
    x, y = (v.reshape(-1, 1).view(np.int8).astype(int) for v in (a, b))
    found = each("dp4a.s32.s32 %d, %a, %b, 5;", np.int32, a, b)
    assert (found == (x * y).sum(axis=1) + 5).all()


def test_comparisons_know_signs() -> None:
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        compare = getattr(operator, name)
        for kind in "su":
            text = f"setp.{name}.{kind}32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;"
            check(text, 32, compare)
    check("setp.lo.u32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;", 32, lambda p, q: p < q)
    check("setp.hs.u32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;", 32, lambda p, q: p >= q)


def test_a_comparison_can_be_joined_and_has_a_contrary() -> None:
    text = """setp.gt.u32 %p2, %b, 31; setp.lt.and.u32 %p0|%p1, %a, 100, !%p2;
        selp.b32 %d, 1, 0, %p0; selp.b32 %r0, 2, 0, %p1; or.b32 %d, %d, %r0;"""
    expected = lambda p, q: (p < 100 and q <= 31) + 2 * (p >= 100 and q <= 31)  # noqa: E731
    check(text, 32, expected)


def test_set_and_select_by_sign() -> None:
    check("set.lt.u32.s32 %d, %a, %b;", 32, lambda p, q: -(p < q))
    check("slct.b32.s32 %d, 5, 6, %a;", 32, lambda p, q: 5 if p >= 0 else 6)


@pytest.mark.parametrize("to", [16, 32, 64])
@pytest.mark.parametrize("source", [16, 32, 64])
def test_integers_convert_by_their_own_sign(source: int, to: int) -> None:
    check(f"cvt.u{to}.s{source} %d, %a;", source, lambda p, q: p, to)
    check(f"cvt.s{to}.u{source} %d, %a;", source, lambda p, q: p, to)


def test_narrow_views_of_wide_registers() -> None:
    check("cvt.s32.s8 %d, %a;", 32, lambda p, q: signed(p & 255, 8))
    check("cvt.u32.u16 %d, %a;", 32, lambda p, q: p & 0xFFFF)
    check("cvt.sat.s8.s32 %d, %a;", 32, lambda p, q: max(-128, min(127, p)))
