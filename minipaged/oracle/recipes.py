"""A case in a few small numbers: what is drawn, shrunk, printed and kept; knows no kernel.

The content comes from one seed and the placement from another, so that a law may change one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from .cases import Case, Placement
from .truth import FORMATS, Codes, Problem, Spec, rounded
from .truth.problem import Array

NAMES_OF_VALUES = (
    "normal",  # independent normal numbers
    "flat",  # tiny scores: every key counts about the same
    "peaky",  # one or two keys win
    "counting",  # all scores equal; a value is a code of its position: the output counts keys
    "needle",  # one key wins by far; its value names its position
    "constant",  # all values of a head equal, so the output must be that value
    "offset",  # values far from 0: weights that do not sum to 1 show
    "extreme",  # scores in the ten thousands, of both signs
    "negative",  # every score far below 0
    "integer",  # small whole numbers: every product is exact
    "wide",  # values of every size that the format has
    "rising",  # later keys score higher: a running maximum changes at every step
    "falling",  # earlier keys score higher: it never does
)


@dataclass(frozen=True)
class Recipe:
    """A case in small numbers. `build` makes it; the same recipe always makes the same one.

    Attributes:
        lengths: `(query_len, kv_len)` of each sequence.
        num_kv_heads: Key and value heads.
        group: Query heads per kv head.
        head_dim: Of queries and keys.
        value_head_dim: Of values; 0 for the head dim.
        block_size: Tokens per block.
        dtype: Of queries and output, and of keys and values unless `kv_form` is set.
        kv_form: Format of a quantised cache, or "".
        kv_scales: Granularity of its scales.
        causal: See `Spec`.
        window: See `Spec`.
        softcap: See `Spec`.
        alibi: With slopes, a different one for every head.
        sinks: With sinks, a different one for every head.
        mask: "", "tree", or "random".
        scale: Softmax scale; 0 for `1 / sqrt(head_dim)`.
        values: Kind of content, one of `NAMES_OF_VALUES`.
        share: Full blocks that every sequence shares with the first one, as far as it has them.
        share_tail: A last, partial block may be shared, too.
        poison: See `Placement`.
        padding: See `Placement`.
        extra_columns: See `Placement`.
        extra_blocks: Blocks of the pool that nobody owns.
        order: Order of the block ids: "permuted", "reversed", "consecutive", or "far" (at the end
            of a pool of 300 more), or "beyond" (block id times block size exceeds 2^31 elements).
        storage: See `Placement`.
        alignment: See `Spec`.
        latent: Values are the first numbers of the keys.
        content: Seed of queries, keys, values, slopes and sinks.
        place: Seed of the placement.
    """

    lengths: tuple[tuple[int, int], ...] = ((1, 1),)
    num_kv_heads: int = 1
    group: int = 1
    head_dim: int = 4
    value_head_dim: int = 0
    block_size: int = 4
    dtype: str = "float32"
    kv_form: str = ""
    kv_scales: str = "tensor"
    causal: bool = True
    window: tuple[int | None, int | None] = (None, None)
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    mask: str = ""
    scale: float = 0.0
    values: str = "normal"
    share: int = 0
    share_tail: bool = False
    poison: str = "nan"
    padding: int = -1
    extra_columns: int = 0
    extra_blocks: int = 2
    order: str = "permuted"
    storage: str = ""
    alignment: str = "bottom-right"
    latent: bool = False
    content: int = 0
    place: int = 0

    def build(self) -> Case:
        """The case."""
        problem = _Contents(self).problem()
        return Case(problem, place(self), self)

    def __str__(self) -> str:
        """Only what differs from the default, as the call that makes it."""
        plain = Recipe()
        changed = (f.name for f in fields(self))
        changed = (n for n in changed if n == "lengths" or getattr(self, n) != getattr(plain, n))
        return f"Recipe({', '.join(f'{n}={getattr(self, n)!r}' for n in changed)})"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Recipe:
        """From plain JSON; lists become tuples again."""
        lengths = tuple((a, b) for a, b in plain["lengths"])
        return cls(**{**plain, "lengths": lengths, "window": tuple(plain["window"])})


def place(recipe: Recipe) -> Placement:
    """Block ids for every sequence, none twice but the shared ones."""
    size, rng = recipe.block_size, np.random.default_rng([recipe.place, 1])
    needs = [-(-kv_len // size) for _, kv_len in recipe.lengths]
    shared = [_shared_blocks(recipe, s) for s in range(len(needs))]
    own = [need - part for need, part in zip(needs, shared)]
    total = sum(own) + recipe.extra_blocks
    ids = np.arange(total)
    if recipe.order == "permuted":
        ids = rng.permutation(total)
    elif recipe.order == "reversed":
        ids = ids[::-1]
    elif recipe.order == "far":
        ids, total = ids[::-1] + 300, total + 300
    elif recipe.order == "beyond":
        dim = min(recipe.head_dim, recipe.value_head_dim or recipe.head_dim)
        first = 2**31 // (size * recipe.num_kv_heads * dim) + 1
        ids, total = ids[::-1] + first, total + first
    rows: list[tuple[int, ...]] = []
    first = 0
    for count, part in zip(own, shared):
        prefix = rows[0][:part] if rows else ()
        rows.append((*prefix, *(int(b) for b in ids[first : first + count])))
        first += count
    return Placement(
        size,
        max(1, total),
        tuple(rows),
        recipe.poison,
        recipe.padding,
        recipe.extra_columns,
        recipe.storage,
        seed=recipe.place,
    )


def _shared_blocks(recipe: Recipe, s: int) -> int:
    """Blocks that sequence s shares with the first: full ones, and its last, partial one too.

    Behind the end of a sequence that is a beginning of the first one, real tokens follow then.
    """
    if s == 0:
        return 0
    first, mine = recipe.lengths[0][1], recipe.lengths[s][1]
    whole = min(first, mine) // recipe.block_size
    tail = recipe.share_tail and mine <= first
    return min(recipe.share, -(-mine // recipe.block_size) if tail else whole)


def _shared_tokens(recipe: Recipe, s: int) -> int:
    return min(_shared_blocks(recipe, s) * recipe.block_size, recipe.lengths[s][1])


class _Contents:
    """Queries, keys and values of a recipe."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.rng = np.random.default_rng([recipe.content, 2])
        self.dim = recipe.head_dim
        self.value_dim = recipe.value_head_dim or recipe.head_dim
        self.scale = recipe.scale or 1 / math.sqrt(self.dim)

    def problem(self) -> Problem:
        recipe, heads = self.recipe, self.recipe.num_kv_heads * self.recipe.group
        query, key, value = [], [], []
        for s, (query_len, kv_len) in enumerate(recipe.lengths):
            q, k, v = self.sequence(query_len, kv_len, heads)
            shared = _shared_tokens(recipe, s)
            if shared:
                k[:shared], v[:shared] = key[0][:shared], value[0][:shared]
            query.append(rounded(q, recipe.dtype))
            key.append(k if recipe.kv_form else rounded(k, recipe.dtype))
            value.append(v if recipe.kv_form else rounded(v, recipe.dtype))
        key_codes = value_codes = None
        if recipe.kv_form:
            key_codes, value_codes = self.codes(key, 0.03), self.codes(value, 0.5)
            key, value = key_codes.values(), value_codes.values()
        if recipe.latent:
            value = [k[..., : self.value_dim] for k in key]
            value_codes = None
        return Problem(
            tuple(query),
            tuple(key),
            tuple(value),
            self.spec(heads),
            recipe.dtype,
            key_codes,
            value_codes,
            recipe.latent,
        )

    def sequence(self, query_len: int, kv_len: int, heads: int) -> tuple[Array, Array, Array]:
        """`[query_len, heads, dim]`, `[kv_len, kv heads, dim]`, `[kv_len, kv heads, value dim]`."""
        kv_heads, normal = self.recipe.num_kv_heads, self.rng.standard_normal
        q, k = normal((query_len, heads, self.dim)), normal((kv_len, kv_heads, self.dim))
        v = normal((kv_len, kv_heads, self.value_dim))
        strength = {"flat": 0.05, "peaky": 6.0}.get(self.recipe.values, 1.5)
        change = getattr(self, f"_{self.recipe.values}", None)
        return change(q, k, v) if change else (q * strength, k, v)

    def _counting(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        return q * 0, k * 0, position_codes(*v.shape)

    def _needle(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        """Each key head has one winner, another for every draw."""
        for h in range(k.shape[1]):
            direction = np.sign(k[0, h]) if len(k) else np.ones(self.dim)
            k[:, h] *= 0.1
            if len(k):
                k[self.rng.integers(len(k)), h] = direction
            group = slice(h * self.recipe.group, (h + 1) * self.recipe.group)
            q[:, group] = direction * 40 / (self.dim * abs(self.scale))
        return q, k, position_codes(*v.shape)

    def _constant(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        return q * 1.5, k, np.broadcast_to(np.round(v[:1] * 8) / 8 + 1.5, v.shape).copy()

    def _offset(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        return q * 1.5, k, v + 50

    def _extreme(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        return q * 200, k * 100, v

    def _negative(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        """The product of the offsets is the same for every key, as near as rounding lets it be."""
        return np.abs(q) + 1, -np.abs(k) - 200 / math.sqrt(self.dim), v

    def _integer(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        return np.rint(q * 3), np.rint(k * 3), np.rint(v * 3)

    def _wide(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        reach = 3 if self.recipe.dtype == "float16" or self.recipe.kv_form else 18
        return q * 1.5, k, v * 10.0 ** self.rng.uniform(-reach, reach, v.shape[1:])

    def _rising(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        step = np.arange(len(k))[:, None, None] * 2.0 / (abs(self.scale) * self.dim)
        return np.abs(q) * 0.2 + 1, k * 0.3 + step, v

    def _falling(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        q, k, v = self._rising(q, k, v)
        return q, k[::-1].copy(), v

    def codes(self, numbers: list[Array], unit: float) -> Codes:
        """Numbers as a quantised cache would store them; scales that no two heads share."""
        recipe, form = self.recipe, FORMATS[self.recipe.kv_form]
        reach = form.max if form.is_integer else 8.0
        stored = tuple(form.round(x * reach / 3) for x in numbers)
        base = unit * 3 / reach
        if recipe.kv_scales == "token":
            scales = [
                rounded(base * self.rng.uniform(0.5, 2, n.shape[:2]), "float32") for n in numbers
            ]
            for s, scale in enumerate(scales):
                shared = _shared_tokens(recipe, s)
                scale[:shared] = scales[0][:shared]
            return Codes(recipe.kv_form, "token", stored, tuple(scales))
        shape = () if recipe.kv_scales == "tensor" else (recipe.num_kv_heads,)
        scale = rounded(base * self.rng.uniform(0.5, 2, shape), "float32")
        return Codes(recipe.kv_form, recipe.kv_scales, stored, scale)  # pyright: ignore

    def spec(self, heads: int) -> Spec:
        recipe = self.recipe
        rng = np.random.default_rng([recipe.content, 3])
        # Slopes steep enough to bind, or as models have them, or of both signs. Heads that share
        # one would hide a mixed-up index.
        slopes = np.asarray(rng.permutation(heads) * 0.25 + rng.uniform(0.1, 0.2))
        if recipe.content % 4 == 1:
            slopes = 2.0 ** (-8 * (1 + rng.permutation(heads)) / heads)
        elif recipe.content % 4 == 2:
            slopes = slopes * rng.choice([-1, 1], heads)
        slopes = rounded(slopes, "float32")
        sinks = np.asarray(rng.permutation(heads) * 0.7 - heads * 0.35 + rng.uniform())
        sinks = rounded(sinks, "float32")
        if recipe.content % 4 == 3 and heads > 1:
            sinks[-1] = -np.inf  # this head has none
        return Spec(
            self.scale,
            recipe.causal,
            recipe.window,
            recipe.softcap,
            slopes if recipe.alibi else None,
            sinks if recipe.sinks else None,
            recipe.alignment,  # pyright: ignore
            tuple(self.mask(q, k) for q, k in recipe.lengths) if recipe.mask else None,
        )

    def mask(self, query_len: int, kv_len: int) -> np.ndarray:
        """A token tree behind a visible context, or any mask at all."""
        if self.recipe.mask == "random":
            return self.rng.random((query_len, kv_len)) < 0.6
        seen = np.ones((query_len, kv_len), dtype=bool)
        first = kv_len - query_len
        for i in range(query_len):
            for j in range(max(0, first), kv_len):
                seen[i, j] = False
            parent = int(self.rng.integers(-1, i)) if i else -1
            if parent >= 0:
                seen[i] = seen[parent]
            if first + i >= 0:
                seen[i, first + i] = True
        return seen


def position_codes(kv_len: int, num_kv_heads: int, dim: int) -> Array:
    """`[kv_len, num_kv_heads, dim]`: 1 at an element that depends on position and head, else 0."""
    codes = np.zeros((kv_len, num_kv_heads, dim))
    for h in range(num_kv_heads):
        codes[np.arange(kv_len), h, (np.arange(kv_len) + h) % dim] = 1
    return codes
