"""Rotary position embedding: turns pairs of a head's components by angles that grow with position.

A pair is (component i, component i + head_dim / 2). Knows no weights and no cache.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .config import ModelConfig, RopeScaling


def rotary_frequencies(config: ModelConfig) -> Tensor:  # [head_dim / 2] float32
    """Radians per position of each pair.

    In float32 for every model dtype, operation by operation like the code the models were trained
    with: its rounding is part of their weights, and far positions multiply it.
    """
    exponents = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    plain = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "divisors":
        return plain / torch.tensor(scaling.divisors)
    return _llama3(plain, scaling)


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow down the pairs that turn rarely within the original context, keep the fast ones."""
    turns = scaling.original_len / (2 * math.pi / plain)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - keep) * plain / scaling.factor + keep * plain


def rotary_angles(
    positions: Tensor,  # [num_tokens] int64
    frequencies: Tensor,  # [head_dim / 2] float32
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # [num_tokens, 1, head_dim] twice
    """Cosine, and sine with the sign that ``rotate`` wants: one step's worth, for all layers."""
    angles = positions[:, None, None] * frequencies
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(
    x: Tensor,  # [num_tokens, num_heads, head_dim]
    cos: Tensor,  # [num_tokens, 1, head_dim]
    sin: Tensor,  # [num_tokens, 1, head_dim], its first half negated
) -> Tensor:  # as x
    """(a, b) becomes (a cos - b sin, b cos + a sin), in three passes over memory."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
