"""Cases that tell wrong kernels from right ones quickly, each for a class of faults; tried first.

They are written for a kernel that takes everything, and fitted to one that takes less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from .contract import POISONS, Contract, Features
from .recipes import Recipe

BASE = Recipe(num_kv_heads=2, group=3, head_dim=8, value_head_dim=5, block_size=4, extra_columns=1)


def _base(**changes: object) -> Recipe:
    return replace(BASE, **changes)  # pyright: ignore[reportArgumentType]


PLAIN = (
    # One sequence with a tail; then a decode batch with every length round a block.
    _base(lengths=((3, 10),)),
    _base(lengths=((1, 3), (1, 4), (1, 5), (1, 8), (1, 1), (1, 9)), num_kv_heads=2),
    # Prefill, chunk and decode in one ragged batch.
    _base(lengths=((5, 5), (1, 7), (3, 9), (1, 1)), order="reversed"),
    # Not causal; the tail of the last block must not count.
    _base(lengths=((2, 6), (3, 3)), causal=False),
    # Which keys count, and how often: a dropped, doubled or foreign key moves the mean.
    _base(lengths=((1, 13), (4, 9)), values="counting", value_head_dim=16),
    _base(lengths=((2, 17), (1, 11)), values="needle", value_head_dim=16),
    _base(lengths=((1, 9), (2, 6)), values="offset"),
    _base(lengths=((2, 12), (1, 21)), values="rising"),
    _base(lengths=((2, 12), (1, 21)), values="falling"),
    _base(lengths=((3, 14), (1, 30)), values="peaky"),
    _base(lengths=((2, 9), (1, 6)), values="constant"),
    # Long enough for several tiles and splits, at odd lengths.
    _base(lengths=((1, 67), (1, 129), (2, 257)), block_size=16),
    _base(lengths=((1, 64), (1, 128), (1, 33), (1, 2)), block_size=16, values="rising"),
    # Shared blocks, other block sizes, dims that are no power of two.
    _base(lengths=((2, 9), (1, 11), (3, 8)), share=2),
    _base(lengths=((2, 5), (1, 4)), block_size=1),
    _base(lengths=((2, 7), (1, 6)), block_size=3, head_dim=5, value_head_dim=3),
    _base(lengths=((1, 40), (2, 23)), block_size=16, head_dim=80, value_head_dim=0),
    _base(lengths=((1, 40), (2, 23)), block_size=16, head_dim=64, value_head_dim=0),
    _base(lengths=((1, 9), (2, 7)), num_kv_heads=1, group=1),
    _base(lengths=((1, 9), (2, 7)), num_kv_heads=3, group=1),
    _base(lengths=((1, 9), (2, 7)), num_kv_heads=1, group=7),
    _base(lengths=((1, 9), (2, 7)), num_kv_heads=4, group=2),
    _base(lengths=((2, 9), (1, 12)), scale=0.9),
    *(_base(lengths=((2, 9), (1, 12)), storage=order) for order in ("HND", "padded")),
    *(_base(lengths=((2, 9), (1, 12)), storage=order) for order in ("interleaved", "side by side")),
    _base(lengths=((2, 9), (1, 12)), poison="stale"),
    _base(lengths=((2, 9), (1, 12)), poison="big", padding=2**31 - 1),
    _base(lengths=((1, 37), (2, 9)), order="far", share=1),
    _base(lengths=((1, 9), (2, 7)), head_dim=24, value_head_dim=40),
    _base(lengths=((1, 9), (2, 7)), head_dim=12, num_kv_heads=2, group=5),
    # More sequences than query rows per sequence, and the other way round.
    _base(lengths=((1, 5),) * 9),
    _base(lengths=((12, 12), (1, 3))),
    _base(lengths=((1, 3), (12, 14))),
)

OPTIONS = (
    _base(lengths=((3, 9), (1, 7)), window=(2, None)),
    _base(lengths=((1, 12), (1, 5), (1, 4)), window=(3, None)),
    _base(lengths=((6, 14), (2, 2)), window=(4, None), sinks=True),
    _base(lengths=((6, 40), (1, 70)), window=(7, None), block_size=16),
    _base(lengths=((4, 9), (2, 6)), causal=False, window=(2, 1)),
    _base(lengths=((3, 9), (2, 6)), causal=False, window=(1, None)),
    _base(lengths=((3, 8), (1, 6)), causal=False, window=(None, 1)),
    _base(lengths=((3, 9), (1, 7)), softcap=1.0, values="peaky"),
    _base(lengths=((3, 9), (1, 7)), softcap=0.5, window=(3, None)),
    _base(lengths=((3, 9), (1, 7)), softcap=5.0, values="peaky", alibi=True),
    _base(lengths=((3, 9), (1, 7)), alibi=True),
    _base(lengths=((3, 9), (1, 7)), alibi=True, causal=False),
    _base(lengths=((3, 9), (1, 7), (2, 2)), sinks=True),
    _base(lengths=((1, 33), (2, 20)), sinks=True, block_size=16),
    _base(lengths=((3, 9), (1, 7)), sinks=True, softcap=2.0, alibi=True, window=(3, None)),
    _base(lengths=((5, 9), (4, 4)), mask="tree", causal=False),
    _base(lengths=((3, 9), (2, 5)), mask="random", causal=False),
    _base(lengths=((2, 5), (3, 5)), alignment="top-left"),
)

EDGES = (
    _base(lengths=((1, 0), (2, 5))),
    _base(lengths=((2, 5), (1, 0), (1, 3))),
    _base(lengths=((1, 0),)),
    _base(lengths=((0, 4), (2, 5), (0, 0), (1, 1))),
    _base(lengths=((5, 2), (1, 4))),
    _base(lengths=((3, 0), (4, 1)), sinks=True),
    _base(lengths=((2, 0), (3, 3)), sinks=True, alibi=True),
    _base(lengths=((5, 2), (2, 4)), window=(1, None)),
    _base(lengths=((4, 9), (1, 5)), window=(0, None)),
    _base(lengths=((4, 9), (1, 5)), window=(0, 0), causal=False),
    _base(lengths=((3, 20), (1, 9)), window=(200, None)),
    _base(lengths=((2, 9), (1, 6)), values="extreme"),
    _base(lengths=((2, 9), (1, 33)), values="negative"),
    _base(lengths=((2, 40), (1, 300)), values="extreme", block_size=16, num_kv_heads=1, group=2),
    _base(lengths=((2, 40), (1, 33)), values="negative", window=(2, None)),
    _base(lengths=((2, 9), (1, 6)), values="flat"),
    _base(lengths=((2, 9), (1, 6)), values="extreme", softcap=1.0),
    _base(lengths=((2, 9), (1, 6)), values="integer"),
    _base(lengths=((2, 9), (1, 6)), head_dim=1, value_head_dim=1),
    _base(lengths=((1, 1),), num_kv_heads=1, group=1, block_size=1, extra_blocks=1),
)

LARGE = (
    # Longer than the tiles and splits of large kernels, and than their tables are wide.
    _base(lengths=((1, 300), (3, 515)), block_size=8, num_kv_heads=1, group=2),
    _base(lengths=((1, 1100), (2, 40)), block_size=16, num_kv_heads=1, group=1, head_dim=16),
    # A tile that begins within a block, and one that is no whole number of blocks.
    _base(lengths=((1, 200), (2, 70)), block_size=128, num_kv_heads=1, group=2),
    _base(lengths=((1, 130), (2, 301)), block_size=3, num_kv_heads=1, group=2),
    # Every option beyond the first tile and split.
    _base(lengths=((2, 150), (1, 330)), window=(100, None), block_size=16, num_kv_heads=1, group=2),
    _base(
        lengths=((1, 290), (2, 140)),
        window=(20, None),
        sinks=True,
        block_size=16,
        num_kv_heads=1,
        group=2,
    ),
    _base(lengths=((2, 150), (1, 280)), alibi=True, block_size=16, num_kv_heads=1, group=2),
    _base(
        lengths=((2, 150), (1, 280)),
        sinks=True,
        softcap=2.0,
        values="peaky",
        block_size=16,
        num_kv_heads=1,
        group=2,
    ),
    _base(lengths=((2, 150), (1, 280)), causal=False, block_size=16, num_kv_heads=1, group=2),
    _base(lengths=((140, 150), (1, 5)), block_size=16, num_kv_heads=1, group=1),
)

BEYOND = (
    # Counts, sizes and numbers beyond what a tile, a byte or a 16-bit number holds.
    _base(lengths=((70, 90), (1, 3)), num_kv_heads=1),
    _base(lengths=((80, 80),), num_kv_heads=1, causal=False),
    _base(lengths=tuple((1, 1 + 5 * i % 9) for i in range(70))),
    _base(lengths=((1, 9), (2, 7)), extra_blocks=5000, num_kv_heads=1),
    _base(
        lengths=((1, 3),), extra_blocks=70_000, num_kv_heads=1, block_size=1, head_dim=1, content=1
    ),
    _base(lengths=((1, 300),), block_size=1, num_kv_heads=1, group=2),
    _base(lengths=((1, 9), (2, 7)), num_kv_heads=5, group=8),
    _base(lengths=((1, 9), (2, 7)), group=9, alibi=True, sinks=True),
    _base(lengths=((1, 9), (2, 7)), group=17),
    _base(lengths=((20, 30),), num_kv_heads=1, group=8, alibi=True),
    _base(lengths=((2, 9), (1, 7)), head_dim=192, value_head_dim=0, window=(3, None)),
    _base(lengths=((2, 9), (1, 7)), head_dim=256, value_head_dim=0, group=1),
    _base(lengths=((2, 9), (1, 7)), softcap=50.0, values="extreme"),
    _base(lengths=((2, 9), (1, 7)), window=(40_000, None)),
    # Slopes as models have them, over a distance that they reach.
    _base(lengths=((2, 300),), num_kv_heads=1, alibi=True, content=1, block_size=16),
    _base(
        lengths=((3, 300),), num_kv_heads=1, alibi=True, content=1, causal=False, dtype="bfloat16"
    ),
    _base(lengths=((3, 9), (1, 7)), alibi=True, content=2),  # of both signs
    _base(lengths=((3, 9), (1, 7)), sinks=True, content=3),  # one head has none
    # A last block that is the beginning of somebody else's full one.
    _base(lengths=((1, 8), (1, 6), (2, 3)), share=3, share_tail=True),
    _base(lengths=((2, 9), (1, 12)), value_head_dim=0, storage="mixed"),
    _base(lengths=((2, 9), (1, 12)), values="wide"),
    _base(lengths=((2, 9), (1, 12)), values="wide", dtype="bfloat16"),
)

LONG = (
    *(
        _base(lengths=((8, 200), (1, 900)), dtype=d, block_size=16, value_head_dim=64, group=2)
        for d in ("bfloat16", "float16")
    ),
    *(
        _base(
            lengths=lengths, values=values, block_size=16, head_dim=64, value_head_dim=64, group=2
        )
        for lengths, values in (
            (((1, 2051),), "normal"),
            (((1, 4096), (2, 1000)), "normal"),
            (((1, 8193),), "flat"),
            (((1, 4099),), "counting"),
            (((1, 2500), (1, 8)), "needle"),
            (((1, 3000),), "offset"),
            (((1, 2047),), "rising"),
        )
    ),
)

FAR = (
    _base(lengths=((1, 9), (2, 6)), storage="far"),
    _base(lengths=((1, 33), (2, 20)), block_size=16, head_dim=128, order="beyond"),
    _base(lengths=((3, 7), (1, 30)), storage="far", share=1, window=(3, None)),
)

USUAL = Features()


def directed(features: Features, contract: Contract, level: int) -> Iterator[Recipe]:
    """The directed cases that a kernel takes, up to a level, each at most once."""
    forms = itertools.product(features.kv_scales, features.kv_forms)
    quantised = [
        replace(r, kv_form=form, kv_scales=scales)
        for r, (scales, form) in zip(PLAIN, itertools.islice(itertools.cycle(forms), 12))
    ]
    halves = [replace(r, dtype=d) for d in features.dtypes[1:] for r in PLAIN[:6] + LONG[2:3]]
    many = [*PLAIN, *OPTIONS, *quantised, *(halves + list(BEYOND) if level >= 1 else ())]
    many += FAR if level >= 6 and features.far else ()
    many += EDGES if level >= 3 else ()
    many += LARGE if level >= 2 else ()
    many += LONG if level >= 4 else ()
    seen = set()
    for recipe in many:
        fitted = fit(recipe, features, contract, level)
        if fitted is not None and fitted not in seen:
            seen.add(fitted)
            yield fitted


def fit(recipe: Recipe, features: Features, contract: Contract, level: int) -> Recipe | None:
    """The nearest recipe that the kernel takes; None if it lacks what the recipe is about."""
    window = _fit_window(recipe, features)
    if window is None or not _has_options(recipe, features):
        return None
    lengths = _fit_lengths(recipe, features, level)
    head_dim = _nearest(recipe.head_dim, features.head_dims)
    poison = recipe.poison if recipe.poison in POISONS[contract.poison] else None
    calm = {"nan": "nan", "finite": "stale", "zero": "zero"}[contract.poison]
    pads = {"any": recipe.padding, "valid": 0, "-1": -1, "0": 0}
    return replace(
        recipe,
        lengths=lengths,
        window=window,
        num_kv_heads=_fit_count(recipe.num_kv_heads, features, "num_kv_heads"),
        group=_fit_count(recipe.group, features, "groups"),
        head_dim=head_dim,
        value_head_dim=_fit_value_dim(recipe, features, head_dim),
        block_size=_nearest(recipe.block_size, features.block_sizes),
        dtype=recipe.dtype if recipe.dtype in features.dtypes else features.dtypes[0],
        causal=recipe.causal if recipe.causal in features.causal else features.causal[0],
        scale=recipe.scale if features.scales else 0.0,
        share=recipe.share if features.shared_blocks else 0,
        poison=poison or calm,
        padding=pads[contract.padding],
        latent=features.latent,
        storage=recipe.storage if _has_storage(recipe, features) else "",
    )


def _has_options(recipe: Recipe, features: Features) -> bool:
    """Whether the kernel takes the options that the recipe uses."""
    return (
        (recipe.softcap is None or features.softcap)
        and (not recipe.alibi or features.alibi)
        and (not recipe.sinks or features.sinks)
        and (not recipe.mask or recipe.mask in features.masks)
        and _has_storage(recipe, features)
        and (not recipe.share_tail or features.shared_tails)
        and (recipe.causal in features.causal)
        and (recipe.alignment in features.alignments)
    )


def _has_storage(recipe: Recipe, features: Features) -> bool:
    if recipe.storage == "far":
        return features.far
    return not recipe.storage or recipe.storage in features.storages


def _fit_window(recipe: Recipe, features: Features) -> tuple[int | None, int | None] | None:
    left, right = recipe.window
    if (left is not None and not features.left_window) or (
        right is not None and not features.right_window
    ):
        return None
    return left, right


def _fit_lengths(recipe: Recipe, features: Features, level: int) -> tuple[tuple[int, int], ...]:
    """Lengths within the kernel's limits; below level 2 no longer than a few blocks."""
    longest = max(k for _, k in recipe.lengths)
    most_keys = _most(features, "kv_len", longest if level >= 2 else min(longest, 257))
    most_queries = _most(features, "query_len", max(q for q, _ in recipe.lengths))
    first = _clamp(recipe.lengths[0][0], (features.query_len[0], most_queries))
    pairs = []
    for query_len, kv_len in recipe.lengths[: _most(features, "num_seqs", len(recipe.lengths))]:
        q = _clamp(query_len, (features.query_len[0], most_queries)) if features.ragged else first
        k = _clamp(kv_len, (features.kv_len[0], most_keys))
        if not features.queries_beyond_keys:
            k = max(k, q)
        pairs.append((q, k))
    while len(pairs) < features.num_seqs[0]:
        pairs.append(pairs[-1])
    return tuple(pairs)


def _most(features: Features, name: str, wanted: int) -> int:
    """The largest that a directed case may have: a range as it comes is only what chance draws.

    One that was narrowed, by a convention or a user, is a limit.
    """
    most = getattr(features, name)[1]
    return max(most, wanted) if most == getattr(USUAL, name)[1] else most


def _fit_count(wanted: int, features: Features, name: str) -> int:
    return _clamp(wanted, (getattr(features, name)[0], _most(features, name, wanted)))


def _fit_value_dim(recipe: Recipe, features: Features, head_dim: int) -> int:
    if features.value_head_dims is None or not recipe.value_head_dim:
        return 0 if not features.latent else _nearest(head_dim, features.value_head_dims or ())
    return _nearest(recipe.value_head_dim, features.value_head_dims)


def _nearest(wanted: int, choices: tuple[int, ...]) -> int:
    """The smallest choice that is at least `wanted`, or the largest of all."""
    larger = [c for c in choices if c >= wanted]
    return min(larger) if larger else max(choices)


def _clamp(n: int, limits: tuple[int, int]) -> int:
    return min(max(n, limits[0]), limits[1])
