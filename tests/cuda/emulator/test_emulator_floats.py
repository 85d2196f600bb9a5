"""Floating point is rounded once, where the card rounds once; approximations are close."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged_cuda.emulator import rounding
from support.cuda_ptx import each

EDGES = [0.0, -0.0, 1.0, -1.5, 3.0, 1e-3, 65504.0, 1e-40, -1e-42, 2.0**-126, math.inf, -math.inf]
EDGES += [math.nan, 0.1, 1 + 2.0**-23, 3e38]
FORMATS = {np.float32: "f32", np.float64: "f64", np.float16: "f16"}
single = st.floats(width=32, allow_nan=False, allow_infinity=False)
double = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in every bit, but any NaN for any other."""
    bits = f"u{a.itemsize}"
    return a.dtype == b.dtype and bool(
        ((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))).all()
    )


def pairs(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.array(EDGES).astype(dtype)
    return np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", FORMATS)
def test_arithmetic_is_ieee(dtype: type) -> None:
    a, b = pairs(dtype)
    type = FORMATS[dtype]
    for name, compute in [("add", np.add), ("sub", np.subtract), ("mul", np.multiply)]:
        assert same(each(f"{name}.rn.{type} %d, %a, %b;", dtype, a, b), compute(a, b)), name
    for name, compute in [("min", np.fmin), ("max", np.fmax)]:
        assert same(each(f"{name}.{type} %d, %a, %b;", dtype, a, b), compute(a, b)), name
    for name, compute in [("neg", np.negative), ("abs", np.abs)]:
        assert same(each(f"{name}.{type} %d, %a;", dtype, a), compute(a)), name
    if dtype != np.float16:
        assert same(each(f"div.rn.{type} %d, %a, %b;", dtype, a, b), a / b)
        assert same(each(f"sqrt.rn.{type} %d, %a;", dtype, a), np.sqrt(a))
        assert same(each(f"rcp.rn.{type} %d, %a;", dtype, a), 1 / a)
        assert same(each(f"copysign.{type} %d, %a, %b;", dtype, a, b), np.copysign(b, a))


def nearest(exact: Fraction, dtype: type, mode: str) -> float:
    """The float that `exact` is rounded to; by trying the neighbours of a good guess."""
    with np.errstate(all="ignore"):
        guess = dtype(float(exact))
    around = [np.nextafter(guess, dtype(-np.inf)), guess, np.nextafter(guess, dtype(np.inf))]
    finite = sorted(x for x in around if np.isfinite(x))
    if mode == "rm" or (mode == "rz" and exact > 0):
        return max(x for x in finite if Fraction(float(x)) <= exact)
    if mode == "rp" or (mode == "rz" and exact < 0):
        return min(x for x in finite if Fraction(float(x)) >= exact)
    even = lambda x: int(np.array([x]).view(f"u{guess.itemsize}")[0]) & 1  # noqa: E731
    return min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), even(x)))


@given(st.lists(st.tuples(single, single, single), min_size=8, max_size=8))
@settings(max_examples=60)
def test_fma_rounds_once(triples: list[tuple[float, float, float]]) -> None:
    a, b, c = (np.array(x, np.float32) for x in zip(*triples))
    for mode in ("rn", "rz", "rm", "rp"):
        with np.errstate(all="ignore"):
            found = rounding.fma(a, b, c, mode)
        for x, y, z, value in zip(a, b, c, found):
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            if abs(exact) < 2**127 and exact != 0:
                assert float(value) == float(nearest(exact, np.float32, mode)), (x, y, z, mode)


@given(st.lists(st.tuples(double, double, double), min_size=4, max_size=4))
@settings(max_examples=60)
def test_fma_of_doubles_rounds_once(triples: list[tuple[float, float, float]]) -> None:
    a, b, c = (np.array(x) for x in zip(*triples))
    found = rounding.fma(a, b, c)
    for x, y, z, value in zip(a, b, c, found):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if (
            abs(exact) > Fraction(2) ** -900
            and abs(Fraction(x) * Fraction(y)) > Fraction(2) ** -900
        ):
            assert float(value) == float(exact), (x, y, z)  # Python's division rounds once


def test_fma_where_two_roundings_are_wrong() -> None:
    """The product is just above a tie that float64 cannot hold the excess of."""
    a = b = np.array([1 + 2.0**-12], np.float32)  # a * b = 1 + 2^-11 + 2^-24
    c = np.array([2.0**-80], np.float32)
    twice = np.float32(float(a[0]) * float(b[0]) + float(c[0]))
    once = each("fma.rn.f32 %d, %a, %b, %c;", np.float32, a, b, c)
    assert once[0] == np.nextafter(twice, np.float32(2))


def test_directed_rounding_of_sums_and_products() -> None:
    a = np.array([1.0, -1.0, 3.0], np.float32)
    b = np.array([2.0**-30, -(2.0**-30), 1 + 2.0**-23], np.float32)
    for mode in ("rz", "rm", "rp"):
        added = each(f"add.{mode}.f32 %d, %a, %b;", np.float32, a, b)
        product = each(f"mul.{mode}.f32 %d, %a, %b;", np.float32, a, b)
        for x, y, total, scaled in zip(a, b, added, product):
            p, q = Fraction(float(x)), Fraction(float(y))
            assert total == nearest(p + q, np.float32, mode)
            assert scaled == nearest(p * q, np.float32, mode)


