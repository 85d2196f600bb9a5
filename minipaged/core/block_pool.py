"""Which physical blocks are free, shared, or hold a findable prefix; no tokens, no tensors.

Paper: section 4.2 (the block manager) and 4.4 (reference counts).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import takewhile

from .errors import OutOfBlocks


class BlockPool:
    """Physical blocks, each *held* (``ref_count > 0``), *free*, or pinned in between by a copy.

    A held block belongs to one or more block tables. A free block is blank, or *cached*: published
    under a prefix hash and still findable until its space is needed. ``allocate`` takes blank ones
    first (last freed, first reused), then cached ones, least recently released first. Every
    operation on one block costs O(1), whatever the size of the pool.

    Examples:
        >>> pool = BlockPool(num_blocks=4)
        >>> a, b = pool.allocate(2)
        >>> pool.share(a); pool.ref_count[a], pool.num_free
        (2, 2)
        >>> pool.release(a); pool.writable(a)
        True
    """

    def __init__(self, num_blocks: int):
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least 1 block, got num_blocks={num_blocks}")
        self.num_blocks = num_blocks
        self.ref_count = [0] * num_blocks
        self.prefix_hash: list[bytes | None] = [None] * num_blocks
        self.parent_hash: list[bytes | None] = [None] * num_blocks  # only to tell orphans apart
        self.num_evictions = 0
        self._blank = list(range(num_blocks - 1, -1, -1))  # a stack: block 0 is handed out first
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._by_hash: dict[bytes, int] = {}
        self._pins: dict[int, int] = {}  # sources of copies that have not run yet

    @property
    def num_free(self) -> int:
        """Blocks that ``allocate`` could hand out now, cached ones included."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Free blocks that a prefix lookup can still find."""
        return len(self._cached)

    def free_order(self) -> list[int]:
        """Every free block, in the order in which ``allocate`` would hand them out."""
        return [*reversed(self._blank), *self._cached]

    def allocate(self, num_blocks: int = 1) -> list[int]:
        """``num_blocks`` blocks, each with ``ref_count == 1`` and unpublished; or none at all.

        Raises:
            OutOfBlocks: fewer are free; the pool is unchanged.
        """
        if num_blocks > self.num_free:
            raise OutOfBlocks(
                f"{num_blocks} blocks needed, {self.num_free} of {self.num_blocks} are free"
            )
        return [self._take() for _ in range(num_blocks)]

    def share(self, block_id: int) -> None:
        """One more holder. A free block that was found by its prefix comes back to life."""
        if self.is_free(block_id):
            if self.prefix_hash[block_id] is None:
                raise ValueError(f"block {block_id} is free and holds no prefix: nothing to share")
            del self._cached[block_id]
        self.ref_count[block_id] += 1

    def release(self, block_id: int) -> None:
        """One holder less; the last one leaves the block free (cached, if it was published)."""
        if self.ref_count[block_id] == 0:
            raise ValueError(f"block {block_id} is already free: it cannot be released again")
        self.ref_count[block_id] -= 1
        self._recycle_if_unused(block_id)

    def pin(self, block_id: int) -> None:
        """Keep a copy's source from becoming a destination before the copy has run."""
        self._pins[block_id] = self._pins.get(block_id, 0) + 1

    def unpin(self, block_id: int) -> None:
        """The copy has run (or will not run): the source may be reused."""
        self._pins[block_id] -= 1
        if self._pins[block_id] == 0:
            del self._pins[block_id]
            self._recycle_if_unused(block_id)

    def is_free(self, block_id: int) -> bool:
        """True if ``allocate`` could hand out this block."""
        return self.ref_count[block_id] == 0 and block_id not in self._pins

    def writable(self, block_id: int) -> bool:
        """Only a block that nobody else can read may be written: one holder *and* unpublished.

        One holder is not enough: truncated into its own published block, a table would overwrite
        what the prefix index still promises.
        """
        return self.ref_count[block_id] == 1 and self.prefix_hash[block_id] is None

    def publish(self, block_id: int, prefix_hash: bytes, parent_hash: bytes | None) -> int:
        """Make a full, written block findable; returns the block that holds this prefix now.

        If that is another one, the caller adopts it: the pool never holds a prefix twice.
        """
        holder = self._by_hash.setdefault(prefix_hash, block_id)
        if holder == block_id:
            self.prefix_hash[block_id] = prefix_hash
            self.parent_hash[block_id] = parent_hash
        return holder

    def lookup(self, prefix_hash: bytes) -> int | None:
        """The block that holds this prefix, if any. Looking changes nothing."""
        return self._by_hash.get(prefix_hash)

    def lookup_chain(self, prefix_hashes: Iterable[bytes]) -> list[int]:
        """The blocks of the longest beginning of a chain that is known without a gap."""
        found = takewhile(lambda block_id: block_id is not None, map(self.lookup, prefix_hashes))
        return list(found)  # type: ignore[arg-type]

    def forget_prefixes(self) -> None:
        """Unpublish everything, for example before the weights change; held blocks stay held.

        Their tables go on publishing what they fill: release them first if that would be wrong.
        """
        for block_id in list(self._by_hash.values()):
            self._unpublish(block_id)
        self._blank.extend(self._cached)
        self._cached.clear()

    def check(self) -> None:
        """Raise ``AssertionError`` unless the books balance."""
        free = self._blank + list(self._cached)
        assert len(free) == len(set(free)), f"a block is free twice: {free}"
        unused = {b for b, n in enumerate(self.ref_count) if n == 0 and b not in self._pins}
        assert set(free) == unused, f"free {sorted(free)}, but unused are {sorted(unused)}"
        assert all(n >= 0 for n in self.ref_count), f"negative reference count: {self.ref_count}"
        assert all(n > 0 for n in self._pins.values()), f"empty pin: {self._pins}"
        index = {h: b for b, h in enumerate(self.prefix_hash) if h is not None}
        assert self._by_hash == index, "the prefix index and the blocks disagree"
        assert all((self.prefix_hash[b] is not None) == (b in self._cached) for b in free)

    def _take(self) -> int:
        if self._blank:
            block_id = self._blank.pop()
        else:
            block_id, _ = self._cached.popitem(last=False)
            self._unpublish(block_id)
            self.num_evictions += 1
        self.ref_count[block_id] = 1
        return block_id

    def _recycle_if_unused(self, block_id: int) -> None:
        if not self.is_free(block_id):
            return
        if self.prefix_hash[block_id] is None:
            self._blank.append(block_id)
        else:
            self._cached[block_id] = None

    def _unpublish(self, block_id: int) -> None:
        prefix_hash, self.prefix_hash[block_id] = self.prefix_hash[block_id], None
        self.parent_hash[block_id] = None
        if prefix_hash is not None:
            del self._by_hash[prefix_hash]
