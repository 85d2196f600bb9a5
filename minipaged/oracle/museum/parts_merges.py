"""Mergers of attention states with one fault each; every function is wrong on purpose."""

from __future__ import annotations

import math

import torch

from .exhibit import Exhibit, hang

MERGES: list[Exhibit] = []
INF = torch.inf


def _finite(x):
    return x.masked_fill(x == -INF, 0.0)


def _clean(out, lse):
    return out.float().masked_fill((lse == -INF)[..., None], 0.0)


def _merge(out_a, lse_a, out_b, lse_b, exp=torch.exp, log=torch.log):
    """The right merger."""
    top = torch.maximum(lse_a, lse_b)
    a, b = (exp(lse - _finite(top)) for lse in (lse_a, lse_b))
    total = torch.where(a + b == 0, 1.0, a + b)
    out = a[..., None] * _clean(out_a, lse_a) + b[..., None] * _clean(out_b, lse_b)
    return (out / total[..., None]).to(out_a.dtype), top + log(a + b)


@hang(MERGES, "merge", "-inf - -inf", "vllm #28181, flashinfer #4051")
def both_empty_give_nan(out_a, lse_a, out_b, lse_b):
    """Subtracts the maximum even when it is -inf."""
    top = torch.maximum(lse_a, lse_b)
    a, b = torch.exp(lse_a - top), torch.exp(lse_b - top)
    out = a[..., None] * _clean(out_a, lse_a) + b[..., None] * _clean(out_b, lse_b)
    return (out / (a + b)[..., None]).to(out_a.dtype), top + torch.log(a + b)


@hang(MERGES, "merge", "empty rows", "vllm #641")
def nan_of_an_empty_row_leaks(out_a, lse_a, out_b, lse_b):
    """Multiplies what an empty row holds by a weight of 0."""
    top = torch.maximum(lse_a, lse_b)
    a, b = (torch.exp(lse - _finite(top)) for lse in (lse_a, lse_b))
    total = torch.where(a + b == 0, 1.0, a + b)
    out = (a[..., None] * out_a.float() + b[..., None] * out_b.float()) / total[..., None]
    return out.to(out_a.dtype), top + torch.log(a + b)


@hang(MERGES, "merge", "empty rows", "flashinfer #353")
def both_empty_keep_the_first(out_a, lse_a, out_b, lse_b):
    """Returns the first row untouched where the second is empty, garbage included."""
    out, lse = _merge(out_a, lse_a, out_b, lse_b)
    return torch.where((lse_b == -INF)[..., None], out_a, out), lse


@hang(MERGES, "merge", "empty rows")
def both_empty_have_a_large_negative_lse(out_a, lse_a, out_b, lse_b):
    """Says -1e30 instead of -inf."""
    out, lse = _merge(out_a, lse_a, out_b, lse_b)
    return out, lse.clamp(min=-1e30)


@hang(MERGES, "merge", "empty rows")
def very_negative_is_empty(out_a, lse_a, out_b, lse_b):
    """Takes every lse below -5000 for an empty row."""
    lse_a, lse_b = (torch.where(lse < -5000, -INF, lse) for lse in (lse_a, lse_b))
    return _merge(out_a, lse_a, out_b, lse_b)


@hang(MERGES, "merge", "lse base", "vllm #28840, sglang #40903")
def lse_to_base_two(out_a, lse_a, out_b, lse_b):
    """Takes lse for a logarithm to base 2."""
    return _merge(out_a, lse_a, out_b, lse_b, torch.exp2, torch.log2)


@hang(MERGES, "merge", "lse base", "flashinfer #787")
def returned_lse_to_base_two(out_a, lse_a, out_b, lse_b):
    """Weighs right and returns the lse divided by ln 2."""
    out, lse = _merge(out_a, lse_a, out_b, lse_b)
    return out, lse / math.log(2)


@hang(MERGES, "merge", "overflow")
def no_maximum_subtracted(out_a, lse_a, out_b, lse_b):
    """Takes exp of the lse as they are."""
    a, b = torch.exp(lse_a), torch.exp(lse_b)
    total = torch.where(a + b == 0, 1.0, a + b)
    out = a[..., None] * _clean(out_a, lse_a) + b[..., None] * _clean(out_b, lse_b)
    return (out / total[..., None]).to(out_a.dtype), torch.log(a + b)


