"""Faults of arithmetic: formats too small, functions too coarse, roundings in one direction."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "numerics")
_BF16, _FP16, _FP8 = torch.bfloat16, torch.float16, torch.float8_e4m3fn


def _in(dtype):
    """Rounds to a dtype and back."""
    return lambda x: x.to(dtype).float()


def _weights_in(dtype):
    return lambda self, a, p, value: _in(dtype)(p) @ value


def _scores_in(dtype):
    def scores(self, a, query, key):
        return _in(dtype)(Right.scores(self, a, query, key))

    return scores


def _sums_in(dtype):
    def update(self, a, state, scores, value):
        m, l, acc = Right.update(self, a, state, scores, value)
        return m, _in(dtype)(l), _in(dtype)(acc)

    return update


def _sums_in_dtype_of_query(self, a, state, scores, value):
    return _sums_in(a.query.dtype)(self, a, state, scores, value)


def _partials_in(dtype):
    def one_split(self, a, w, begin, end, length):
        m, l, acc = Right.one_split(self, a, w, begin, end, length)
        return m, l, _in(dtype)(acc)

    return one_split


def _loads_in(dtype, only=("key", "value")):
    def load(self, a, w, which, keys, inside):
        x = Right.load(self, a, w, which, keys, inside)
        return _in(dtype)(x) if which in only else x

    return load


def _coarse_exp(self, a, state, scores, value):
    """Scores are rounded to 1/1024 before the exponential."""
    return Right.update(self, a, state, torch.round(scores * 1024) / 1024, value)


def _truncated(self, a, w, out, lse, o, e):
    """The lower bits are cut off, not rounded."""
    if out.dtype == _BF16:
        o = (o.contiguous().view(torch.int32) & -65536).view(torch.float32)
    Right.store(self, a, w, out, lse, o, e)


def _output_through(dtype):
    def store(self, a, w, out, lse, o, e):
        Right.store(self, a, w, out, lse, _in(dtype)(o), e)

    return store


def _lse_in(dtype):
    return lambda self, m, total: _in(dtype)(Right.lse(self, m, total))


def _for_dtype(dtype, **methods):
    """Other methods for one dtype of the query only; each takes `(self, a, ...)`."""

    def only(name, method):
        right = getattr(Right, name)
        return lambda self, a, *rest: (method if a.query.dtype == dtype else right)(self, a, *rest)

    return {name: only(name, method) for name, method in methods.items()}


def _e4m3_for_e5m2(self, cache, address):
    """Every float of 8 bits is read as e4m3."""
    x = Right.read(self, cache, address)
    return x.view(_FP8) if x.dtype == torch.float8_e5m2 else x


def _unsigned_bytes(self, cache, address):
    x = Right.read(self, cache, address)
    return x.view(torch.uint8) if x.dtype == torch.int8 else x


NUMERICS = (
    _plant("weights_in_fp8", "flashinfer #4199", "Weights are in fp8.", weighted=_weights_in(_FP8)),
    _plant(
        "weights_in_bf16",
        UNKNOWN,
        "Weights are in bfloat16, also for float32.",
        weighted=_weights_in(_BF16),
    ),
    _plant("scores_in_bf16", UNKNOWN, "Scores are kept in bfloat16.", scores=_scores_in(_BF16)),
    _plant(
        "scores_in_fp16",
        UNKNOWN,
        "Scores are kept in float16, and overflow.",
        scores=_scores_in(_FP16),
    ),
    _plant("sums_in_bf16", UNKNOWN, "Sums are in bfloat16.", update=_sums_in(_BF16)),
    _plant("sums_in_fp16", UNKNOWN, "Sums are in float16.", update=_sums_in(_FP16)),
    _plant(
        "sums_in_dtype_of_query",
        UNKNOWN,
        "Sums are in the dtype of the query.",
        update=_sums_in_dtype_of_query,
    ),
    _plant(
        "partials_in_bf16",
        UNKNOWN,
        "Splits hand over their sums in bfloat16.",
        one_split=_partials_in(_BF16),
    ),
    _plant(
        "loads_in_bf16",
        "jax paged_attention (TPU)",
        "Keys and values are rounded to bfloat16 on loading.",
        load=_loads_in(_BF16),
    ),
    _plant(
        "keys_in_fp16",
        UNKNOWN,
        "Keys are rounded to float16 on loading.",
        load=_loads_in(_FP16, ("key",)),
    ),
    _plant("exp_of_10_bits", UNKNOWN, "The exponential has ten bits.", update=_coarse_exp),
    _plant(
        "output_truncated",
        "triton 3.9.0, interpreter",
        "The output is cut to bfloat16, not rounded.",
        store=_truncated,
    ),
    _plant(
        "output_through_bf16",
        UNKNOWN,
        "The output of every dtype goes through bfloat16.",
        store=_output_through(_BF16),
    ),
    _plant(
        "output_through_fp16",
        UNKNOWN,
        "The output of every dtype goes through float16.",
        store=_output_through(_FP16),
    ),
    _plant("lse_in_fp16", UNKNOWN, "The lse goes through float16.", lse=_lse_in(_FP16)),
    _plant(
        "float16_without_window",
        UNKNOWN,
        "The float16 kernel has no window.",
        **_for_dtype(
            _FP16,
            mask=lambda self, a, w, keys: Right.mask(self, replace(a, window=None), w, keys),
            key_range=lambda self, a, w: Right.key_range(self, replace(a, window=None), w),
        ),
    ),
    _plant(
        "bfloat16_with_tiled_heads",
        UNKNOWN,
        "The bfloat16 kernel tiles kv heads.",
        **_for_dtype(
            _BF16,
            kv_heads=lambda self, a: torch.arange(a.query.shape[1]) % a.key_cache.shape[2],
        ),
    ),
    _plant(
        "bfloat16_without_softcap",
        UNKNOWN,
        "The bfloat16 kernel has no softcap.",
        **_for_dtype(_BF16, capped=lambda self, a, scores: scores),
    ),
    _plant(
        "e5m2_read_as_e4m3",
        UNKNOWN,
        "Every float of 8 bits is read as e4m3.",
        read=_e4m3_for_e5m2,
    ),
    _plant("int8_read_as_uint8", UNKNOWN, "int8 is read as uint8.", read=_unsigned_bytes),
)
