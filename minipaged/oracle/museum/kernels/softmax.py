"""Faults of the softmax: running maximum and sum, splits and their merge."""

from __future__ import annotations

from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "softmax")


def _no_rescale(self, a, state, scores, value):
    """The sum of values is not rescaled when the maximum grows."""
    top, l, acc = Right.update(self, a, state, scores, value)
    old = torch.exp(state[0] - self.shift(top))[..., None]
    return top, l, acc + state[2] * (1 - old)


def _sum_no_rescale(self, a, state, scores, value):
    top, l, acc = Right.update(self, a, state, scores, value)
    return top, l + state[1] * (1 - torch.exp(state[0] - self.shift(top))), acc


def _no_maximum(self, m, scores):
    return torch.where(torch.isinf(scores.amax(-1)) & torch.isinf(m), m, 0.0)


def _first_maximum(self, m, scores):
    return torch.where(torch.isinf(m), scores.amax(-1), m)


def _sum_misses_last_tile(self, a, w, begin, end, length):
    m, l, acc = Right.one_split(self, a, w, begin, end, length)
    last = (end - 1) // self.tile * self.tile
    if last <= begin:
        return m, l, acc
    before = Right.one_split(self, a, w, begin, last, length)
    return m, before[1] * torch.exp(before[0] - self.shift(m)), acc


def _base_2(self, a, one, other):
    top = torch.maximum(one[0], other[0])
    mine, theirs = (2.0 ** (x[0] - self.shift(top)) for x in (one, other))
    acc = one[2] * mine[..., None] + other[2] * theirs[..., None]
    return top, one[1] * mine + other[1] * theirs, acc


def _mean_of_splits(self, a, w, states):
    top, l, acc = Right.merge(self, a, w, states)
    outs = [x[2] / x[1].clamp(min=1e-30)[..., None] for x in states]
    return (top, l, sum(outs) / len(outs) * l[..., None]) if outs else (top, l, acc)


def _return_if_no_split(self, a, w, out, lse, o, e):
    if self.key_range(a, w)[0] < self.key_range(a, w)[1]:
        Right.store(self, a, w, out, lse, o, e)


def _only_first_sequence_merged(self, a, w, out, lse, o, e):
    low, high = self.key_range(a, w)
    if not w.s or high - low <= self.split_len(a, w):
        Right.store(self, a, w, out, lse, o, e)


def _merge_needs_lse(self, a, w, states):
    return Right.merge(self, a, w, states if a.return_lse else states[:1])


def _last_split_forgotten(self, a, w, states):
    return Right.merge(self, a, w, states[:-1] if len(states) > 1 else states)


def _stale_accumulator(self, a, w, begin, end, length):
    """A window that begins behind the first tile leaves the accumulator as it was."""
    state = Right.one_split(self, a, w, begin, end, length)
    low = self.key_range(a, w)[0]
    return (state[0], state[1], state[2] * torch.nan) if low >= self.tile else state


SOFTMAX = (
    _plant(
        "inf_minus_inf",
        "llama.cpp #6438",
        "The maximum is subtracted also where it is -inf.",
        shift=lambda self, top: top,
    ),
    _plant(
        "zero_by_zero",
        "flashinfer #353",
        "An empty row is divided by its sum.",
        divided=lambda self, acc, total: acc / total[..., None],
    ),
    _plant(
        "values_not_rescaled",
        UNKNOWN,
        "The sum of values stays when the maximum grows.",
        update=_no_rescale,
    ),
    _plant(
        "sum_not_rescaled",
        UNKNOWN,
        "The sum of weights stays when the maximum grows.",
        update=_sum_no_rescale,
    ),
    _plant("no_maximum", UNKNOWN, "exp of the score as it is.", top=_no_maximum),
    _plant("first_maximum", UNKNOWN, "The maximum of the first tile is kept.", top=_first_maximum),
    _plant(
        "maximum_from_0",
        UNKNOWN,
        "The running maximum begins at 0, so very negative rows vanish.",
        top=lambda self, m, scores: torch.maximum(m, scores.amax(-1)).clamp(min=0.0),
    ),
    _plant(
        "masked_with_minus_10000",
        "flashinfer #4401",
        "Masked scores are -10000, not -inf.",
        masked=lambda self, a, scores, seen: scores.masked_fill(~seen, -1e4),
    ),
    _plant(
        "sum_misses_last_tile",
        UNKNOWN,
        "The sum of weights lacks the last tile.",
        one_split=_sum_misses_last_tile,
    ),
    _plant(
        "splits_merged_in_base_2", "vllm #28840", "Splits are merged by 2^lse.", merge_two=_base_2
    ),
    _plant("mean_of_splits", UNKNOWN, "Splits are averaged, not weighted.", merge=_mean_of_splits),
    _plant(
        "empty_split_merged",
        "sglang #2465",
        "A split without keys adds what its scratch holds from before.",
        dead_split=lambda self, slot: [slot],
    ),
    _plant(
        "empty_split_returns",
        "lmdeploy #788",
        "Without keys there is nothing to merge, and nothing is written.",
        store=_return_if_no_split,
    ),
    _plant(
        "only_first_sequence_merged",
        "flash-attention #2550",
        "With several splits only the first sequence is written.",
        store=_only_first_sequence_merged,
    ),
    _plant(
        "merge_needs_lse",
        "flashinfer #50",
        "If no lse is asked for, splits are not merged.",
        merge=_merge_needs_lse,
    ),
    _plant(
        "last_split_forgotten",
        "aiter #3641",
        "The last of several splits is not merged.",
        merge=_last_split_forgotten,
    ),
    _plant(
        "accumulator_begins_at_block_0",
        "tpu-inference #1954",
        "The accumulator is cleared at tile 0, which a window may skip.",
        one_split=_stale_accumulator,
    ),
)
