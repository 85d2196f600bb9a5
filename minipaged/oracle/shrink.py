"""The smallest recipe that still shows a failure; knows recipes, not kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .contract import Features
from .recipes import Recipe

Still = Callable[[Recipe], str | None]


def shrink(
    recipe: Recipe,
    message: str,
    still: Still,
    features: Features,
    max_tries: int = 400,
    seconds: float = 10.0,
) -> tuple[Recipe, str]:
    """A recipe as plain as it gets for which `still` says what is wrong, and what it says.

    Greedy: the first simpler recipe that still fails is the next to be simplified, until none
    does or the budget is spent.
    """
    deadline, tries = time.perf_counter() + seconds, 0
    progress = True
    while progress:
        progress = False
        for candidate in simpler(recipe, features):
            if candidate == recipe:
                continue
            if tries >= max_tries or time.perf_counter() > deadline:
                return recipe, message
            tries += 1
            found = still(candidate)
            if found:
                recipe, message, progress = candidate, found, True
                break
    return recipe, message


def simpler(recipe: Recipe, features: Features) -> Iterator[Recipe]:
    """Simpler recipes that the same kernel takes, the boldest first."""
    yield from _fewer_sequences(recipe, features)
    yield from _shorter(recipe, features)
    plain = {
        "num_kv_heads": features.num_kv_heads[0],
        "group": features.groups[0],
        "softcap": None,
        "alibi": False,
        "sinks": False,
        "mask": "",
        "kv_form": "",
        "share": 0,
        "share_tail": False,
        "storage": "",
        "extra_columns": 0,
        "order": "consecutive",
        "values": "normal",
        "scale": 0.0,
        "dtype": features.dtypes[0],
        "content": 0,
        "place": 0,
    }
    for name, value in plain.items():
        if getattr(recipe, name) != value:
            yield replace(recipe, **{name: value})
    if recipe.window != (None, None):
        left, right = recipe.window
        yield replace(recipe, window=(None, None))
        yield replace(recipe, window=(left, None))
        yield replace(recipe, window=(None if left is None else left // 2, right))
    if not recipe.causal and True in features.causal:
        yield replace(recipe, causal=True)
    yield from _smaller(recipe, "head_dim", features.head_dims)
    if features.value_head_dims and not features.latent and recipe.value_head_dim:
        yield replace(recipe, value_head_dim=0)
        yield from _smaller(recipe, "value_head_dim", features.value_head_dims)
    yield from _smaller(recipe, "block_size", features.block_sizes)
    least = {"num_kv_heads": features.num_kv_heads[0], "group": features.groups[0]}
    for name, fewest in (*least.items(), ("extra_blocks", 1)):
        if getattr(recipe, name) > fewest:
            yield replace(recipe, **{name: getattr(recipe, name) - 1})


def _fewer_sequences(recipe: Recipe, features: Features) -> Iterator[Recipe]:
    count = len(recipe.lengths)
    if count > features.num_seqs[0]:
        for s in range(count):
            if features.num_seqs[0] <= 1:
                yield replace(recipe, lengths=(recipe.lengths[s],))
        for s in range(count):
            yield replace(recipe, lengths=recipe.lengths[:s] + recipe.lengths[s + 1 :])


def _shorter(recipe: Recipe, features: Features) -> Iterator[Recipe]:
    least_query, least_kv = features.query_len[0], features.kv_len[0]
    for s, (query_len, kv_len) in enumerate(recipe.lengths):
        for q in _less(query_len, least_query):
            if features.ragged:
                yield _with_lengths(recipe, s, q, kv_len)
            elif s == 0:
                yield replace(recipe, lengths=tuple((q, k) for _, k in recipe.lengths))
        for k in _less(kv_len, least_kv):
            if k >= query_len or kv_len < query_len or features.queries_beyond_keys:
                yield _with_lengths(recipe, s, query_len, k)
        if query_len > max(least_query, 1) and kv_len > max(least_kv, 1) and features.ragged:
            yield _with_lengths(recipe, s, query_len - 1, kv_len - 1)


def _less(n: int, least: int) -> list[int]:
    return sorted({m for m in (least, 1, 2, n // 2, n - 1) if least <= m < n})


def _with_lengths(recipe: Recipe, s: int, query_len: int, kv_len: int) -> Recipe:
    lengths = (*recipe.lengths[:s], (query_len, kv_len), *recipe.lengths[s + 1 :])
    return replace(recipe, lengths=lengths)


def _smaller(recipe: Recipe, name: str, choices: tuple[int, ...]) -> Iterator[Recipe]:
    for value in sorted(choices):
        if value < getattr(recipe, name):
            yield replace(recipe, **{name: value})
