"""What merging must give, in float64, with bounds on the error; knows arrays only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..truth.formats import FORMATS

Array = NDArray[np.float64]
U32 = 2.0**-24


@dataclass(frozen=True)
class Bounds:
    """The right result, and how far a float32 computation may be from it."""

    out: Array  # [num_tokens, num_heads, head_dim]
    lse: Array  # [num_tokens, num_heads]
    out_bound: Array
    lse_bound: Array

    def widened(self, values: Array, dtype: torch.dtype) -> Bounds:
        """Room for the rounding of what was merged to its type."""
        largest = np.abs(values).max(axis=-2)
        more = 2 * _unit(dtype) * largest
        return replace(
            self,
            out_bound=self.out_bound + more + 8 * U32 * largest,
            lse_bound=self.lse_bound + 4 * U32 * (1 + np.abs(self.lse)),
        )


def merged(states: Sequence[tuple[Array, Array]], base: float, dtype: torch.dtype) -> Bounds:
    """The union of states `(out, lse)`; lse times `base` is the natural logarithm.

    An lse of -inf or +inf marks an empty state, of which nothing is used.

    Per state the weight exp(lse - max) is off by a few roundings, and by one more of the exponent
    for every unit of its size, or of lse where a kernel changes the base first; a rounding of the
    result is added per step.
    """
    outs, lses = (np.stack(x) for x in zip(*states))
    empty = ~np.isfinite(lses)
    natural = np.where(empty, -np.inf, lses * base)
    top = natural.max(0)
    shift = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(natural - shift)
    total = weights.sum(0)
    part = weights / np.where(total == 0, 1.0, total)
    outs = np.where(empty[..., None], 0.0, outs)
    out = (part[..., None] * outs).sum(0)
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    finite = np.where(empty, 0.0, natural)
    steps = len(states) - 1
    off = part * (16 + 4 * np.abs(finite - shift) + 4 * np.abs(finite)) * U32 * steps
    size = (part[..., None] * np.abs(outs)).sum(0)
    out_bound = (off[..., None] * np.abs(outs)).sum(0) + off.sum(0)[..., None] * np.abs(out)
    out_bound += 1.01 * _unit(dtype) * size * steps + _tiny(dtype) * steps
    lse_bound = off.sum(0) + 8 * U32 * steps * (1 + np.abs(np.where(np.isfinite(lse), lse, 0.0)))
    return Bounds(out, lse / base, out_bound, lse_bound / base)


def attention(scores: Array, values: Array) -> tuple[Array, Array]:
    """`(out, lse)` of `[..., num_keys]` scores and `[..., num_keys, head_dim]` values."""
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1)
    out = np.einsum("...k,...kd->...d", weights, values) / total[..., None]
    return out, top[..., 0] + np.log(total)


def _unit(dtype: torch.dtype) -> float:
    return FORMATS[str(dtype).removeprefix("torch.")].unit_roundoff


def _tiny(dtype: torch.dtype) -> float:
    """A GPU may flush subnormal numbers to zero."""
    return 2 * float(torch.finfo(dtype).tiny)
