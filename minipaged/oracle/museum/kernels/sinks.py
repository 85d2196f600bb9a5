"""Faults of the end of the softmax: sinks and the lse."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "softmax")


def _with_sink(change):
    """The sink joins in another way: a function of m, l, acc, the sink."""

    def with_sinks(self, a, state):
        return state if a.sinks is None else change(*state, self.sink(a))

    return with_sinks


def _sink_as_number(m, l, acc, sink):
    return m, l + torch.where(l > 0, sink.clamp(min=-0.5), 0.0), acc


def _sink_in_values(m, l, acc, sink):
    top = torch.maximum(m, sink)
    old, share = torch.exp(m - top), torch.exp(sink - top)
    return top, l * old + share, acc * old[..., None] + share[..., None]


def _sink_per_split(self, a, w, begin, end, length):
    return Right.with_sinks(self, a, Right.one_split(self, a, w, begin, end, length))


def _sink_only_if_seen(self, a, state):
    m, l, acc = Right.with_sinks(self, a, state)
    seen = state[1] > 0
    return m.where(seen, torch.tensor(-torch.inf)), l.where(seen, torch.tensor(0.0)), acc


def _sinks_if(condition):
    def arguments(self, a):
        return a if condition(a) else replace(a, sinks=None)

    return arguments


def _lse_without_sink(self, a, state):
    out, _ = Right.finish(self, a, state)
    return out, Right.lse(self, *state[:2])


def _lse_of_last_split(self, a, w, states):
    m, l, acc = Right.merge(self, a, w, states)
    if not states:
        return m, l, acc
    last_m, last_l, _ = states[-1]
    return last_m, last_l, acc * (last_l / l * torch.exp(last_m - m))[..., None]


SINKS = (
    _plant(
        "sink_not_exponentiated",
        "flash-attention e81c237e",
        "The sink itself is added to the sum.",
        with_sinks=_with_sink(_sink_as_number),
    ),
    _plant(
        "sink_in_values",
        UNKNOWN,
        "The sink counts as a key whose values are 1.",
        with_sinks=_with_sink(_sink_in_values),
    ),
    _plant("sink_ignored", UNKNOWN, "Sinks are ignored.", arguments=_sinks_if(lambda a: False)),
    _plant(
        "sink_twice",
        UNKNOWN,
        "The sink counts twice.",
        with_sinks=lambda self, a, x: Right.with_sinks(self, a, Right.with_sinks(self, a, x)),
    ),
    _plant(
        "sink_per_split",
        UNKNOWN,
        "The sink counts once per split.",
        one_split=_sink_per_split,
        with_sinks=lambda self, a, state: (
            state if state[1].all() else Right.with_sinks(self, a, state)
        ),
    ),
    _plant(
        "sink_scaled",
        UNKNOWN,
        "The sink is multiplied by the softmax scale.",
        sink=lambda self, a: Right.sink(self, a) * a.scale,
    ),
    _plant(
        "sink_only_if_something_is_seen",
        UNKNOWN,
        "The lse of a row without keys is -inf, sink or not.",
        with_sinks=_sink_only_if_seen,
    ),
    _plant(
        "sink_lost_with_window",
        UNKNOWN,
        "With a window there is no sink.",
        arguments=_sinks_if(lambda a: a.window is None),
    ),
    _plant(
        "lse_in_base_2",
        "vllm #28840",
        "The lse is a logarithm to base 2.",
        lse=lambda self, m, total: (m + torch.log(total)) * 1.4426950408889634,
    ),
    _plant(
        "lse_without_sink", "vllm #52796", "The lse leaves the sink out.", finish=_lse_without_sink
    ),
    _plant(
        "lse_of_empty_is_inf",
        "flashinfer #4484",
        "The lse of an empty row is +inf.",
        lse=lambda self, m, total: torch.where(total == 0, torch.inf, m + torch.log(total)),
    ),
    _plant(
        "lse_of_empty_is_0",
        "flashinfer #4484",
        "The lse of an empty row is 0.",
        lse=lambda self, m, total: torch.where(total == 0, 0.0, m + torch.log(total)),
    ),
    _plant("lse_is_maximum", UNKNOWN, "The lse is the maximum.", lse=lambda self, m, total: m),
    _plant(
        "lse_without_maximum",
        UNKNOWN,
        "The lse is the logarithm of the scaled sum.",
        lse=lambda self, m, total: torch.log(total),
    ),
    _plant(
        "lse_of_last_split",
        "fla-org #1030",
        "Every split writes the lse, and the last one stays.",
        merge=_lse_of_last_split,
    ),
)
