"""Attention over some of the keys as a value that can be merged; knows scores, not positions.

A softmax divides by a sum over all keys. `AttentionState` puts the division off, so keys may come
block by block, in any order, or be split among workers (Milakov and Gimelshein 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class AttentionState(NamedTuple):
    """What the keys seen so far contribute, relative to their largest score `m`.

    Merging is associative and commutative up to rounding, and `empty` is its identity.
    """

    m: Tensor  # [...] largest score, -inf before the first key
    l: Tensor  # [...] sum of exp(score - m)
    acc: Tensor  # [..., value_head_dim] sum of exp(score - m) * value

    @classmethod
    def empty(cls, *shape: int, like: Tensor) -> AttentionState:
        """No keys yet; `shape` is that of `acc`, dtype and device are those of `like`."""
        l, acc = like.new_zeros(shape[:-1]), like.new_zeros(shape)
        return cls(torch.full_like(l, -torch.inf), l, acc)

    @classmethod
    def from_output(cls, out: Tensor, lse: Tensor) -> AttentionState:
        """A finished output as a state: one key of score `lse` whose value is `out`."""
        empty = lse == -torch.inf
        acc = out.to(lse.dtype).masked_fill(empty[..., None], 0.0)  # `out` may hold garbage there
        return cls(lse, torch.ones_like(lse), acc)

    def update(
        self,
        scores: Tensor,  # [..., num_keys]
        values: Tensor,  # [..., num_keys, value_head_dim]
    ) -> AttentionState:
        """Absorb some keys: they are a state of their own, and two states merge."""
        m = scores.amax(dim=-1)
        weights = torch.exp(scores - _finite(m)[..., None])
        return self.merge(AttentionState(m, weights.sum(dim=-1), weights @ values))

    def merge(self, other: AttentionState) -> AttentionState:
        """Both sets of keys: each side is rescaled from its own maximum to the common one."""
        m = torch.maximum(self.m, other.m)
        mine, its = torch.exp(self.m - _finite(m)), torch.exp(other.m - _finite(m))
        acc = mine[..., None] * self.acc + its[..., None] * other.acc
        return AttentionState(m, mine * self.l + its * other.l, acc)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Divide at last: `(out, lse)`, which is `(0, -inf)` if there was no key."""
        out = self.acc / torch.where(self.l == 0, 1.0, self.l)[..., None]
        return out, self.m + torch.log(self.l)


def merge_states(
    out_a: Tensor,  # [..., value_head_dim]
    lse_a: Tensor,  # [...]
    out_b: Tensor,  # [..., value_head_dim]
    lse_b: Tensor,  # [...]
) -> tuple[Tensor, Tensor]:
    """Attention over two disjoint sets of keys, from the attention over each: `(out, lse)`.

    `(0, -inf)` is the identity; merged with itself it stays so instead of becoming NaN. A sink
    must have been counted on one side only.
    """
    a, b = AttentionState.from_output(out_a, lse_a), AttentionState.from_output(out_b, lse_b)
    out, lse = a.merge(b).finish()
    return out.to(out_a.dtype), lse


def _finite(m: Tensor) -> Tensor:
    """A shift safe to subtract: -inf - -inf would be NaN, exp(-inf - 0) is the 0 we mean."""
    return m.masked_fill(m == -torch.inf, 0.0)
