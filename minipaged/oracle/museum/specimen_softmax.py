"""The specimen's arithmetic: scores, mask, running softmax, merge; knows tiles, no memory."""

# ruff: noqa: D102
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .specimen_memory import Arguments, Work

State = tuple[Tensor, Tensor, Tensor]  # running maximum, sum of weights, sum of weighted values


class Softmax:
    """What becomes of a tile."""

    # --- scores ------------------------------------------------------------------------------

    def scores(self, a: Arguments, query: Tensor, key: Tensor) -> Tensor:
        """`[num_heads, rows, tile]`."""
        return query @ key.transpose(1, 2) * a.scale

    def biased(self, a: Arguments, w: Work, scores: Tensor, keys: Tensor) -> Tensor:
        """Softcap first, then ALiBi."""
        return self.alibi(a, w, self.capped(a, scores), keys)

    def capped(self, a: Arguments, scores: Tensor) -> Tensor:
        return scores if a.softcap is None else a.softcap * torch.tanh(scores / a.softcap)

    def alibi(self, a: Arguments, w: Work, scores: Tensor, keys: Tensor) -> Tensor:
        if a.alibi_slopes is None:
            return scores
        return scores + self.slopes(a)[:, None, None] * self.distance(a, w, keys)

    def slopes(self, a: Arguments) -> Any:
        return a.alibi_slopes

    def distance(self, a: Arguments, w: Work, keys: Tensor) -> Tensor:
        return keys - w.positions[:, None]

    def mask(self, a: Arguments, w: Work, keys: Tensor) -> Tensor:
        """`[rows, tile]`: which keys each query sees."""
        age = w.positions[:, None] - keys
        seen = (keys < w.kv_len).expand(age.shape)
        if a.causal:
            seen = seen & (age >= 0)
        return seen if a.window is None else seen & (age < a.window)

    # --- softmax -----------------------------------------------------------------------------

    def update(self, a: Arguments, state: State, scores: Tensor, value: Tensor) -> State:
        """One tile more."""
        m, l, acc = state
        top = self.top(m, scores)
        shift = self.shift(top)
        old, p = torch.exp(m - shift), torch.exp(scores - shift[..., None])
        l = l * old + p.sum(-1)
        return top, l, acc * old[..., None] + self.weighted(a, p, value)

    def top(self, m: Tensor, scores: Tensor) -> Tensor:
        return torch.maximum(m, scores.amax(-1))

    def shift(self, top: Tensor) -> Tensor:
        """A finite number to subtract, also where nothing was seen yet."""
        return top.masked_fill(top == -torch.inf, 0.0)

    def weighted(self, a: Arguments, p: Tensor, value: Tensor) -> Tensor:
        """Weights in the dtype of the query, sums in float32, as tensor cores do it."""
        return p.to(a.query.dtype).float() @ value

    def merge(self, a: Arguments, w: Work, states: list[State]) -> State:
        """The states of all splits as one."""
        total = self.empty(len(w.rows), a.query.shape[1], a.value_cache.shape[3])
        for state in states:
            total = self.merge_two(a, total, state)
        return total

    def merge_two(self, a: Arguments, one: State, other: State) -> State:
        top = torch.maximum(one[0], other[0])
        mine, theirs = (self.share(x[0] - self.shift(top)) for x in (one, other))
        acc = one[2] * mine[..., None] + other[2] * theirs[..., None]
        return top, one[1] * mine + other[1] * theirs, acc

    def share(self, x: Tensor) -> Tensor:
        return torch.exp(x)

    def empty(self, rows: int, heads: int, dim: int) -> State:
        """A state over no keys."""
        nothing = torch.zeros(heads, rows)
        return nothing - torch.inf, nothing, torch.zeros(heads, rows, dim)

    # --- the end -----------------------------------------------------------------------------

    def finish(self, a: Arguments, state: State) -> tuple[Tensor, Tensor]:
        """Output and lse `[num_heads, rows, ...]`: the sinks join, the sum divides."""
        m, l, acc = self.with_sinks(a, state)
        return self.divided(acc, l), self.lse(m, l)

    def lse(self, m: Tensor, total: Tensor) -> Tensor:
        """-inf where nothing was seen."""
        return m + torch.log(total)

    def with_sinks(self, a: Arguments, state: State) -> State:
        """A logit more in the denominator."""
        if a.sinks is None:
            return state
        m, l, acc = state
        sink = self.sink(a)
        top = torch.maximum(m, sink)
        old = torch.exp(m - top)
        return top, l * old + torch.exp(sink - top), acc * old[..., None]

    def sink(self, a: Arguments) -> Tensor:
        return a.sinks[:, None]  # pyright: ignore[reportOptionalSubscript]

    def divided(self, acc: Tensor, total: Tensor) -> Tensor:
        """0 where nothing was seen."""
        return acc / torch.where(total == 0, 1.0, total)[..., None]
