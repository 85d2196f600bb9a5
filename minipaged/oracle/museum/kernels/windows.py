"""Faults of sliding windows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..specimen import Specimen as Right
from .planting import UNKNOWN, plant

_plant = partial(plant, "masks")


def _window(change):
    """The same arguments with another window where there is one."""

    def arguments(self, a):
        return a if a.window is None else replace(a, window=change(a.window))

    return arguments


def _window_if(condition):
    """A window only for some calls or queries."""

    def chosen(a, w):
        return a if condition(a, w) else replace(a, window=None)

    return {
        "mask": lambda self, a, w, keys: Right.mask(self, chosen(a, w), w, keys),
        "key_range": lambda self, a, w: Right.key_range(self, chosen(a, w), w),
    }


def _window_of_last_query(self, a, w, keys):
    seen = Right.mask(self, replace(a, window=None), w, keys)
    return seen if a.window is None else seen & (w.kv_len - 1 - keys < a.window)


def _whole_tiles(self, a, w, keys):
    first = int(w.positions[0]) - (a.window or 0) + 1
    tile = first // self.tile * self.tile
    seen = Right.mask(self, replace(a, window=None), w, keys)
    return seen if a.window is None else seen & (keys >= max(tile, 0))


def _values_by_first_query(self, a, w, which, keys, inside):
    if which == "value" and a.window is not None and not a.causal:
        inside = inside & (keys <= w.positions[0] + a.window - 1)
    return Right.load(self, a, w, which, keys, inside)


def _low_tile(self, a, w):
    """The loop starts a tile too late."""
    low, high = Right.key_range(self, a, w)
    return (-(-low // self.tile) * self.tile if a.window is not None else low), high


WINDOWS = (
    _plant(
        "window_one_too_large",
        "transformers #39408",
        "A window of w shows w + 1 keys.",
        arguments=_window(lambda w: w + 1),
    ),
    _plant(
        "window_one_too_small",
        "openvino #30714",
        "A window of w shows w - 1 keys.",
        arguments=_window(lambda w: w - 1),
    ),
    _plant(
        "window_ignored", "TGI #3112", "The window is ignored.", arguments=_window(lambda w: None)
    ),
    _plant(
        "window_ignored_in_decode",
        "TGI #3112",
        "The window is not passed to the decode kernel.",
        **_window_if(lambda a, w: w.query_len > 1),
    ),
    _plant(
        "window_only_in_decode",
        "LightLLM #1311",
        "Only the decode kernel has the window.",
        **_window_if(lambda a, w: w.query_len == 1),
    ),
    _plant(
        "window_only_if_causal",
        "vllm #51257",
        "Without the causal mask there is no window either.",
        **_window_if(lambda a, w: a.causal),
    ),
    _plant(
        "window_of_last_query",
        UNKNOWN,
        "Every query has the window of the sequence's last one.",
        mask=_window_of_last_query,
    ),
    _plant(
        "window_in_whole_tiles",
        "sglang #31501",
        "Tiles before the window are skipped, but no key is masked.",
        mask=_whole_tiles,
        key_range=lambda self, a, w: (
            (r := Right.key_range(self, a, w)) and (r[0] // self.tile * self.tile, r[1])
        ),
    ),
    _plant(
        "window_a_tile_late",
        "tpu-inference #1954",
        "The first tile of a window is skipped if it is not whole.",
        key_range=_low_tile,
    ),
    _plant(
        "window_as_ring",
        "transformers #47708",
        "Keys are looked for at their position modulo the window.",
        load=lambda self, a, w, which, keys, inside: Right.load(
            self, a, w, which, keys % max(a.window or 1 << 30, 1), inside
        ),
    ),
    _plant(
        "values_masked_by_first_query",
        "vllm #51257",
        "Without the causal mask, values are cut by the window of the tile's first query.",
        load=_values_by_first_query,
    ),
)
