"""Block managers for an oracle to judge: right ones of three kinds, and wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from unittest.mock import patch

from minipaged.core import BlockPool, BlockTable, Copy, root_hash
from minipaged.core.hashing import block_hash

BLOCK_SIZE = 2


@dataclass(frozen=True)
class Manager:
    """A kind of block manager, and what is wrong with it ("": nothing)."""

    what: str
    pool: Callable[[int], BlockPool] = BlockPool
    table: type[BlockTable] = BlockTable
    root: bytes | None = root_hash()
    name: Callable[[bytes, Sequence[int]], bytes] = block_hash

    def new_table(self, pool: BlockPool) -> BlockTable:
        """An empty table."""
        return self.table(pool, BLOCK_SIZE, self.root)

    def in_force(self) -> ExitStack:
        """Within it, blocks have the names that this manager gives."""
        stack = ExitStack()
        for module in ("hashing", "block_table"):
            stack.enter_context(patch(f"minipaged.core.{module}.block_hash", self.name))
        return stack


def backwards(num_blocks: int) -> BlockPool:
    """A right pool that hands out its last block first."""
    pool = BlockPool(num_blocks)
    for block_id in pool.allocate(num_blocks):
        pool.release(block_id)
    return pool


def own_tokens_only(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """A name that forgets what comes before."""
    return block_hash(b"", token_ids)


class NeverCopies(BlockPool):
    """Everybody may write everywhere."""

    def writable(self, block_id: int) -> bool:
        return True


class FreesShared(BlockPool):
    """Whoever goes first frees the block, whoever else holds it."""

    def release(self, block_id: int) -> None:
        if self.ref_count[block_id]:
            self.ref_count[block_id] = 1
            super().release(block_id)


class LeaksOnCopy(BlockPool):
    """Who copies a shared block keeps its share of the old one."""

    def pin(self, block_id: int) -> None:
        super().pin(block_id)
        self.ref_count[block_id] += 1


class Stale(BlockPool):
    """A block that is reused leaves its old name in the index."""

    def _unpublish(self, block_id: int) -> None:
        self.prefix_hash[block_id] = None


class Silent(BlockTable):
    """Takes a block for a copy, and tells nobody that there is something to copy."""

    def reserve(self, num_new_tokens: int) -> list[Copy]:
        super().reserve(num_new_tokens)
        return []


MANAGERS = (
    Manager(""),
    Manager("", pool=backwards),
    Manager("", root=None),
    Manager("lets everybody write into shared blocks", pool=NeverCopies),
    Manager("frees a block that somebody still holds", pool=FreesShared),
    Manager("keeps a share of what it copied", pool=LeaksOnCopy),
    Manager("does not say what must be copied", table=Silent),
    Manager("names a block without what comes before it", name=own_tokens_only),
    Manager("leaves the old name of a reused block in the index", pool=Stale),
)
