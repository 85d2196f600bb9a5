"""One sequence's map from positions to slots, and how it grows, forks and shrinks; no tensors.

A step has two halves, because K/V are written in between:

    reserve   promises slots; returns the block copies to do first      num_reserved grows
    commit    the slots are written: full blocks become findable        num_tokens follows

        block_ids    [    5    |    2    |    3    ]     slot(p) = block_ids[p // B] * B + p % B
        positions      0 1 2 3   4 5 6 7   8 9 . .       B = 4
                       written           reserved, tail waste
                       num_tokens = 8    num_reserved = 10

Paper: section 4.3 (block tables), 4.4 (copy-on-write), 4.5 (swapping).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .block_pool import BlockPool
from .errors import OutOfBlocks
from .hashing import block_hash, prefix_hashes

NO_BLOCK = -1
"""Where a table has no block any more (a sliding window has passed it); never dereferenced."""


class Copy(NamedTuple):
    """Copy a whole block, every layer, K and V, before this step writes anything."""

    source: int
    destination: int


class BlockTable:
    """Logical block i of one sequence lives in physical block ``block_ids[i]``.

    ``root`` starts its hash chain (``root_hash``); None: it neither finds nor publishes prefixes.

    Examples:
        >>> pool = BlockPool(num_blocks=8)
        >>> table = BlockTable(pool, block_size=4)
        >>> table.reserve(6), table.block_ids, table.slots(4, 6)
        ([], [0, 1], [4, 5])
        >>> table.commit([7, 7, 7, 7, 7, 7])
        >>> child = table.fork()           # shares both blocks, allocates nothing
        >>> child.reserve(1)               # the tail is shared: copy it before writing
        [Copy(source=1, destination=2)]
        >>> table.reserve(1)               # now the parent holds it alone: no copy
        []
    """

    def __init__(self, pool: BlockPool, block_size: int, root: bytes | None = None):
        if block_size < 1:
            raise ValueError(f"a block holds at least 1 token, got block_size={block_size}")
        self.pool, self.block_size, self.root = pool, block_size, root
        self.block_ids: list[int] = []
        self.num_tokens = 0  # positions whose K/V are written
        self.num_reserved = 0  # positions that have a slot; more than num_tokens only inside a step
        self.num_dropped = 0  # leading blocks given up to a sliding window
        self._hashes: list[bytes] = []  # of the full, written blocks
        self._copy: Copy | None = None  # of the open reservation

    def slots(self, start: int, stop: int) -> list[int]:
        """The cache slots of positions ``start <= p < stop``."""
        size = self.block_size
        return [self.block_ids[p // size] * size + p % size for p in range(start, stop)]

    def find_prefix(self, token_ids: Sequence[int]) -> list[int]:
        """Blocks that already hold the longest known prefix of ``token_ids``. Changes nothing.

        At most ``(len(token_ids) - 1) // block_size`` blocks: at least one token is left to
        compute (it yields the logits), and it never falls into a shared block.
        """
        if self.root is None:
            return []
        return self.pool.lookup_chain(prefix_hashes(token_ids[:-1], self.block_size, self.root))

    # --- growing -------------------------------------------------------------------------------

    def match_prefix(self, token_ids: Sequence[int]) -> int:
        """Adopt the longest known prefix by pointer; returns how many tokens need no computing."""
        if self.block_ids:
            raise ValueError(
                f"a prefix is matched first, this table holds {self.num_tokens} tokens"
            )
        for block_id in self.find_prefix(token_ids):
            self.pool.share(block_id)
            self.block_ids.append(block_id)
            self._hashes.append(self.pool.prefix_hash[block_id])  # type: ignore[arg-type]
        self.num_tokens = self.num_reserved = len(self.block_ids) * self.block_size
        return self.num_tokens

    def num_missing_blocks(self, num_new_tokens: int) -> int:
        """Blocks, copies aside, that the next tokens take from ``pool.num_free``."""
        return -(-(self.num_tokens + num_new_tokens) // self.block_size) - len(self.block_ids)

    def reserve(self, num_new_tokens: int) -> list[Copy]:
        """Slots for the next tokens, or nothing changed at all; see :func:`reserve`."""
        return reserve([self], [num_new_tokens])

    def commit(self, token_ids: Sequence[int], num_tokens: int | None = None) -> None:
        """The reserved slots are written: keep them, and publish the blocks that became full.

        Args:
            token_ids: all tokens of the sequence, at least up to the end of the reservation.
            num_tokens: keep only so many positions (a draft was rejected after them); the rest of
                the reservation is given back and never published.
        """
        end = self.num_reserved if num_tokens is None else num_tokens
        if not self.num_tokens <= end <= min(self.num_reserved, len(token_ids)):
            raise ValueError(
                f"commit up to {end}, but {self.num_tokens} positions are written, "
                f"{self.num_reserved} reserved and {len(token_ids)} tokens given"
            )
        self._close_copy()
        self.num_tokens = end
        if self.root is not None:
            while (len(self._hashes) + 1) * self.block_size <= end:
                self._publish_next_block(token_ids)
        if end < self.num_reserved:
            self._cut(end)

    def cancel(self) -> None:
        """Undo an open reservation: the step will not happen.

        If some of it was written already, the sharers of a partial block must be equally long.
        """
        if self._copy is not None:
            source, destination = self._copy
            self.pool.share(source)
            self.block_ids[self.num_tokens // self.block_size] = source
            self._cut(self.num_tokens)
            self.pool.release(destination)
            self._close_copy()
        else:
            self._cut(self.num_tokens)

    # --- sharing and shrinking -----------------------------------------------------------------

    def fork(self) -> BlockTable:
        """A child that shares every block. Allocates nothing, so it cannot fail for memory.

        Of n sequences that share a partial, unpublished last block, the last to write does so in
        place: n sequences cost n - 1 copies of one block each.
        """
        self._require_no_reservation("fork")
        child = BlockTable(self.pool, self.block_size, self.root)
        for block_id in self.block_ids[self.num_dropped :]:
            self.pool.share(block_id)
        child.block_ids, child._hashes = list(self.block_ids), list(self._hashes)
        child.num_tokens = child.num_reserved = self.num_tokens
        child.num_dropped = self.num_dropped
        return child

    def truncate(self, num_tokens: int) -> None:
        """Forget the newest tokens. Blocks wholly behind the new end go back, tail first."""
        self._require_no_reservation("truncate")
        first = self.num_dropped * self.block_size
        if not first <= num_tokens <= self.num_tokens and num_tokens != 0:
            raise ValueError(
                f"truncate to {num_tokens}: positions {first}..{self.num_tokens} exist"
            )
        self.num_tokens = num_tokens
        del self._hashes[num_tokens // self.block_size :]
        self._cut(num_tokens)

    def drop_before(self, position: int) -> None:
        """Give back the blocks in which every position is before ``position`` (a sliding window).

        Their entries become ``NO_BLOCK``, so that later positions keep their place. The caller
        promises that no later query looks before ``position``, not even after a ``truncate``.
        """
        last = min(position, self.num_tokens) // self.block_size
        for i in range(self.num_dropped, last):
            self.pool.release(self.block_ids[i])
            self.block_ids[i] = NO_BLOCK
        self.num_dropped = max(self.num_dropped, last)

    def release(self) -> None:
        """Give everything back, an open reservation included. Releasing twice does nothing."""
        self.cancel()
        self.truncate(0)

    def check(self) -> None:
        """Raise ``AssertionError`` unless this table is consistent with itself and its pool."""
        assert 0 <= self.num_tokens <= self.num_reserved
        assert len(self.block_ids) == -(-self.num_reserved // self.block_size)
        assert all(b == NO_BLOCK for b in self.block_ids[: self.num_dropped])
        kept = self.block_ids[self.num_dropped :]
        assert len(set(kept)) == len(kept), f"a block appears twice in {self.block_ids}"
        assert all(self.pool.ref_count[b] > 0 for b in kept), f"a free block in {self.block_ids}"
        if self.root is not None:  # fewer than full blocks only between a move and the next commit
            assert len(self._hashes) <= self.num_tokens // self.block_size

    def _grow(self, num_new_tokens: int) -> Copy | None:
        """The half of ``reserve`` that cannot fail: the pool was asked before."""
        if self._writes_shared_tail(num_new_tokens):
            source = self.block_ids[-1]
            (destination,) = self.pool.allocate()
            self.pool.pin(source)
            self.pool.release(source)
            self.block_ids[-1] = destination
            self._copy = Copy(source, destination)
        if missing := self.num_missing_blocks(num_new_tokens):
            self.block_ids += self.pool.allocate(missing)
        self.num_reserved += num_new_tokens
        return self._copy

    def _writes_shared_tail(self, num_new_tokens: int) -> bool:
        partial = self.num_tokens % self.block_size
        return bool(num_new_tokens and partial) and not self.pool.writable(self.block_ids[-1])

    def _publish_next_block(self, token_ids: Sequence[int]) -> None:
        i, size = len(self._hashes), self.block_size
        parent = self._hashes[-1] if i else None
        own_hash = block_hash(parent or self.root, token_ids[i * size : (i + 1) * size])  # type: ignore[arg-type]
        self._hashes.append(own_hash)
        own = self.block_ids[i]
        if own == NO_BLOCK:
            return
        holder = self.pool.publish(own, own_hash, parent)
        if holder != own:  # somebody computed the same prefix: adopt theirs
            self.pool.share(holder)
            self.pool.release(own)
            self.block_ids[i] = holder

    def _cut(self, num_tokens: int) -> None:
        keep = -(-num_tokens // self.block_size)
        for block_id in reversed(self.block_ids[max(keep, self.num_dropped) :]):
            self.pool.release(block_id)
        del self.block_ids[keep:]
        self.num_dropped = min(self.num_dropped, keep)
        self.num_reserved = num_tokens

    def _close_copy(self) -> None:
        if self._copy is not None:
            self.pool.unpin(self._copy.source)
            self._copy = None

    def _require_no_reservation(self, verb: str) -> None:
        if self.num_reserved != self.num_tokens:
            raise ValueError(
                f"cannot {verb} inside a step: {self.num_reserved - self.num_tokens} reserved "
                "positions are neither committed nor cancelled"
            )


def reserve(tables: Sequence[BlockTable], num_new_tokens: Sequence[int]) -> list[Copy]:
    """Slots for the next tokens of several sequences of one pool: all of them, or none.

    Returns:
        The block copies to do before anything of this step is written. They never chain: no
        destination is a source.

    Raises:
        OutOfBlocks: with the numbers; every table and the pool are as before.
    """
    if not tables:
        return []
    pool, tails = tables[0].pool, Counter[int]()
    needed = 0
    for table, count in zip(tables, num_new_tokens, strict=True):
        table._require_no_reservation("reserve")
        needed += table.num_missing_blocks(count)
        if table._writes_shared_tail(count):
            tails[table.block_ids[-1]] += 1
    for tail, num_writers in tails.items():
        spared = pool.prefix_hash[tail] is None and num_writers == pool.ref_count[tail]
        needed += num_writers - spared  # the last holder writes in place
    if needed > pool.num_free:
        raise OutOfBlocks(
            f"{sum(num_new_tokens)} new tokens need {needed} blocks of {tables[0].block_size}, "
            f"{pool.num_free} of {pool.num_blocks} are free"
        )
    copies = (table._grow(count) for table, count in zip(tables, num_new_tokens))
    return [copy for copy in copies if copy is not None]
