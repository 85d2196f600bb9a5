"""Attention problems as a mathematician states them; knows no block, no layout, no tensor library.

Everything is per sequence and in float64. The values lie exactly on the grid of the dtype that a
kernel will be given, so that rounding the inputs is nobody's error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Edge = int | None


@dataclass(frozen=True, eq=False)
class Spec:
    """Which keys a query sees and what becomes of its scores.

    The order: scale, softcap, ALiBi, mask, and last the sinks, in the denominator only.

    Attributes:
        scale: Factor of every query-key product.
        causal: Hide the keys after the query.
        window: `(left, right)`, both inclusive: a query at p sees keys p - left to p + right; None
            leaves that side open. `(0, 0)` sees only itself. What other libraries call a window of
            w tokens is `(w - 1, None)` here.
        softcap: `cap * tanh(score / cap)`, None for none.
        alibi_slopes: `[num_heads]`; adds `slope * (key position - query position)`.
        sinks: `[num_heads]`; one more logit per head, of a key whose value is 0. Neither scaled
            nor capped. -inf for a head that has none.
        alignment: Where the queries stand. "bottom-right": the last query is at the last key.
            "top-left": the first query is at the first key.
        masks: Per sequence `[query_len, kv_len]`, True where the query may see the key; cuts
            further what `causal` and `window` leave. A token tree is a mask with `causal=False`.
    """

    scale: float
    causal: bool = True
    window: tuple[Edge, Edge] = (None, None)
    softcap: float | None = None
    alibi_slopes: Array | None = None
    sinks: Array | None = None
    alignment: Literal["bottom-right", "top-left"] = "bottom-right"
    masks: tuple[NDArray[np.bool_], ...] | None = None


@dataclass(frozen=True, eq=False)
class Codes:
    """Keys or values as a quantised cache stores them: small numbers, and what one is worth.

    Attributes:
        form: Name of the format in `formats.FORMATS`, "float8_e4m3fn" for instance.
        granularity: What one scale covers: the whole "tensor", a "head", or one head of a "token".
        numbers: Per sequence `[kv_len, num_kv_heads, dim]`: the stored numbers, as float64.
        scale: `[]`, `[num_kv_heads]`, or per sequence `[kv_len, num_kv_heads]`; float32 values.
    """

    form: str
    granularity: Literal["tensor", "head", "token"]
    numbers: tuple[Array, ...]
    scale: Array | tuple[Array, ...]

    def values(self) -> tuple[Array, ...]:
        """What the stored numbers stand for, exactly: number times scale."""
        if isinstance(self.scale, tuple):
            return tuple(n * s[..., None] for n, s in zip(self.numbers, self.scale, strict=True))
        return tuple(n * self.scale[..., None] for n in self.numbers)


@dataclass(frozen=True, eq=False)
class Problem:
    """A batch of sequences, each with its queries, keys and values.

    Attributes:
        query: Per sequence `[query_len, num_heads, head_dim]`.
        key: Per sequence `[kv_len, num_kv_heads, head_dim]`.
        value: Per sequence `[kv_len, num_kv_heads, value_head_dim]`.
        spec: The options, the same for all sequences.
        dtype: The grid that queries (and keys and values, unless quantised) lie on, and the dtype
            of the output.
        key_codes: The keys as a quantised cache stores them; then `key` is what they stand for.
        value_codes: The same of the values.
        latent: The values are the first `value_head_dim` numbers of the keys (MLA).
    """

    query: tuple[Array, ...]
    key: tuple[Array, ...]
    value: tuple[Array, ...]
    spec: Spec
    dtype: str = "float32"
    key_codes: Codes | None = None
    value_codes: Codes | None = None
    latent: bool = False

    def __post_init__(self):
        if not len(self.query) == len(self.key) == len(self.value) > 0:
            counts = len(self.query), len(self.key), len(self.value)
            raise ValueError(f"as many queries, keys and values as sequences, >= 1, not {counts}")
        for s, (q, k, v) in enumerate(zip(self.query, self.key, self.value)):
            if q.shape[1] % k.shape[1] or k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
                raise ValueError(
                    f"sequence {s}: query {q.shape}, key {k.shape}, value {v.shape} do not fit: "
                    "[query_len, num_heads, head_dim], [kv_len, num_kv_heads, head_dim] and "
                    "[kv_len, num_kv_heads, value_head_dim], num_heads a multiple of num_kv_heads"
                )

    @property
    def num_seqs(self) -> int:
        """Sequences in the batch."""
        return len(self.query)

    @property
    def query_lens(self) -> tuple[int, ...]:
        """Queries of each sequence."""
        return tuple(len(q) for q in self.query)

    @property
    def kv_lens(self) -> tuple[int, ...]:
        """Keys of each sequence, those of this step included."""
        return tuple(len(k) for k in self.key)

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.query[0].shape[1]

    @property
    def num_kv_heads(self) -> int:
        """Key and value heads."""
        return self.key[0].shape[1]

    @property
    def head_dim(self) -> int:
        """Size of a query's and a key's head."""
        return self.query[0].shape[2]

    @property
    def value_head_dim(self) -> int:
        """Size of a value's head."""
        return self.value[0].shape[2]

    def positions(self, s: int) -> NDArray[np.int64]:
        """Where the queries of sequence s stand among its keys; negative before the first."""
        query_len, kv_len = self.query_lens[s], self.kv_lens[s]
        first = kv_len - query_len if self.spec.alignment == "bottom-right" else 0
        return np.arange(first, first + query_len)

    def visible(self, s: int) -> NDArray[np.bool_]:
        """`[query_len, kv_len]`: which keys each query of sequence s sees."""
        spec = self.spec
        distance = np.arange(self.kv_lens[s]) - self.positions(s)[:, None]  # 0 at the query itself
        left, right = spec.window
        seen = np.ones(distance.shape, dtype=bool)
        if spec.causal:
            seen &= distance <= 0
        if left is not None:
            seen &= distance >= -left
        if right is not None:
            seen &= distance <= right
        if spec.masks is not None:
            seen &= spec.masks[s]
        return seen

    def blind_rows(self) -> list[NDArray[np.bool_]]:
        """Per sequence `[query_len]`: queries that see no key."""
        return [~np.logical_or.reduce(self.visible(s), axis=1) for s in range(self.num_seqs)]
