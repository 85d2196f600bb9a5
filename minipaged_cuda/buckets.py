"""Which captured step serves a batch, and the batch's numbers at addresses that stay.

A graph is recorded for a number of rows and a width of the block table; a batch is served by the
smallest that has room for it, and what it does not fill is padding:

    rows        0   1   2 | 3        three sequences in a bucket of four
    token_ids   17  4   9 | 0
    slots       80  33  7 | -1       written by nobody
    seq_lens    5   18  3 | 0        sees nothing, so attention gives 0

Knows no device: ``graphs`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from minipaged.cache import PagedBatch

SMALLEST_TABLE = 16  # blocks; narrower tables are not worth a graph of their own


class Bucket(NamedTuple):
    """The shape of a recorded step."""

    num_rows: int
    max_blocks: int


class Memory(Protocol):
    """Where inputs live: a device, and host memory that it copies from."""

    device: torch.device

    def host_memory(self, num_bytes: int) -> Tensor:
        """Memory on the host, ``[num_bytes]`` uint8."""
        ...


def bucket_for(num_rows: int, num_blocks: int, most: Bucket) -> Bucket:
    """The smallest bucket with room, none larger than ``most``.

    Less than a third of its rows are padding, and its table is less than four times as wide as
    needed, or 16 blocks: so there are few buckets, and little is computed for nothing.

    Examples:
        >>> bucket_for(5, 20, most=Bucket(64, 256))
        Bucket(num_rows=6, max_blocks=64)
        >>> bucket_for(50, 200, most=Bucket(56, 200))
        Bucket(num_rows=56, max_blocks=200)
    """
    power = 1 << (num_rows - 1).bit_length()
    rows = power * 3 // 4 if num_rows <= power * 3 // 4 else power
    blocks = SMALLEST_TABLE
    while blocks < num_blocks:
        blocks *= 4
    return Bucket(min(rows, most.num_rows), min(blocks, most.max_blocks))


class Inputs:
    """One step's numbers on a device, filled by a single copy.

    Args:
        num_tokens: new tokens.
        num_seqs: sequences.
        max_blocks: columns of the block table.
        memory: where.

    Attributes:
        token_ids: ``[num_tokens]`` int64.
        batch: the other tensors; like ``token_ids`` they are views of one buffer, and stay where
            they are.
    """

    def __init__(self, num_tokens: int, num_seqs: int, max_blocks: int, memory: Memory):
        self._shapes = (
            ((num_tokens,), torch.int64),  # token ids
            ((num_tokens,), torch.int64),  # positions
            ((num_tokens,), torch.int64),  # slots
            ((num_seqs, max_blocks), torch.int32),  # block tables
            ((num_seqs,), torch.int32),  # lengths
            ((num_seqs + 1,), torch.int32),  # where rows begin
        )
        sizes = (torch.Size(shape).numel() * dtype.itemsize for shape, dtype in self._shapes)
        self._ends = list(accumulate(sizes))
        self._memory = memory
        self._buffer = torch.zeros(self._ends[-1], dtype=torch.uint8, device=memory.device)
        self.token_ids, *rest = self._views(self._buffer)
        self.batch = PagedBatch(*rest)

    def fill(self, token_ids: Sequence[int], batch: PagedBatch) -> None:
        """Put a batch there; a sequence that it does not have has one token, which does nothing.

        Args:
            token_ids: the new tokens.
            batch: its tensors are on the host.
        """
        host = self._memory.host_memory(self._ends[-1])
        ids, positions, slots, tables, lens, starts = self._views(host)
        num_tokens, (num_seqs, num_blocks) = len(token_ids), batch.block_tables.shape
        for view, padding in ((ids, 0), (positions, 0), (slots, -1), (tables, -1), (lens, 0)):
            view.fill_(padding)
        ids[:num_tokens] = torch.tensor(token_ids)
        positions[:num_tokens], slots[:num_tokens] = batch.positions, batch.slot_mapping
        tables[:num_seqs, :num_blocks], lens[:num_seqs] = batch.block_tables, batch.seq_lens
        num_idle = len(lens) - num_seqs
        starts[: num_seqs + 1] = batch.query_start_loc
        starts[num_seqs + 1 :] = torch.arange(num_tokens + 1, num_tokens + num_idle + 1)
        self._buffer.copy_(host, non_blocking=True)

    def _views(self, buffer: Tensor) -> list[Tensor]:
        starts = [0, *self._ends]
        return [
            buffer[start:end].view(dtype).view(shape)
            for start, end, (shape, dtype) in zip(starts, self._ends, self._shapes)
        ]
