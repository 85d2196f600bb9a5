"""One step as tensors: the only crossing from bookkeeping to arithmetic.

Prefill, a chunk of a prefill and decode are the same thing, a number of new tokens per sequence;
decode is "every number is 1". There is no phase flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from minipaged.core import NO_BLOCK, BlockTable, InvalidBatch


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """Where the new tokens of a step are, where they go, and what they may look at."""

    positions: Tensor  # [num_tokens] int64, in each token's own sequence
    slot_mapping: Tensor  # [num_tokens] int64, where its K and V are written
    block_tables: Tensor  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens: Tensor  # [num_seqs] int32, this step included
    query_start_loc: Tensor  # [num_seqs + 1] int32, the new tokens of sequence s

    @classmethod
    def build(cls, tables: Sequence[BlockTable], device: torch.device | str = "cpu") -> PagedBatch:
        """The open reservations of ``tables``, sequence after sequence."""
        block_size = tables[0].block_size
        starts = np.array([t.num_tokens for t in tables])
        ends = np.array([t.num_reserved for t in tables])
        start_loc = np.concatenate([[0], np.cumsum(ends - starts)])
        row = np.repeat(np.arange(len(tables)), ends - starts)
        positions = np.arange(start_loc[-1]) - start_loc[row] + starts[row]
        padded = pad_tables([t.block_ids for t in tables])
        blocks = padded[row, positions // block_size].astype(np.int64)
        slots = blocks * block_size + positions % block_size
        long = (torch.from_numpy(array).to(device) for array in (positions, slots))
        arrays = (padded, ends, start_loc)
        short = (torch.from_numpy(a.astype(np.int32, copy=False)).to(device) for a in arrays)
        return cls(*long, *short)

    def validate(self, num_blocks: int, block_size: int) -> None:
        """Check the values; reads the tensors back, so it is for tests and ``sanitize=True``.

        Raises:
            InvalidBatch: the first contradiction found, with the sequence and the sizes.
        """
        starts, counts = self.query_start_loc.tolist(), self.query_start_loc.diff().tolist()
        if (
            starts[0] != 0
            or min(counts) < 0
            or not (starts[-1] == len(self.positions) == len(self.slot_mapping))
        ):
            raise InvalidBatch(
                f"query_start_loc {starts} must rise from 0 to the number of positions "
                f"({len(self.positions)}) and of slots ({len(self.slot_mapping)})"
            )
        used = self.slot_mapping[self.slot_mapping >= 0]
        if len(used.unique()) != len(used):
            raise InvalidBatch("two tokens of this step write the same slot")
        for s, (seq_len, count) in enumerate(zip(self.seq_lens.tolist(), counts, strict=True)):
            table = self.block_tables[s].tolist()
            if not count <= seq_len <= len(table) * block_size:
                raise InvalidBatch(
                    f"block_tables covers {len(table) * block_size} tokens of sequence {s}, "
                    f"seq_lens asks for {seq_len}, {count} of them new (block_size {block_size})"
                )
            for block_id in table[: -(-seq_len // block_size)]:
                if block_id != NO_BLOCK and not 0 <= block_id < num_blocks:
                    raise InvalidBatch(f"sequence {s} has block {block_id} of {num_blocks} blocks")
            new, expected = slice(starts[s], starts[s + 1]), range(seq_len - count, seq_len)
            right = [table[p // block_size] * block_size + p % block_size for p in expected]
            positions, slots = self.positions[new].tolist(), self.slot_mapping[new].tolist()
            if positions != list(expected) or any(a not in (-1, b) for a, b in zip(slots, right)):
                raise InvalidBatch(
                    f"sequence {s} writes positions {positions} to slots {slots}; its table says "
                    f"positions {list(expected)} and slots {right}"
                )


def pad_tables(block_ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Block tables of different lengths as one ``[num_seqs, max_blocks_per_seq]`` int32 array."""
    lens = np.array([len(ids) for ids in block_ids])
    padded = np.full((len(lens), max(1, lens.max(initial=0))), NO_BLOCK, dtype=np.int32)
    inside = np.arange(padded.shape[1]) < lens[:, None]
    padded[inside] = np.fromiter(chain.from_iterable(block_ids), np.int32, int(lens.sum()))
    return padded
