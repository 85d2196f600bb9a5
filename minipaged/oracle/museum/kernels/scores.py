"""Faults of softcap and ALiBi."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "scores")


def _arguments(**changes):
    """The same call with other options, each a function of the arguments."""

    def arguments(self, a):
        return replace(a, **{name: change(a) for name, change in changes.items()})

    return arguments


def _cap_after_mask(self, a, scores, seen):
    hidden = scores.masked_fill(~seen, -torch.inf)
    return Right.capped(self, a, hidden)


def _cap_before_scale(self, a, query, key):
    if a.softcap is None:
        return Right.scores(self, a, query, key)
    return a.softcap * torch.tanh(query @ key.transpose(1, 2) / a.softcap) * a.scale


def _alibi_before_cap(self, a, w, scores, keys):
    return self.capped(a, self.alibi(a, w, scores, keys))


def _small_tanh(self, a, scores):
    if a.softcap is None:
        return scores
    x = (scores / a.softcap).clamp(-1.5, 1.5)
    return a.softcap * (x - x**3 / 6.75)


def _capped_sink(self, a):
    sink = Right.sink(self, a)
    return sink if a.softcap is None else a.softcap * torch.tanh(sink / a.softcap)


def _distance(change):
    return lambda self, a, w, keys: change(w, keys - w.positions[:, None], keys)


def _slopes_if(condition):
    def alibi(self, a, w, scores, keys):
        return Right.alibi(self, a, w, scores, keys) if condition(a, w) else scores

    return alibi


SCORES = (
    _plant(
        "softcap_ignored",
        "sgl-kernel-xpu #491",
        "The softcap is taken and not used.",
        arguments=_arguments(softcap=lambda a: None),
    ),
    _plant(
        "softcap_after_mask",
        "flash-attention #1025",
        "The cap turns masked scores into -cap.",
        biased=lambda self, a, w, scores, keys: self.alibi(a, w, scores, keys),
        masked=_cap_after_mask,
    ),
    _plant(
        "softcap_not_multiplied_back",
        UNKNOWN,
        "tanh(score / cap) is not multiplied by the cap.",
        capped=lambda self, a, x: x if a.softcap is None else torch.tanh(x / a.softcap),
    ),
    _plant(
        "softcap_before_scale",
        UNKNOWN,
        "The product is capped, then scaled.",
        scores=_cap_before_scale,
        capped=lambda self, a, scores: scores,
    ),
    _plant(
        "softcap_as_clamp",
        UNKNOWN,
        "Scores are cut at the cap.",
        capped=lambda self, a, x: x if a.softcap is None else x.clamp(-a.softcap, a.softcap),
    ),
    _plant("softcap_by_polynomial", UNKNOWN, "tanh is a polynomial.", capped=_small_tanh),
    _plant(
        "softcap_lost_with_alibi",
        UNKNOWN,
        "With ALiBi slopes there is no cap.",
        arguments=_arguments(softcap=lambda a: None if a.alibi_slopes is not None else a.softcap),
    ),
    _plant(
        "softcap_on_sink",
        UNKNOWN,
        "The sink's logit is capped too.",
        sink=_capped_sink,
    ),
    _plant(
        "alibi_ignored",
        "vllm #57614",
        "ALiBi slopes are taken and not used.",
        arguments=_arguments(alibi_slopes=lambda a: None),
    ),
    _plant("alibi_before_softcap", UNKNOWN, "The bias is capped too.", biased=_alibi_before_cap),
    _plant(
        "alibi_from_length",
        "vllm #945",
        "Distances are counted from the end of the sequence.",
        distance=_distance(lambda w, age, keys: (keys - w.kv_len + 1).expand_as(age)),
    ),
    _plant(
        "alibi_from_first_key",
        "vllm #945",
        "Distances are counted from the first key: only the lse shows it.",
        distance=_distance(lambda w, age, keys: keys.expand_as(age)),
    ),
    _plant(
        "alibi_one_off",
        "vllm #945",
        "Distances are one too large: only the lse shows it.",
        distance=_distance(lambda w, age, keys: age - 1),
    ),
    _plant(
        "alibi_symmetric",
        UNKNOWN,
        "Keys after the query are penalised as those before it are.",
        distance=_distance(lambda w, age, keys: -age.abs()),
    ),
    _plant(
        "alibi_favours_the_far",
        UNKNOWN,
        "The bias has the other sign.",
        distance=_distance(lambda w, age, keys: -age),
    ),
    _plant(
        "alibi_only_in_decode",
        UNKNOWN,
        "Only the decode kernel has ALiBi.",
        alibi=_slopes_if(lambda a, w: w.query_len == 1),
    ),
    _plant(
        "alibi_in_tile",
        UNKNOWN,
        "Distances are counted from the first key of the tile.",
        distance=_distance(lambda w, age, keys: (keys - keys[0]).expand_as(age)),
    ),
)
