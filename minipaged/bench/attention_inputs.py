"""The same numbers as blocks and as contiguous tensors; times nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_SIZE = 16


class Shape(NamedTuple):
    """One step's attention; two kv heads of 64 numbers, which is enough to fill memory."""

    num_seqs: int
    context: int  # the longest; ragged lengths go down to a quarter of it
    group: int  # query heads per kv head
    ragged: bool = False
    num_queries: int = 1  # per sequence; more than one is a prompt
    num_kv_heads: int = 2
    head_dim: int = 64

    @property
    def lengths(self) -> list[int]:
        """Keys of every sequence: all equal, or spread evenly from a quarter to the whole."""
        if not self.ragged or self.num_seqs == 1:
            return [self.context] * self.num_seqs
        low, steps = self.context // 4, self.num_seqs - 1
        return [low + (self.context - low) * i // steps for i in range(self.num_seqs)]

    @property
    def kv_bytes(self) -> int:
        """K and V of every key, read once, float32."""
        return 2 * 4 * sum(self.lengths) * self.num_kv_heads * self.head_dim

    @property
    def flops(self) -> int:
        """Of a causal prompt: scores and sums of what each query sees."""
        seen = self.num_queries * (2 * self.context - self.num_queries + 1) // 2
        return 4 * self.num_seqs * seen * self.num_kv_heads * self.group * self.head_dim

    def __str__(self) -> str:
        kind = "decode" if self.num_queries == 1 else "prefill"
        lengths = "ragged" if self.ragged else "equal"
        return f"{kind}, {self.num_seqs} x {self.context} {lengths}, group {self.group}"


@dataclass(frozen=True)
class Inputs:
    """One problem in both forms."""

    shape: Shape
    paged: tuple[Tensor, ...]  # query, caches, block_tables, seq_lens, query_start_loc
    query: Tensor  # [num_seqs, num_heads, num_queries, head_dim]
    keys: Tensor  # [num_seqs, num_kv_heads, context, head_dim], beyond a length zeros
    values: Tensor
    scale: float

    @classmethod
    def draw(cls, shape: Shape) -> Inputs:
        """Random numbers; the blocks lie in a random order, each head's tokens together."""
        draw = torch.Generator().manual_seed(0)
        heads, dim = shape.num_kv_heads, shape.head_dim
        num_blocks = [-(-length // BLOCK_SIZE) for length in shape.lengths]
        width, total = max(num_blocks), sum(num_blocks)
        storage = torch.zeros(2, total, heads, BLOCK_SIZE, dim)
        padded = torch.zeros(2, shape.num_seqs, heads, width * BLOCK_SIZE, dim)
        tables = torch.full((shape.num_seqs, width), -1, dtype=torch.int32)
        order = torch.randperm(total, generator=draw)
        ends = list(accumulate(num_blocks, initial=0))
        for i, length in enumerate(shape.lengths):
            ids = order[ends[i] : ends[i + 1]]
            tables[i, : len(ids)] = ids
            padded[:, i, :, :length] = torch.randn(2, heads, length, dim, generator=draw)
            rows = padded[:, i, :, : len(ids) * BLOCK_SIZE]
            storage[:, ids] = rows.unflatten(2, (-1, BLOCK_SIZE)).transpose(1, 2)
        size = shape.num_seqs, heads * shape.group, shape.num_queries, dim
        query = torch.randn(size, generator=draw)
        rows = query.transpose(1, 2).reshape(-1, heads * shape.group, dim)
        lengths = torch.tensor(shape.lengths, dtype=torch.int32)
        starts = torch.arange(shape.num_seqs + 1, dtype=torch.int32) * shape.num_queries
        caches = storage[0].transpose(1, 2), storage[1].transpose(1, 2)
        keys, values = padded[..., : shape.context, :].contiguous()
        paged = rows.contiguous(), *caches, tables, lengths, starts
        return cls(shape, paged, query, keys, values, dim**-0.5)


def torch_ways(inputs: Inputs) -> list[Callable[[], Tensor]]:
    """How torch may be asked; each returns what the paged call does, as the same rows."""
    if inputs.shape.num_queries > 1:
        return [partial(_whole, inputs, {"is_causal": True})]
    if not inputs.shape.ragged:
        return [partial(_whole, inputs, {}), partial(_whole, inputs, {"fold": True})]
    positions = torch.arange(inputs.shape.context)
    lengths = torch.tensor(inputs.shape.lengths)
    mask = (positions < lengths[:, None])[:, None, None]  # [num_seqs, 1, 1, context]
    masked = {"attn_mask": mask}
    return [
        partial(_whole, inputs, masked),
        partial(_whole, inputs, {**masked, "fold": True}),
        partial(_one_by_one, inputs),
    ]


def _whole(inputs: Inputs, options: dict[str, Any]) -> Tensor:
    out = _sdpa(inputs, inputs.query, inputs.keys, inputs.values, **options)
    return out.transpose(1, 2).flatten(0, 1)


def _one_by_one(inputs: Inputs) -> Tensor:
    rows = [
        _sdpa(
            inputs,
            inputs.query[i : i + 1],
            inputs.keys[i : i + 1, :, :length],
            inputs.values[i : i + 1, :, :length],
            fold=True,
        )
        for i, length in enumerate(inputs.shape.lengths)
    ]
    return torch.cat(rows).transpose(1, 2).flatten(0, 1)


def _sdpa(
    inputs: Inputs, query: Tensor, keys: Tensor, values: Tensor, fold: bool = False, **options: Any
) -> Tensor:
    """One call. Folded, the query heads of a kv head are rows of one product, as is fastest."""
    shape, grouped = query.shape, inputs.shape.group > 1
    if fold:
        query, grouped = query.reshape(len(query), keys.shape[1], -1, shape[-1]), False
    out = F.scaled_dot_product_attention(
        query, keys, values, scale=inputs.scale, enable_gqa=grouped, **options
    )
    return out.reshape(shape)
