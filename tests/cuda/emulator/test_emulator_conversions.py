"""`cvt` from everything to everything, against numpy, torch, and what PTX says of the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support.cuda_ptx import each

FLOATS = np.array(
    [0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e-40, 3e9, -3e9, 1e20, np.inf, np.nan, 65519.9]
)
SCALES = 10.0 ** np.arange(-16, 16).repeat(32)
SINGLES = (np.random.default_rng(0).normal(size=1024) * SCALES).astype(np.float32)


def test_float_to_integer_takes_the_nearest_that_fits() -> None:
    x = FLOATS.astype(np.float32)
    limits = np.iinfo(np.int32)
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
    for mode, whole in rounded.items():
        expected = np.clip(
            np.nan_to_num(whole(x.astype(float)), posinf=1e30), limits.min, limits.max
        )
        assert (each(f"cvt.{mode}.s32.f32 %d, %a;", np.int32, x) == expected).all()
    found = each("cvt.rzi.u64.f32 %d, %a;", np.uint64, x)
    assert found[9:].tolist() == [0, 2**64 - 1, 2**64 - 1, 0, 65519]
    assert each("cvt.rzi.u32.f64 %d, %a;", np.uint32, FLOATS)[9] == 0


def test_rounding_to_whole_numbers_stays_float() -> None:
    x = FLOATS[:7].astype(np.float32)
    assert (each("cvt.rni.f32.f32 %d, %a;", np.float32, x) == np.rint(x)).all()
    assert (each("cvt.rmi.f32.f32 %d, %a;", np.float32, x) == np.floor(x)).all()


@pytest.mark.parametrize("source", [np.int32, np.uint32, np.int64, np.uint64])
def test_integer_to_float(source: type) -> None:
    x = np.array([0, 1, 2**24 + 1, 2**31 - 1, 123456789], source)
    name = f"{np.dtype(source).kind.replace('i', 's')}{8 * np.dtype(source).itemsize}"
    for to, type in (("f32", np.float32), ("f64", np.float64)):
        assert (each(f"cvt.rn.{to}.{name} %d, %a;", type, x) == x.astype(type)).all()


def test_integer_to_float_in_a_direction() -> None:
    x = np.array([2**24 + 1, -(2**24) - 1], np.int32)
    found = {
        mode: each(f"cvt.{mode}.f32.s32 %d, %a;", np.float32, x) for mode in ("rz", "rm", "rp")
    }
    assert found["rz"].tolist() == [2**24, -(2**24)]
    assert found["rm"].tolist() == [2**24, -(2**24) - 2]
    assert found["rp"].tolist() == [2**24 + 2, -(2**24)]


def test_between_floats() -> None:
    with np.errstate(over="ignore"):
        half = SINGLES.astype(np.float16)
    assert (each("cvt.rn.f16.f32 %d, %a;", np.float16, SINGLES) == half).all()
    assert (each("cvt.f32.f16 %d, %a;", np.float32, half) == half.astype(np.float32)).all()
    wide = SINGLES.astype(np.float64) * (1 + 1e-9)
    assert (each("cvt.rn.f32.f64 %d, %a;", np.float32, wide) == wide.astype(np.float32)).all()
    toward_zero = each("cvt.rz.f32.f64 %d, %a;", np.float32, wide)
    assert (np.abs(toward_zero.astype(np.float64)) <= np.abs(wide)).all()
    assert each("cvt.ftz.f64.f32 %d, %a;", np.float64, np.array([1e-40], np.float32))[0] == 0


def test_a_float16_that_is_no_number_has_one_pattern() -> None:
    payloads = np.array([0x7F800001, 0xFFC12345, 0x7FC00000], np.uint32).view(np.float32)
    bits = each("cvt.rn.f16.f32 %d, %a;", np.uint16, payloads)
    assert bits.tolist() == [0x7FFF] * 3


def test_bfloat16_is_torchs() -> None:
    bits = torch.from_numpy(SINGLES).to(torch.bfloat16)
    patterns = bits.view(torch.int16).numpy().view(np.uint16)
    assert (each("cvt.rn.bf16.f32 %d, %a;", np.uint16, SINGLES) == patterns).all()
    assert (each("cvt.f32.bf16 %d, %a;", np.float32, patterns) == bits.float().numpy()).all()
    both = each("cvt.rn.bf16x2.f32 %d, %a, %b;", np.uint32, SINGLES, SINGLES[::-1].copy())
    assert (both >> 16 == patterns).all()
    assert (both & 0xFFFF == patterns[::-1]).all()


def test_pairs_of_halves_put_the_first_operand_above() -> None:
    a, b = np.array([1.0], np.float32), np.array([2.0], np.float32)
    packed = each("cvt.rn.f16x2.f32 %d, %a, %b;", np.uint32, a, b)
    assert packed.view(np.float16).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
def test_all_eight_bit_floats(form: str) -> None:
    dtype = torch.float8_e4m3fn if form == "e4m3" else torch.float8_e5m2
    pattern = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(pattern).view(dtype).float().numpy()
    pairs = np.repeat(pattern, 2).view(np.uint16)
    unpacked = each(f"cvt.rn.f16x2.{form}x2 %d, %a;", np.uint32, pairs).view(np.float16)
    assert np.array_equal(unpacked[::2].astype(np.float32), values, equal_nan=True)
    finite = np.isfinite(values)
    back = each(
        f"cvt.rn.satfinite.{form}x2.f32 %d, %a, %b;", np.uint16, values, np.zeros_like(values)
    )
    assert (back[finite] >> 8 == pattern[finite]).all()
    assert (back & 0x7F == 0)[finite].all()


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
def test_rounding_to_eight_bits_is_torchs(form: str) -> None:
    dtype, largest = (torch.float8_e4m3fn, 448) if form == "e4m3" else (torch.float8_e5m2, 57344)
    x = np.concatenate(
        [SINGLES[100:1000], np.array([17.0, 19.0, 0.0009765625, 464.0, np.inf], np.float32)]
    )
    expected = torch.from_numpy(x).clamp(-largest, largest).to(dtype).view(torch.uint8).numpy()
    found = each(f"cvt.rn.satfinite.{form}x2.f32 %d, %a, %a;", np.uint16, x)
    assert (found & 0xFF == expected).all()
    assert (found >> 8 == expected).all()
    halves = np.repeat(x, 2).astype(np.float32).clip(-60000, 60000).astype(np.float16)
    expected = torch.from_numpy(halves).float().clamp(-largest, largest).to(dtype)
    found = each(f"cvt.rn.satfinite.{form}x2.f16x2 %d, %a;", np.uint16, halves.view(np.uint32))
    assert (found.view(np.uint8) == expected.view(torch.uint8).numpy()).all()


def test_tf32_keeps_ten_bits() -> None:
    x = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 2.0**-12], np.float32)
    found = each("cvt.rna.tf32.f32 %d, %a;", np.uint32, x).view(np.float32)
    assert found.tolist() == [1 + 2.0**-10, 1 + 2.0**-10, 1.0]
