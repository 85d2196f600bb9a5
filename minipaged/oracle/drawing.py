"""Cases by chance: a recipe in dice, whoever throws them; knows neither Hypothesis nor kernels.

The judge throws with a generator of its own: independent throws meet pairs of options that a search
which varies one case at a time seldom meets.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from .contract import Contract, Features
from .recipes import NAMES_OF_VALUES, Recipe

DRAWN_VALUES = ("normal", "normal", "normal", *NAMES_OF_VALUES)
EASY_VALUES = ("normal", "normal", "peaky", "counting", "needle", "constant", "offset", "integer")
SCALES = (0.0, 0.0, 1.0, 0.3, 0.05)
SOFTCAPS = (0.5, 1.0, 2.0, 5.0, 30.0)  # small ones: a cap far above the scores changes nothing

T = TypeVar("T")


class Dice(Protocol):
    """Where chance comes from."""

    def choice(self, options: Sequence[T]) -> T:
        """One of them."""
        ...

    def integer(self, least: int, most: int) -> int:
        """From least to most, both included."""
        ...


class Generator:
    """Independent throws from a seed."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def choice(self, options: Sequence[T]) -> T:
        """As `Dice`."""
        return self.random.choice(options)

    def integer(self, least: int, most: int) -> int:
        """As `Dice`."""
        return self.random.randint(least, most)


def draw_recipe(dice: Dice, features: Features, contract: Contract, level: int) -> Recipe:
    """A recipe that a kernel of these features takes.

    Below level 3 every sequence has at least one key and no more queries than keys, and numbers
    are of ordinary size; from there on edges are likely.
    """
    block_size = dice.choice(sorted(features.block_sizes))
    lengths = _lengths(dice, features, block_size, level)
    on = _options(dice)
    kv_form = dice.choice((*("",) * (1 + len(features.kv_forms)), *features.kv_forms))
    causal = dice.choice(features.causal)
    head_dim = dice.choice(sorted(features.head_dims))
    return Recipe(
        lengths=lengths,
        num_kv_heads=_small(dice, *features.num_kv_heads),
        group=_small(dice, *features.groups),
        head_dim=head_dim,
        value_head_dim=_value_head_dim(dice, features, head_dim),
        block_size=block_size,
        dtype=dice.choice(features.dtypes),
        kv_form=kv_form,
        kv_scales=dice.choice(features.kv_scales) if kv_form else "tensor",
        causal=causal,
        window=_window(dice, features, causal, lengths, level),
        softcap=dice.choice(SOFTCAPS) if on(features.softcap) else None,
        alibi=on(features.alibi),
        sinks=on(features.sinks),
        mask=dice.choice(features.masks) if on(bool(features.masks)) else "",
        scale=dice.choice(SCALES) if features.scales else 0.0,
        values=dice.choice(EASY_VALUES if level < 3 else DRAWN_VALUES),
        share=dice.integer(0, 3) if features.shared_blocks else 0,
        share_tail=features.shared_tails and _flag(dice),
        poison=dice.choice(_poisons(contract)),
        padding=dice.choice(_paddings(contract)),
        extra_columns=dice.integer(0, 2),
        extra_blocks=dice.integer(1, 4),
        order=dice.choice(("permuted", "reversed", "consecutive", "far")),
        storage=dice.choice(("", *features.storages)),
        alignment=dice.choice(features.alignments),
        latent=features.latent,
        content=dice.integer(0, 10_000),
        place=dice.integer(0, 10_000),
    )


def _small(dice: Dice, least: int, most: int) -> int:
    """Small ones more often: they cost less."""
    return min(dice.integer(least, most), dice.integer(least, most))


def _flag(dice: Dice) -> bool:
    return dice.choice((False, True))


def _options(dice: Dice):
    """`on(feature)`: draw whether it is used; a third of the cases use none."""
    busy = dice.choice((False, True, True))
    return lambda feature: bool(feature) and busy and _flag(dice)


def _lengths(
    dice: Dice, features: Features, block_size: int, level: int
) -> tuple[tuple[int, int], ...]:
    first = _query_len(dice, features, level) if not features.ragged else None
    pairs = []
    for _ in range(_small(dice, *features.num_seqs)):
        query_len = _query_len(dice, features, level) if first is None else first
        kv_len = _kv_len(dice, features, block_size, level)
        if level < 3 or not features.queries_beyond_keys:
            kv_len = max(kv_len, min(query_len, features.kv_len[1]))
            query_len = min(query_len, kv_len) if features.ragged else query_len
        pairs.append((query_len, kv_len))
    return tuple(pairs)


def _query_len(dice: Dice, features: Features, level: int) -> int:
    least, most = features.query_len
    least = max(least, 1) if level < 3 and most else least
    if most > 1 and _flag(dice):
        return max(1, least)
    return _small(dice, least, most)


def _kv_len(dice: Dice, features: Features, block_size: int, level: int) -> int:
    """Any number of keys, and those one off a multiple of the block size."""
    least, most = features.kv_len
    least = max(least, 1) if level < 3 else least
    edges = {0, 1, 2} | {k * block_size + d for k in (1, 2, 3, 5) for d in (-1, 0, 1)}
    rim = sorted(n for n in edges if least <= n <= most)
    return dice.choice(rim) if rim and _flag(dice) else dice.integer(least, most)


def _value_head_dim(dice: Dice, features: Features, head_dim: int) -> int:
    if features.value_head_dims is None:
        return 0
    fitting = [d for d in features.value_head_dims if not features.latent or d <= head_dim]
    return dice.choice(fitting if features.latent else (0, *sorted(fitting)))


def _window(
    dice: Dice, features: Features, causal: bool, lengths: tuple[tuple[int, int], ...], level: int
) -> tuple[int | None, int | None]:
    """Small windows, so that they bind."""
    longest = max(kv_len for _, kv_len in lengths)
    left = right = None
    if features.left_window and _flag(dice):
        left = dice.integer(0 if level >= 3 else 1, max(1, min(longest, 20)))
    if features.right_window and not causal and _flag(dice):
        right = dice.integer(0 if level >= 3 else 1, max(1, min(longest, 10)))
    return left, right


def _poisons(contract: Contract) -> tuple[str, ...]:
    return {
        "nan": ("nan", "nan", "inf", "big", "stale"),
        "finite": ("big", "stale", "stale"),
        "zero": ("zero",),
    }[contract.poison]


def _paddings(contract: Contract) -> tuple[int, ...]:
    return {
        "any": (-1, -1, 2**31 - 1, 0, 1000),
        "valid": (0,),
        "-1": (-1,),
        "0": (0,),
    }[contract.padding]
