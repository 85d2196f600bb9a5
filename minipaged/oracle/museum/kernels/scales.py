"""Faults of the softmax scale and of the scales of a quantised cache."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "scores")


def _arguments(**changes):
    """The same call with other options, each a function of the arguments."""

    def arguments(self, a):
        return replace(a, **{name: change(a) for name, change in changes.items()})

    return arguments


def _squared(self, a, which):
    scale = Right.head_scale(self, a, which)
    return scale if scale is None or which == "key" else scale**2


SCALES = (
    _plant(
        "scale_ignored",
        UNKNOWN,
        "The scale is always 1 / sqrt(head_dim).",
        arguments=_arguments(scale=lambda a: 1 / math.sqrt(a.query.shape[2])),
    ),
    _plant(
        "scale_of_value_dim",
        UNKNOWN,
        "The default scale is computed from the dim of the values.",
        arguments=_arguments(
            scale=lambda a: a.scale * math.sqrt(a.query.shape[2] / a.value_cache.shape[3])
        ),
    ),
    _plant(
        "scale_1_percent_off",
        UNKNOWN,
        "The scale is 1 % too large.",
        arguments=_arguments(scale=lambda a: a.scale * 1.01),
    ),
    _plant(
        "exp_of_2",
        "flashinfer #787",
        "exp2 is used without the factor log2(e).",
        arguments=_arguments(scale=lambda a: a.scale * math.log(2)),
    ),
    _plant(
        "k_scale_ignored",
        "flashinfer #1023",
        "`k_scale` is dropped.",
        arguments=_arguments(k_scale=lambda a: None),
    ),
    _plant(
        "v_scale_ignored",
        "flashinfer #1416",
        "`v_scale` is missing.",
        arguments=_arguments(v_scale=lambda a: None),
    ),
    _plant(
        "v_scale_of_keys",
        "flashinfer #1416",
        "Values take the scale of the keys.",
        arguments=_arguments(v_scale=lambda a: a.k_scale),
    ),
    _plant(
        "scales_swapped",
        UNKNOWN,
        "`k_scale` and `v_scale` are swapped.",
        arguments=_arguments(k_scale=lambda a: a.v_scale, v_scale=lambda a: a.k_scale),
    ),
    _plant("v_scale_twice", UNKNOWN, "`v_scale` is applied twice.", head_scale=_squared),
)