@hang(MERGES, "merge", "overflow")
def always_relative_to_the_first(out_a, lse_a, out_b, lse_b):
    """Subtracts lse_a, whichever is larger."""
    top = torch.where(lse_a == -INF, lse_b, lse_a)
    a, b = (torch.exp(lse - _finite(top)) for lse in (lse_a, lse_b))
    total = torch.where(a + b == 0, 1.0, a + b)
    out = a[..., None] * _clean(out_a, lse_a) + b[..., None] * _clean(out_b, lse_b)
    return (out / total[..., None]).to(out_a.dtype), top + torch.log(a + b)


@hang(MERGES, "merge", "formula")
def lse_is_the_larger_one(out_a, lse_a, out_b, lse_b):
    """Returns the maximum instead of the logarithm of the sum."""
    out, _ = _merge(out_a, lse_a, out_b, lse_b)
    return out, torch.maximum(lse_a, lse_b)


@hang(MERGES, "merge", "formula")
def weights_exchanged(out_a, lse_a, out_b, lse_b):
    """Weighs the first with the second's weight."""
    out, _ = _merge(out_b, lse_a, out_a, lse_b)
    return out, _merge(out_a, lse_a, out_b, lse_b)[1]


@hang(MERGES, "merge", "formula")
def not_divided(out_a, lse_a, out_b, lse_b):
    """Leaves the division by the sum of weights out."""
    top = torch.maximum(lse_a, lse_b)
    a, b = (torch.exp(lse - _finite(top)) for lse in (lse_a, lse_b))
    out = a[..., None] * _clean(out_a, lse_a) + b[..., None] * _clean(out_b, lse_b)
    return out.to(out_a.dtype), top + torch.log(a + b)


@hang(MERGES, "merge", "layout", "flashinfer #5257")
def lse_head_by_token(out_a, lse_a, out_b, lse_b):
    """Reads a [num_tokens, num_heads] lse in the order of a [num_heads, num_tokens] one."""
    shape = lse_a.shape
    turned = (x.reshape(shape[::-1]).T for x in (lse_a, lse_b))
    a, b = turned
    out, _ = _merge(out_a, a, out_b, b)
    return out, _merge(out_a, lse_a, out_b, lse_b)[1]


@hang(MERGES, "merge", "precision")
def weights_in_the_type_of_out(out_a, lse_a, out_b, lse_b):
    """Rounds lse to the type of the outputs before using it."""
    return _merge(out_a, lse_a.to(out_a.dtype).float(), out_b, lse_b.to(out_b.dtype).float())


@hang(MERGES, "merge", "inputs")
def writes_into_the_first(out_a, lse_a, out_b, lse_b):
    """Is right, but uses the first state as its output buffer."""
    out, lse = _merge(out_a, lse_a, out_b, lse_b)
    return out_a.copy_(out), lse_a.copy_(lse)


@hang(MERGES, "merge", "tails", "vllm #4128")
def first_128_dims(out_a, lse_a, out_b, lse_b):
    """Has threads for 128 dims; the others stay 0."""
    out, lse = _merge(out_a, lse_a, out_b, lse_b)
    out[..., 128:] = 0
    return out, lse


@hang(MERGES, "merge", "strides")
def packed_lse_assumed(out_a, lse_a, out_b, lse_b):
    """Reads lse as contiguous."""
    heads = lse_a.shape[1]
    a, b = (x.as_strided(x.shape, (heads, 1)) if x.numel() else x for x in (lse_a, lse_b))
    return _merge(out_a, a, out_b, b)


@hang(MERGES, "merge", "launch", "flashinfer #3125")
def first_65535_rows(out_a, lse_a, out_b, lse_b):
    """Launches 65 535 rows at most; the others hold what the memory held."""
    out, lse = _merge(out_a, lse_a, out_b, lse_b)
    out[65535:] = 0
    return out, lse
