"""A paged attention kernel as GPUs run it, in small steps; knows the order, nothing of the truth.

Tiles of keys, splits of a sequence, partial states in scratch memory that is never cleared, and
addresses in flat memory. Every step is a method, so that a fault is an override of one of them.
"""

# ruff: noqa: D102
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .specimen_memory import Arguments, Memory, Work
from .specimen_softmax import Softmax, State


class Specimen(Memory, Softmax):
    """A correct kernel of the native convention, to be made wrong in one place.

    Attributes:
        queries: Queries per tile.
        tile: Keys per tile.
        num_splits: Splits of every sequence, however short; those of a short one are empty.
    """

    queries, tile, num_splits = 4, 8, 4

    def __init__(self):
        self.scratch: dict[tuple[int, ...], State] = {}

    def __call__(self, *tensors: Any, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
        """As `minipaged.attention.paged_attention`."""
        a = self.arguments(Arguments(*tensors, **options))
        out, lse = self.allocate(a)
        for s in range(self.num_seqs(a)):
            for work in self.work(a, s):
                state = self.merge(a, work, self.partials(a, work))
                self.store(a, work, out, lse, *self.finish(a, state))
        return self.returned(a, out, lse)

    def arguments(self, a: Arguments) -> Arguments:
        return a

    def returned(self, a: Arguments, out: Tensor, lse: Tensor) -> Any:
        return (out, lse) if a.return_lse else out

    def allocate(self, a: Arguments) -> tuple[Tensor, Tensor]:
        """Memory for the output and the lse, as it comes."""
        tokens, heads = a.query.shape[:2]
        out = torch.empty(tokens, heads, a.value_cache.shape[3], dtype=a.query.dtype)
        return out, torch.empty(tokens, heads)

    def num_seqs(self, a: Arguments) -> int:
        return len(a.seq_lens)

    # --- what is to be done ------------------------------------------------------------------

    def work(self, a: Arguments, s: int) -> list[Work]:
        """Tiles of the queries of one sequence."""
        first, end = a.query_start_loc[s : s + 2].tolist()
        kv_len, count, tiles = self.kv_len(a, s), end - first, []
        for i in range(0, count, self.queries):
            index = torch.arange(i, min(i + self.queries, count))
            positions = self.positions(a, index, count, kv_len)
            tiles.append(Work(s, self.rows(a, s, first, index), positions, kv_len, count))
        return tiles

    def kv_len(self, a: Arguments, s: int) -> int:
        return int(a.seq_lens[s])

    def rows(self, a: Arguments, s: int, first: int, index: Tensor) -> Tensor:
        return first + index

    def positions(self, a: Arguments, index: Tensor, count: int, kv_len: int) -> Tensor:
        """Where the queries stand: the last one at the last key."""
        return kv_len - count + index

    def key_range(self, a: Arguments, w: Work) -> tuple[int, int]:
        """From the first key that some query of the tile sees to behind the last one."""
        low = max(0, int(w.positions[0]) - a.window + 1) if a.window is not None else 0
        high = min(w.kv_len, int(w.positions[-1]) + 1) if a.causal else w.kv_len
        return low, high

    def split_len(self, a: Arguments, w: Work) -> int:
        """Keys per split, a multiple of the tile."""
        return -(-w.kv_len // (self.num_splits * self.tile)) * self.tile

    # --- one split ---------------------------------------------------------------------------

    def partials(self, a: Arguments, w: Work) -> list[State]:
        """The states of the splits that have keys; those of the others keep what they held."""
        low, high = self.key_range(a, w)
        length, states = self.split_len(a, w), []
        for split in range(self.num_splits):
            begin, end = max(low, split * length), min(high, (split + 1) * length)
            key = (split, len(w.rows), a.query.shape[1], a.value_cache.shape[3])
            slot = self.scratch.setdefault(key, self.empty(*key[1:]))
            if self.is_live(begin, end):
                slot = self.scratch[key] = self.one_split(a, w, begin, end, length)
                states.append(slot)
            else:
                states += self.dead_split(slot)
        return states

    def is_live(self, begin: int, end: int) -> bool:
        return begin < end

    def dead_split(self, slot: State) -> list[State]:
        return []

    def one_split(self, a: Arguments, w: Work, begin: int, end: int, length: int) -> State:
        """Walks the keys of a split, tile by tile."""
        query = self.load_query(a, w)
        state = self.empty(len(w.rows), a.query.shape[1], a.value_cache.shape[3])
        for first in range(begin // self.tile * self.tile, end, self.tile):
            keys = torch.arange(first, first + self.tile)
            inside = self.inside(a, w, keys, begin, end)
            key = self.load(a, w, "key", keys, inside)
            scores = self.biased(a, w, self.scores(a, query, key), keys)
            scores = self.masked(a, scores, self.seen(a, w, keys, inside))
            state = self.update(a, state, scores, self.load(a, w, "value", keys, inside))
        return state

    def seen(self, a: Arguments, w: Work, keys: Tensor, inside: Tensor) -> Tensor:
        return self.mask(a, w, keys) & inside

    def masked(self, a: Arguments, scores: Tensor, seen: Tensor) -> Tensor:
        return scores.masked_fill(~seen, -torch.inf)

    def inside(self, a: Arguments, w: Work, keys: Tensor, begin: int, end: int) -> Tensor:
        """Which keys of a tile belong to the split."""
        return (keys >= begin) & (keys < end)

    def store(self, a: Arguments, w: Work, out: Tensor, lse: Tensor, o: Tensor, e: Tensor) -> None:
        """Rounded once, at the very end."""
        out[w.rows] = o.transpose(0, 1).to(out.dtype)
        lse[w.rows] = e.transpose(0, 1)
