"""Faults of masks: causal or not, where queries stand, lanes of no key."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "masks")


def _causal_if(condition):
    """As if the call were causal, or not."""

    def work_mask(self, a, w, keys):
        return Right.mask(self, replace(a, causal=condition(a, w)), w, keys)

    def key_range(self, a, w):
        return Right.key_range(self, replace(a, causal=condition(a, w)), w)

    return {"mask": work_mask, "key_range": key_range}


def _one_future_key(self, a, w, keys):
    moved = replace(w, positions=w.positions + 1) if a.causal else w
    return Right.mask(self, a, moved, keys) | Right.mask(self, a, w, keys)


def _not_itself(self, a, w, keys):
    return Right.mask(self, a, w, keys) & ~(a.causal & (keys == w.positions[:, None]))


def _unsigned(self, a, w, keys):
    return Right.mask(self, a, w, keys) | ((w.positions[:, None] < 0) & (keys < w.kv_len))


def _unsigned_range(self, a, w):
    low, high = Right.key_range(self, a, w)
    return low, w.kv_len if int(w.positions[0]) < 0 else high


def _last_row_of_tile(self, a, w, keys):
    return Right.mask(self, a, replace(w, positions=w.positions[-1:].expand_as(w.positions)), keys)


def _no_boundary_mask(self, a, w, keys, inside):
    seen = self.mask(a, replace(w, kv_len=w.kv_len + self.tile), keys)
    return seen & (inside if a.causal else torch.ones_like(inside))


def _split_end_unmasked(self, a, w, keys, begin, end):
    tile_end = -(-end // self.tile) * self.tile
    return (keys >= begin) & (keys < min(tile_end, w.kv_len))


MASKS = (
    _plant(
        "causal_from_top_left",
        "sparkinfer #3",
        "The first query stands at the first key.",
        positions=lambda self, a, index, count, kv_len: index,
    ),
    _plant(
        "causal_sees_one_future_key",
        "sparkinfer #3",
        "A query sees the key after it.",
        mask=_one_future_key,
        key_range=lambda self, a, w: (
            (r := Right.key_range(self, a, w)) and (r[0], min(w.kv_len, r[1] + 1))
        ),
    ),
    _plant("query_not_itself", UNKNOWN, "A query does not see its own key.", mask=_not_itself),
    _plant(
        "always_causal",
        "flashinfer #4199",
        "`causal=False` is ignored.",
        **_causal_if(lambda a, w: True),
    ),
    _plant(
        "never_causal", UNKNOWN, "Every query sees every key.", **_causal_if(lambda a, w: False)
    ),
    _plant(
        "causal_lost_with_window",
        UNKNOWN,
        "A window replaces the causal mask instead of joining it.",
        **_causal_if(lambda a, w: a.causal and a.window is None),
    ),
    _plant(
        "mask_of_last_row_of_tile",
        UNKNOWN,
        "All queries of a tile see what its last one sees.",
        mask=_last_row_of_tile,
    ),
    _plant(
        "unsigned_position",
        "flashinfer #353",
        "A query before the first key sees everything.",
        mask=_unsigned,
        key_range=_unsigned_range,
    ),
    _plant(
        "padding_lanes_counted",
        "flashinfer #3716",
        "Without the causal mask, the empty lanes of the last tile count with score 0.",
        seen=_no_boundary_mask,
    ),
    _plant(
        "split_end_unmasked",
        "flashinfer #1206",
        "A split is not cut where its chunk ends within a tile.",
        inside=_split_end_unmasked,
        split_len=lambda self, a, w: -(-w.kv_len // self.num_splits) + 1,
    ),
)
