"""A problem and where its keys lie in a pool; knows slots and poison, not tensors or libraries.

What no query may see is never zero: the tail of a sequence's last block, blocks of nobody and the
padding of a block table hold poison.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .truth import FORMATS, Codes, Problem, rounded
from .truth.problem import Array

Which = Literal["key", "value"]
BIG = {"float16": 6e4, "float8_e5m2": 5e4, "float8_e4m3fn": 448.0, "int8": 127.0, "int4": 7.0}


@dataclass(frozen=True)
class Placement:
    """Where every block of every sequence lies, and what is everywhere else.

    Attributes:
        block_size: Tokens per block.
        num_blocks: Blocks of the pool.
        block_ids: Per sequence, its blocks in order; two sequences may share their first ones.
        poison: What slots hold that belong to no position: "nan", "inf", "big" (large, finite),
            "stale" (plausible numbers, as an earlier sequence leaves them) or "zero".
        padding: What a block table holds where there is no block.
        extra_columns: Columns of the block table beyond the longest sequence's.
        storage: Name of a memory order, one of the convention's `storages`.
        guards: Blocks of poison before and after the pool, in the same memory.
        holes: Blocks that no query of their sequence sees are gone: the table has padding there.
        seed: Of the stale numbers.
    """

    block_size: int
    num_blocks: int
    block_ids: tuple[tuple[int, ...], ...]
    poison: str = "nan"
    padding: int = -1
    extra_columns: int = 0
    storage: str = ""
    guards: int = 1
    holes: bool = False
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Case:
    """One call's worth of inputs, before any convention has packed it.

    Attributes:
        problem: What is to be computed.
        placement: Where its keys and values are.
        recipe: The few numbers it was built from, if it was.
    """

    problem: Problem
    placement: Placement
    recipe: Any = None

    def __post_init__(self):
        size = self.placement.block_size
        for s, (ids, kv_len) in enumerate(zip(self.placement.block_ids, self.problem.kv_lens)):
            if len(ids) != -(-kv_len // size):
                raise ValueError(
                    f"sequence {s} has {kv_len} keys and {len(ids)} blocks of {size}; "
                    f"{-(-kv_len // size)} would be right"
                )

    def placed(self, **changes: Any) -> Case:
        """The same problem, placed differently."""
        return replace(self, placement=replace(self.placement, **changes))

    def slots(self, s: int) -> NDArray[np.int64]:
        """`[kv_len]`: the slot of every position of sequence s."""
        position = np.arange(self.problem.kv_lens[s])
        ids = np.array(self.placement.block_ids[s], dtype=np.int64)
        size = self.placement.block_size
        return ids[position // size] * size + position % size

    def kept_blocks(self, s: int) -> list[bool]:
        """Which blocks of sequence s are in its table: all of them, unless there are holes."""
        size, ids = self.placement.block_size, self.placement.block_ids[s]
        if not self.placement.holes:
            return [True] * len(ids)
        seen = np.logical_or.reduce(self.problem.visible(s), axis=0)
        return [bool(seen[i * size : (i + 1) * size].any()) for i in range(len(ids))]

    def kept(self, s: int) -> NDArray[np.bool_]:
        """`[kv_len]`: positions whose block is in the table."""
        kept = np.repeat(self.kept_blocks(s), self.placement.block_size)
        return kept[: self.problem.kv_lens[s]].astype(bool)

    def owned(self) -> NDArray[np.bool_]:
        """`[num_blocks, block_size]`: slots that hold a position of some sequence."""
        owned = np.zeros(self.placement.num_blocks * self.placement.block_size, dtype=bool)
        for s in range(self.problem.num_seqs):
            owned[self.slots(s)[self.kept(s)]] = True
        return owned.reshape(self.placement.num_blocks, self.placement.block_size)

    def codes(self, which: Which) -> Codes | None:
        """The quantised form of the keys or values, or None."""
        return self.problem.key_codes if which == "key" else self.problem.value_codes

    def stored_dtype(self, which: Which) -> str:
        """Format of what the cache stores: the problem's, or that of its codes."""
        codes = self.codes(which)
        return codes.form if codes else self.problem.dtype

    def pool(self, which: Which, guards: int = 0) -> Array:
        """`[num_blocks + 2 * guards, block_size, num_kv_heads, dim]`: what the cache stores.

        Slots of no position hold the poison, the guard blocks on both sides too.
        """
        place, codes = self.placement, self.codes(which)
        tokens = codes.numbers if codes else getattr(self.problem, which)
        shape = place.num_blocks + 2 * guards, place.block_size, *tokens[0].shape[1:]
        if self.is_far(which):
            raise ValueError(f"a pool of {list(shape)} is not for this memory; features.far is off")
        pool = self.poison(shape, self.stored_dtype(which), which)
        flat = pool.reshape(-1, *shape[2:])
        for s, stored in enumerate(tokens):
            kept = self.kept(s)
            flat[self.slots(s)[kept] + guards * place.block_size] = stored[kept]
        return pool

    def is_far(self, which: Which) -> bool:
        """Whether the pool is too large to be filled: only what is used can be written."""
        place, tokens = self.placement, getattr(self.problem, which)
        return place.num_blocks * place.block_size * math.prod(tokens[0].shape[1:]) > 2**28

    def scales(self, which: Which) -> Array | None:
        """`[]`, `[num_kv_heads]`, or by slot `[num_blocks, block_size, num_kv_heads]`; or None.

        Scales of slots that hold no position are poison, as far as a scale can be.
        """
        codes = self.codes(which)
        if codes is None:
            return None
        if not isinstance(codes.scale, tuple):
            return codes.scale
        place, heads = self.placement, self.problem.num_kv_heads
        pool = self.poison((place.num_blocks, place.block_size, heads), "float32", which)
        for s, scale in enumerate(codes.scale):
            pool.reshape(-1, heads)[self.slots(s)] = scale
        return pool

    def poison(self, shape: tuple[int, ...], dtype: str, tag: str = "") -> Array:
        """An array of nothing but this placement's poison, on the grid of `dtype`."""
        kind, form = self.placement.poison, FORMATS[dtype]
        if kind == "stale":
            mark = zlib.crc32(tag.encode())
            numbers = np.random.default_rng([self.placement.seed, mark]).standard_normal(shape)
            return rounded(numbers * 2 * (form.max / 2 if form.is_integer else 1), dtype)
        value = {"nan": np.nan, "inf": np.inf, "zero": 0.0, "big": BIG.get(dtype, 1e30)}[kind]
        if not np.isfinite(value) and (form.is_integer or (form.finite and kind == "inf")):
            value = form.max  # the loudest that the format can say
        return np.full(shape, value)

    @cached_property
    def table(self) -> NDArray[np.int32]:
        """`[num_seqs, max_blocks_per_seq]` int32, padded on the right; at least one column."""
        ids = self.placement.block_ids
        width = max(1, *(len(row) for row in ids), 1) + self.placement.extra_columns
        table = np.full((len(ids), width), self.placement.padding, dtype=np.int32)
        for s, row in enumerate(ids):
            kept = self.kept_blocks(s)
            table[s, : len(row)] = np.where(kept, row, self.placement.padding) if row else row
        return table

    @cached_property
    def query_start_loc(self) -> NDArray[np.int32]:
        """`[num_seqs + 1]` int32: where each sequence's rows begin in `flat_query`."""
        return np.cumsum([0, *self.problem.query_lens]).astype(np.int32)

    @cached_property
    def seq_lens(self) -> NDArray[np.int32]:
        """`[num_seqs]` int32: keys of each sequence."""
        return np.array(self.problem.kv_lens, dtype=np.int32)

    @cached_property
    def flat_query(self) -> Array:
        """`[num_tokens, num_heads, head_dim]`: the queries of all sequences, one after another."""
        return np.concatenate(self.problem.query)

    def per_sequence(self, rows: Array) -> tuple[Array, ...]:
        """`[num_tokens, ...]` cut into the sequences' rows again."""
        return tuple(np.split(np.asarray(rows), self.query_start_loc[1:-1]))
