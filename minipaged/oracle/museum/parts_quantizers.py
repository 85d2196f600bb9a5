"""Quantisers with one fault each; every function is wrong on purpose.

All are int8, one scale per token and head, unless their name is in `parts.SETTINGS`.
"""

from __future__ import annotations

import torch

from .exhibit import Exhibit, hang

QUANTIZERS: list[Exhibit] = []


def _quantize(x, scale=None, top=127):
    """The right quantiser, if the scale is."""
    x = x.float()
    if scale is None:
        scale = x.abs().amax(-1, keepdim=True) / top
    scale = torch.where(scale == 0, 1.0, scale)
    return (x / scale).round().clamp(-top, top).to(torch.int8), scale


def _dequantize(codes, scale):
    return codes.float() * scale


def _like(like="", fault_class="scale"):
    return hang(QUANTIZERS, "quantizer", fault_class, like, makes=True)


@_like("aiter #2763", "0/0")
def zero_rows_give_nan():
    """Divides by the scale of a row of zeros, and keeps the quotient in bfloat16."""

    def quantize(x):
        scale = x.float().abs().amax(-1, keepdim=True) / 127
        return (x.float() / scale).round().clamp(-127, 127).bfloat16(), scale

    return quantize, _dequantize


@_like("aiter #2763", "0/0")
def constant_rows_give_nan():
    """Asymmetric: the range of a constant row is 0, and its zero point is 0/0."""

    def quantize(x):
        low, high = x.float().amin(-1, keepdim=True), x.float().amax(-1, keepdim=True)
        scale = (high - low) / 255
        zero = -low / scale
        return ((x.float() / scale) + zero).round().clamp(0, 255), scale, zero

    return quantize, lambda codes, scale, zero: (codes - zero) * scale


@_like("", "range")
def plus_128_wraps_to_minus_128():
    """Divides by 128 and does not clamp, so the largest number changes its sign."""

    def quantize(x):
        scale = x.float().abs().amax(-1, keepdim=True) / 128
        scale = torch.where(scale == 0, 1.0, scale)
        return (x.float() / scale).round().to(torch.int32).to(torch.int8), scale

    return quantize, _dequantize


@_like("", "range")
def clamped_at_the_rim():
    """Divides by 128 and clamps, so the largest number loses a step."""

    def quantize(x):
        return _quantize(x, x.float().abs().amax(-1, keepdim=True) / 128)

    return quantize, _dequantize


@_like("", "rounding")
def truncates():
    """Rounds toward zero."""

    def quantize(x):
        _, scale = _quantize(x)
        return (x.float() / scale).trunc().to(torch.int8), scale

    return quantize, _dequantize


@_like("", "rounding")
def rounds_down():
    """Takes the floor, which is wrong by up to a step for negative numbers too."""

    def quantize(x):
        _, scale = _quantize(x)
        return (x.float() / scale).floor().clamp(-127, 127).to(torch.int8), scale

    return quantize, _dequantize


@_like("", "range")
def largest_instead_of_largest_magnitude():
    """Takes the maximum of a row, so negative rows have no range."""

    def quantize(x):
        return _quantize(x, x.float().amax(-1, keepdim=True).clamp(min=1e-9) / 127)

    return quantize, _dequantize


@_like("", "granularity")
def one_scale_for_all():
    """Spreads the scale of the whole tensor over its rows, so that an outlier blurs them all."""

    def quantize(x):
        scale = (x.float().abs().amax() / 127).expand(*x.shape[:2], 1)
        return _quantize(x, scale)

    return quantize, _dequantize


@_like("", "granularity")
def one_scale_for_all_heads():
    """Takes the largest number of a token's heads for each of them."""

    def quantize(x):
        scale = x.float().abs().amax((1, 2), keepdim=True) / 127
        return _quantize(x, scale.expand(*x.shape[:2], 1))

    return quantize, _dequantize


@_like("", "range")
def least_scale_too_large():
    """Never lets a scale fall below 1e-3, so small rows vanish."""

    def quantize(x):
        return _quantize(x, (x.float().abs().amax(-1, keepdim=True) / 127).clamp(min=1e-3))

    return quantize, _dequantize


@_like("", "precision")
def scale_in_half_precision():
    """Keeps scales in float16, where large rows become infinite."""

    def quantize(x):
        return _quantize(x, (x.float().abs().amax(-1, keepdim=True) / 127).half().float())

    return quantize, _dequantize


@_like("", "precision")
def range_in_the_type_of_x():
    """Asymmetric: high - low is computed in float16, where it overflows."""

    def quantize(x):
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        scale = (high - low).float() / 255
        scale = torch.where(scale == 0, 1.0, scale)
        return ((x.float() - low.float()) / scale).round().clamp(0, 255), scale, low.float()

    return quantize, lambda codes, scale, zero: codes * scale + zero


@_like("", "zero point")
def zero_point_in_a_byte():
    """Asymmetric: an integer zero point of 0 to 255, which rows far from 0 do not have."""

    def quantize(x):
        low, high = x.float().amin(-1, keepdim=True), x.float().amax(-1, keepdim=True)
        scale = torch.where(high == low, high.abs().clamp(min=1e-9), (high - low)) / 255
        zero = (-low / scale).round().clamp(0, 255)
        return (x.float() / scale + zero).round().clamp(0, 255), scale, zero

    return quantize, lambda codes, scale, zero: (codes - zero) * scale


@_like("", "format")
def fp8_overflows_to_nan():
    """Scales the largest number to 480, and e4m3 ends at 448."""

    def quantize(x):
        scale = x.float().abs().amax(-1, keepdim=True) / 480
        scale = torch.where(scale == 0, 1.0, scale)
        return (x.float() / scale).to(torch.float8_e4m3fn), scale

    return quantize, _dequantize


@_like("lmdeploy #4764", "memory")
def last_number_overwritten():
    """Packs the scale over the last code of a row."""

    def quantize(x):
        codes, scale = _quantize(x)
        codes[..., -1:] = 0
        return codes, scale

    return quantize, _dequantize


@_like("", "frozen")
def scale_of_the_first_call():
    """Keeps the scale of the first tensor of a shape."""
    seen: dict[tuple[int, ...], torch.Tensor] = {}

    def quantize(x):
        _, scale = _quantize(x)
        return _quantize(x, seen.setdefault(tuple(x.shape), scale))

    return quantize, _dequantize


@_like("", "inputs")
def divides_in_place():
    """Uses x as its scratch, and leaves it divided by the scale."""

    def quantize(x):
        codes, scale = _quantize(x.clone())
        x.div_(scale.to(x.dtype))
        return codes, scale

    return quantize, _dequantize


@_like("", "scale")
def dequantises_with_one_scale():
    """Gives every head of a token the scale of its first."""
    return _quantize, lambda codes, scale: codes.float() * scale[:, :1]
