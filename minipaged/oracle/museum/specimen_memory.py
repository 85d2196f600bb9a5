"""The specimen's way to memory: blocks, addresses, lanes; knows strides, no softmax.

Memory has no end here: an address beyond it wraps around, where a GPU would read a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Arguments:
    """What a call was given, under its own names."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    query_start_loc: Tensor
    scale: float
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    alibi_slopes: Tensor | None = None
    sinks: Tensor | None = None
    k_scale: Tensor | float | None = None
    v_scale: Tensor | float | None = None
    return_lse: bool = False

    @property
    def group(self) -> int:
        """Query heads per kv head."""
        return self.query.shape[1] // self.key_cache.shape[2]


@dataclass
class Work:
    """One tile of queries: their sequence, their rows of the query, and how many keys there are."""

    s: int
    rows: Tensor
    positions: Tensor
    kv_len: int
    query_len: int


class Memory:
    """Tiles of keys and values, from where they lie."""

    def load_query(self, a: Arguments, w: Work) -> Tensor:
        """`[num_heads, rows, head_dim]`."""
        return a.query[w.rows].float().transpose(0, 1)

    def load(self, a: Arguments, w: Work, which: str, keys: Tensor, inside: Tensor) -> Tensor:
        """`[num_heads, tile, dim]`: a tile of keys or values; 0 in lanes that are switched off."""
        cache = a.key_cache if which == "key" else a.value_cache
        size, heads = cache.shape[1], self.kv_heads(a)
        logical, offset = self.place(a, keys, size)
        block = self.lookup(a, w, which, logical, inside)
        dims = torch.arange(cache.shape[3])
        index = block[None, :, None], offset[None, :, None], heads[:, None, None], dims
        tile = self.read(cache, self.address(a, cache, *index)).float()
        scale = self.head_scale(a, which)
        tile = tile if scale is None else tile * scale[:, None, None]
        return self.switched_off(a, which, tile, inside)

    def place(self, a: Arguments, keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Logical block and offset in it."""
        return keys // size, keys % size

    def lookup(self, a: Arguments, w: Work, which: str, logical: Tensor, inside: Tensor) -> Tensor:
        """The blocks of lanes that are switched on; block 0 for the others."""
        width = a.block_tables.shape[1]
        entry = (w.s * width + logical) % a.block_tables.numel()
        return torch.where(inside, a.block_tables.flatten()[entry].long(), 0)

    def address(
        self, a: Arguments, cache: Tensor, block: Any, offset: Any, head: Any, dim: Any
    ) -> Tensor:
        """Elements from the beginning of the memory, from the strides of the cache."""
        s0, s1, s2, s3 = cache.stride()
        return cache.storage_offset() + block * s0 + offset * s1 + head * s2 + dim * s3

    def read(self, cache: Tensor, address: Tensor) -> Tensor:
        """What stands there."""
        raw = torch.tensor([], dtype=torch.uint8).set_(cache.untyped_storage())  # pyright: ignore
        if cache.itemsize == 1:  # few operations know a float of 8 bits
            return raw[address % len(raw)].view(cache.dtype)
        memory = raw.view(cache.dtype)
        return memory[address % len(memory)]

    def switched_off(self, a: Arguments, which: str, tile: Tensor, inside: Tensor) -> Tensor:
        """0 where nothing is to be read."""
        return tile.masked_fill(~inside[:, None], 0.0)

    # --- heads and their numbers -------------------------------------------------------------

    def kv_heads(self, a: Arguments) -> Tensor:
        """The kv head of every query head."""
        return torch.arange(a.query.shape[1]) // a.group

    def head_scale(self, a: Arguments, which: str) -> Tensor | None:
        """`[num_heads]`: what a stored number is worth, or None."""
        scale = a.k_scale if which == "key" else a.v_scale
        if scale is None:
            return None
        return torch.as_tensor(scale, dtype=torch.float32).expand(a.key_cache.shape[2])[
            self.kv_heads(a)
        ]
