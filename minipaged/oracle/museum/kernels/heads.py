"""Faults of heads and head dims: which head goes with which, and how much of it is read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "heads")


def _each_head(a):
    return torch.arange(a.query.shape[1])


def _only_for(which_one, heads):
    """Other kv heads, for the keys or for the values only."""

    def load(self, a, w, which, keys, inside):
        other: Any = self if which != which_one else _Changed(self, heads(a))
        return Right.load(other, a, w, which, keys, inside)

    return load


class _Changed:
    """A kernel with other kv heads."""

    def __init__(self, kernel, heads):
        self.kernel, self.heads = kernel, heads

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def kv_heads(self, a):
        return self.heads


def _dims_up_to(count):
    """The product over some of the dims only."""

    def scores(self, a, query, key):
        n = count(a.query.shape[2])
        return Right.scores(self, a, query[..., :n], key[..., :n])

    return scores


def _padded_dims(self, a, query, key):
    """Lanes up to the next power of two are read as well: the next numbers of the row."""
    dim = a.query.shape[2]
    more = (1 << (dim - 1).bit_length()) - dim
    lanes = torch.arange(more) % dim
    wide = (torch.cat([x, x[..., lanes]], -1) for x in (query, key))
    return Right.scores(self, a, *wide)


def _unwritten_heads(count):
    def store(self, a, w, out, lse, o, e):
        n = count(a)
        out[w.rows, :n], lse[w.rows, :n] = o.transpose(0, 1)[:, :n].to(out.dtype), e.T[:, :n]

    return store


def _value_dims_up_to(limit):
    def store(self, a, w, out, lse, o, e):
        out[w.rows, :, :limit] = o.transpose(0, 1)[..., :limit].to(out.dtype)
        lse[w.rows] = e.T

    return store


def _sinks_of_first_group(self, a, state):
    if a.sinks is None:
        return state
    first = torch.arange(len(a.sinks)) < a.group
    return Right.with_sinks(
        self, replace(a, sinks=a.sinks.where(first, torch.tensor(-1e30))), state
    )


def _scale_by_query_head(self, a, which):
    scale = a.k_scale if which == "key" else a.v_scale
    if not isinstance(scale, torch.Tensor) or not scale.ndim:
        return Right.head_scale(self, a, which)
    return scale[_each_head(a) % len(scale)]


def _default_slopes(self, a):
    heads = len(a.alibi_slopes)
    return 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)


HEADS = (
    _plant(
        "gqa_modulo",
        "onnx #7274",
        "Kv heads are tiled over the query heads, not repeated.",
        kv_heads=lambda self, a: _each_head(a) % a.key_cache.shape[2],
    ),
    _plant(
        "gqa_modulo_of_group",
        "HipKittens #22",
        "A permutation of heads that is right only if there are as many groups as kv heads.",
        kv_heads=lambda self, a: _each_head(a) // a.key_cache.shape[2] % a.key_cache.shape[2],
    ),
    _plant(
        "kv_head_of_head_tile",
        "lmdeploy #2688",
        "A group of more than 4 query heads takes the next kv head after 4 of them.",
        kv_heads=lambda self, a: (_each_head(a) // min(a.group, 4)).clamp(
            max=a.key_cache.shape[2] - 1
        ),
    ),
    _plant(
        "values_of_first_kv_head",
        UNKNOWN,
        "All query heads take the values of kv head 0.",
        load=_only_for("value", lambda a: _each_head(a) * 0),
    ),
    _plant(
        "keys_of_next_kv_head",
        UNKNOWN,
        "Keys come from the kv head after the right one.",
        load=_only_for("key", lambda a: (_each_head(a) // a.group + 1) % a.key_cache.shape[2]),
    ),
    _plant(
        "odd_groups_cut",
        "lmdeploy #1761",
        "Heads are launched in pairs, so the last one of an odd number is never written.",
        store=_unwritten_heads(lambda a: a.query.shape[1] // 2 * 2 or 1),
    ),
    _plant(
        "at_most_8_heads",
        UNKNOWN,
        "Query heads from the ninth on are never written.",
        store=_unwritten_heads(lambda a: 8),
    ),
    _plant(
        "slope_of_kv_head",
        UNKNOWN,
        "ALiBi slopes are indexed by kv head.",
        slopes=lambda self, a: a.alibi_slopes[self.kv_heads(a)],
    ),
    _plant(
        "slopes_recomputed",
        UNKNOWN,
        "ALiBi slopes are those of the paper, whatever is passed.",
        slopes=_default_slopes,
    ),
    _plant(
        "sink_of_kv_head",
        UNKNOWN,
        "Sinks are indexed by kv head.",
        sink=lambda self, a: a.sinks[self.kv_heads(a)][:, None],
    ),
    _plant(
        "sinks_of_first_group",
        "TRT-LLM #15739",
        "Sinks apply to the first group of heads only.",
        with_sinks=_sinks_of_first_group,
    ),
    _plant(
        "scale_of_query_head",
        UNKNOWN,
        "Scales per kv head are indexed by query head.",
        head_scale=_scale_by_query_head,
    ),
    _plant(
        "scale_of_first_head",
        UNKNOWN,
        "Of scales per kv head only the first is used.",
        head_scale=lambda self, a, which: (
            None if (s := Right.head_scale(self, a, which)) is None else s[:1].expand_as(s)
        ),
    ),
    _plant(
        "head_dim_padded",
        "vllm #4128",
        "Head dims are rounded up to a power of two, and the lanes beyond are not masked.",
        scores=_padded_dims,
    ),
    _plant(
        "head_dim_in_eights",
        UNKNOWN,
        "Dims beyond a multiple of 8 are left out of the product.",
        scores=_dims_up_to(lambda dim: dim // 8 * 8 or dim),
    ),
    _plant(
        "head_dim_up_to_64",
        UNKNOWN,
        "Dims from 64 on are left out of the product.",
        scores=_dims_up_to(lambda dim: min(dim, 64)),
    ),
    _plant(
        "value_dim_up_to_64",
        "fla-org #1030",
        "Elements of the output from 64 on are never written.",
        store=_value_dims_up_to(64),
    ),
)
