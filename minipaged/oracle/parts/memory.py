"""Memory that tells: caches of every layout amid random bytes, and what changed; knows no law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Views = tuple[Tensor, Tensor]
Sizes = tuple[
    int, int, int, int, int
]  # num_blocks, block_size, num_heads, head_dim, value_head_dim


def random_bytes(shape: Sequence[int], dtype: torch.dtype, seed: int | Sequence[int]) -> Tensor:
    """A tensor of random bits: of a float type, among them NaN of every payload."""
    shape = tuple(shape)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    raw = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)


def bits(tensor: Tensor) -> Tensor:
    """`[..., bytes]`: a copy of a tensor's bits, so that NaN can be compared."""
    copied = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copied.unsqueeze(-1).view(torch.uint8)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True if two tensors agree in shape, type and every bit."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def rows_differ(a: Tensor, b: Tensor, num_leading: int) -> Tensor:
    """Boolean `a.shape[:num_leading]`: which rows differ in a bit."""
    lead = a.shape[:num_leading]
    unequal = (bits(a) != bits(b)).reshape(*lead, -1)
    return unequal.any(-1) if unequal.shape[-1] else torch.zeros(lead, dtype=torch.bool)


# Layout name -> shapes of the memory, and how the key and the value cache are cut out of it. The
# first and the last block of each piece of memory are guards.
LAYOUTS: dict[str, Callable[..., tuple[list[tuple[int, ...]], Callable[..., Views]]]] = {
    "packed": lambda n, bs, h, dk, dv: (
        [(n, bs, h, dk), (n, bs, h, dv)],
        lambda k, v: (k, v),
    ),
    "HND": lambda n, bs, h, dk, dv: (
        [(n, h, bs, dk), (n, h, bs, dv)],
        lambda k, v: (k.transpose(1, 2), v.transpose(1, 2)),
    ),
    "only values HND": lambda n, bs, h, dk, dv: (
        [(n, bs, h, dk), (n, h, bs, dv)],
        lambda k, v: (k, v.transpose(1, 2)),
    ),
    "padded blocks": lambda n, bs, h, dk, dv: (
        [(n, bs + 2, h, dk), (n, bs + 1, h, dv)],
        lambda k, v: (k[:, :bs], v[:, :bs]),
    ),
    "padded tokens": lambda n, bs, h, dk, dv: (
        [(n, bs, h + 1, dk), (n, bs, h + 2, dv)],
        lambda k, v: (k[:, :, :h], v[:, :, 1 : h + 1]),
    ),
    "padded heads": lambda n, bs, h, dk, dv: (
        [(n, bs, h, dk + 3), (n, bs, h, dv + 1)],
        lambda k, v: (k[..., :dk], v[..., :dv]),
    ),
    "interleaved": lambda n, bs, h, dk, dv: (
        [(n, 2, bs, h, max(dk, dv))],
        lambda m: (m[:, 0, ..., :dk], m[:, 1, ..., :dv]),
    ),
    "token by token": lambda n, bs, h, dk, dv: (
        [(n, bs, 2, h, max(dk, dv))],
        lambda m: (m[:, :, 0, :, :dk], m[:, :, 1, :, :dv]),
    ),
    "side by side": lambda n, bs, h, dk, dv: (
        [(n, bs, h, dk + dv)],
        lambda m: (m[..., :dk], m[..., dk:]),
    ),
    "layers": lambda n, bs, h, dk, dv: (
        [(n, 3, bs, h, dk), (n, 2, bs, h, dv)],
        lambda k, v: (k[:, 1], v[:, 0]),
    ),
}


@dataclass
class Pool:
    """A key and a value cache of some layout in memory of random bytes, guards around them."""

    layout: str
    sizes: Sizes
    dtype: torch.dtype
    pieces: list[Tensor]  # the memory itself, guards and gaps included

    @classmethod
    def build(cls, layout: str, sizes: Sizes, dtype: torch.dtype, seed: int) -> Pool:
        """Random bytes everywhere."""
        shapes, _ = LAYOUTS[layout](sizes[0] + 2, *sizes[1:])
        pieces = [random_bytes(shape, dtype, [seed, i]) for i, shape in enumerate(shapes)]
        return cls(layout, sizes, dtype, pieces)

    def clone(self, device: str = "cpu") -> Pool:
        """The same bits elsewhere."""
        return Pool(
            self.layout, self.sizes, self.dtype, [p.to(device, copy=True) for p in self.pieces]
        )

    def views(self) -> Views:
        """`[num_blocks, block_size, num_heads, dim]` of keys and of values, into the memory."""
        cut = LAYOUTS[self.layout](self.sizes[0] + 2, *self.sizes[1:])[1]
        key, value = cut(*self.pieces)
        return key[1:-1], value[1:-1]

    def differs(self, other: Pool) -> int:
        """How many bytes of the memory differ, guards and gaps included."""
        pairs = zip(self.pieces, other.pieces)
        return sum(int((bits(a) != bits(b)).sum()) for a, b in pairs)


INPUT_LAYOUTS = ("packed", "fused", "heads first", "every other", "sliced dim")


def laid_out(rows: Tensor, layout: str) -> Tensor:
    """The same `[num_tokens, num_heads, dim]` numbers in another memory order.

    "fused" is a slice of rows that hold more than these heads, as one projection to query, key and
    value gives; "heads first" a head's tokens together; "every other" has a stride over tokens.
    """
    num_tokens, num_heads, dim = rows.shape
    new = {
        "packed": lambda: torch.empty_like(rows, memory_format=torch.contiguous_format),
        "fused": lambda: rows.new_zeros(num_tokens, 3 * num_heads, dim)[
            :, num_heads : 2 * num_heads
        ],
        "heads first": lambda: rows.new_zeros(num_heads, num_tokens, dim).transpose(0, 1),
        "every other": lambda: rows.new_zeros(2 * num_tokens, num_heads, dim)[::2],
        "sliced dim": lambda: rows.new_zeros(num_tokens, num_heads, dim + 3)[..., 2 : dim + 2],
    }[layout]()
    return new.copy_(rows)