def test_flushing_subnormals() -> None:
    small = np.array([1e-40, -1e-40, 1e-38, 1.0], np.float32)
    one = np.ones(4, np.float32)
    kept = each("mul.f32 %d, %a, %b;", np.float32, small, one)
    flushed = each("mul.ftz.f32 %d, %a, %b;", np.float32, small, one)
    assert (kept == small).all()
    assert same(flushed, np.array([0.0, -0.0, 0.0, 1.0], np.float32))
    assert each("add.ftz.f32 %d, %a, %b;", np.float32, small, small)[0] == 0
    normal = np.array([1e-20], np.float32)
    assert each("mul.ftz.f32 %d, %a, %b;", np.float32, normal, normal)[0] == 0


def test_saturation_and_nan() -> None:
    x = np.array([-2.0, 0.25, 7.0, np.nan], np.float32)
    zero = np.zeros(4, np.float32)
    assert each("add.sat.f32 %d, %a, %b;", np.float32, x, zero).tolist() == [0, 0.25, 1, 0]
    assert np.isnan(each("max.NaN.f32 %d, %a, %b;", np.float32, x, zero)[3])
    assert each("max.f32 %d, %a, %b, %b;", np.float32, x, zero).tolist() == [0, 0.25, 7, 0]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "ge", "equ", "neu", "ltu", "geu", "num", "nan"])
def test_comparisons_with_nan(name: str) -> None:
    a, b = pairs(np.float32)
    nan = np.isnan(a) | np.isnan(b)
    plain = {"eq": a == b, "ne": a != b, "lt": a < b, "ge": a >= b}
    expected = {key: value & ~nan for key, value in plain.items()}
    expected |= {key + "u": value | nan for key, value in plain.items()}
    expected |= {"num": ~nan, "nan": nan}
    found = each(f"setp.{name}.f32 %p0, %a, %b; selp.b32 %d, 1, 0, %p0;", np.int32, a, b)
    assert (found == expected[name]).all()


def test_kinds_of_numbers() -> None:
    x = np.array([0.0, 1.0, 1e-40, np.inf, np.nan], np.float32)
    expected = {
        "finite": [1, 1, 1, 0, 0],
        "infinite": [0, 0, 0, 1, 0],
        "number": [1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 1],
        "normal": [0, 1, 0, 0, 0],
        "subnormal": [0, 0, 1, 0, 0],
    }
    for name, truth in expected.items():
        text = f"testp.{name}.f32 %p0, %a; selp.b32 %d, 1, 0, %p0;"
        assert each(text, np.int32, x).tolist() == truth


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("ex2.approx.f32", np.exp2),
        ("ex2.approx.ftz.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("rcp.approx.f32", np.reciprocal),
        ("sqrt.approx.f32", np.sqrt),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("sin.approx.f32", np.sin),
        ("cos.approx.f32", np.cos),
        ("tanh.approx.f32", np.tanh),
    ],
)
def test_approximations_are_rounded_from_double(name: str, compute) -> None:
    x = np.linspace(0.1, 5, 60).astype(np.float32)
    expected = compute(x.astype(np.float64)).astype(np.float32)
    assert (each(f"{name} %d, %a;", np.float32, x) == expected).all()


def test_pairs_of_halves() -> None:
    a, b, c = (np.random.default_rng(n).normal(size=128).astype(np.float16) for n in range(3))
    x, y, z = (v.view(np.uint32) for v in (a, b, c))
    added = each("add.f16x2 %d, %a, %b;", np.uint32, x, y).view(np.float16)
    assert same(added, a + b)
    fused = each("fma.rn.f16x2 %d, %a, %b, %c;", np.uint32, x, y, z).view(np.float16)
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    assert same(fused, exact.astype(np.float16))


def test_pairs_of_singles() -> None:
    a, b = (np.random.default_rng(n).normal(size=128).astype(np.float32) for n in range(2))
    found = each("add.rn.f32x2 %d, %a, %b;", np.uint64, a.view(np.uint64), b.view(np.uint64))
    assert same(found.view(np.float32), a + b)


def bfloat(x: np.ndarray) -> np.ndarray:
    """float32 that bfloat16 can hold: the nearest, ties to even, by exact fractions."""
    bits = x.view(np.uint32).astype(np.int64)
    low, rest = bits & ~0xFFFF, bits & 0xFFFF
    up = (rest > 0x8000) | ((rest == 0x8000) & (low >> 16 & 1 == 1))
    return (low + up * 0x10000).astype(np.uint32).view(np.float32)


def test_bfloat16_arithmetic() -> None:
    a, b, c = (
        bfloat(np.random.default_rng(n).normal(size=64).astype(np.float32)) for n in range(3)
    )
    x, y, z = ((v.view(np.uint32) >> 16).astype(np.uint16) for v in (a, b, c))
    widen = lambda u: (u.astype(np.uint32) << 16).view(np.float32)  # noqa: E731
    assert same(widen(each("mul.rn.bf16 %d, %a, %b;", np.uint16, x, y)), bfloat(a * b))
    found = widen(each("fma.rn.bf16 %d, %a, %b, %c;", np.uint16, x, y, z))
    for p, q, r, value in zip(a, b, c, found):
        exact = Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r))
        below, above = np.float32(value), np.float32(value)
        step = Fraction(float(abs(value))) / 256 if value else Fraction(1, 256)
        assert abs(Fraction(float(below)) - exact) <= step
        assert above == below
    pairs = each(
        "fma.rn.bf16x2 %d, %a, %b, %c;", np.uint32, *(v.view(np.uint32) for v in (x, y, z))
    )
    assert same(widen(pairs.view(np.uint16)), found)
