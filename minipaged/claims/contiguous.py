"""K/V memory before paging: one run of memory per request, reserved whole when it comes in.

The pool and the table have the interface of the paged ones, so the same scheduler and the same
engine run over them. A run is found by a buddy allocator, as in the systems that the paper compares
with (section 6.1): its length is a power of two, and a run may only be joined again with the half
it was split from.

    a pool of 11 blocks     [ 8                     ][ 2   ][1]
    a run of 3 takes 4      [ 4: taken  ][ 4        ][ 2   ][1]

No tensors, and no blocks that are shared: a run belongs to one request.
"""

from __future__ import annotations

from collections.abc import Callable

from minipaged.core import BlockPool, BlockTable, OutOfBlocks


class Buddy:
    """Runs whose length is a power of two, out of ``size`` units.

    Examples:
        >>> buddy = Buddy(11)
        >>> buddy.allocate(3), buddy.allocate(1), buddy.largest
        (0, 10, 4)
        >>> buddy.release(0, 3); buddy.largest
        8
    """

    def __init__(self, size: int):
        # Free runs of 2**order units by their first one; a dict is a set that remembers its order.
        self.free: list[dict[int, None]] = [{} for _ in range(size.bit_length())]
        start = 0
        for order in reversed(range(size.bit_length())):
            if size >> order & 1:
                self.free[order][start] = None
                start += 1 << order

    @property
    def largest(self) -> int:
        """Length of the longest run that is free; 0 if none is."""
        for order in reversed(range(len(self.free))):
            if self.free[order]:
                return 1 << order
        return 0

    def allocate(self, length: int) -> int:
        """The first unit of a run of at least ``length``; the shortest that is free is split.

        Raises:
            OutOfBlocks: no run is long enough, however much is free; nothing has changed.
        """
        order = wanted = _order(length)
        while order < len(self.free) and not self.free[order]:
            order += 1
        if order >= len(self.free):
            raise OutOfBlocks(
                f"a run of {length} needs {1 << wanted}, the longest is {self.largest}"
            )
        start, _ = self.free[order].popitem()
        for smaller in reversed(range(wanted, order)):
            self.free[smaller][start + (1 << smaller)] = None
        return start

    def release(self, start: int, length: int) -> None:
        """Give back the run that ``allocate(length)`` had at ``start``; halves become whole."""
        order = _order(length)
        while (buddy := start ^ 1 << order) in self.free[order]:
            del self.free[order][buddy]
            start, order = min(start, buddy), order + 1
        self.free[order][start] = None


def run_length(num_blocks: int) -> int:
    """What a buddy allocator takes for so many blocks: the next power of two."""
    return 1 << _order(num_blocks)


def _order(length: int) -> int:
    return (length - 1).bit_length()


class ContiguousPool(BlockPool):
    """The same blocks, handed out in runs.

    ``num_free`` is what it is for the paged pool, the most that ``allocate`` could hand out now:
    here that is the longest free run, not the sum of them.
    """

    def __init__(self, num_blocks: int):
        super().__init__(num_blocks)
        self._blank.clear()
        self.buddy = Buddy(num_blocks)

    @property
    def num_free(self) -> int:
        """Length of the longest free run."""
        return self.buddy.largest

    def allocate(self, num_blocks: int = 1) -> list[int]:
        """A run of ``num_blocks`` rounded up to a power of two, all with ``ref_count == 1``.

        Raises:
            OutOfBlocks: no run is long enough; the pool is unchanged.
        """
        if not num_blocks:
            return []
        start = self.buddy.allocate(num_blocks)
        block_ids = list(range(start, start + run_length(num_blocks)))
        self.ref_count[start : block_ids[-1] + 1] = [1] * len(block_ids)
        return block_ids

    def free_order(self) -> list[int]:
        """Every free block, in the order of memory."""
        return [block_id for block_id, count in enumerate(self.ref_count) if count == 0]

    def share(self, block_id: int) -> None:
        """Refuse: what is one piece cannot be partly somebody else's."""
        raise ValueError(f"block {block_id} lies inside of a run: it cannot be shared")

    def release(self, block_id: int) -> None:
        """Refuse: a run is given back as it was taken, by ``release_run``."""
        raise ValueError(f"block {block_id} lies inside of a run: give back the run")

    def release_run(self, block_ids: list[int]) -> None:
        """Give back what ``allocate`` handed out."""
        start, length = block_ids[0], len(block_ids)
        if 0 in self.ref_count[start : start + length]:
            raise ValueError(f"blocks {start}..{start + length - 1} are not one run that is held")
        self.ref_count[start : start + length] = [0] * length
        self.buddy.release(start, length)

    def check(self) -> None:
        """Raise ``AssertionError`` unless what is free and what is held are the pool."""
        free = [
            block_id
            for order, starts in enumerate(self.buddy.free)
            for start in starts
            for block_id in range(start, start + (1 << order))
        ]
        assert sorted(free) == self.free_order(), f"free runs {sorted(free)}, {self.ref_count}"


class ContiguousTable(BlockTable):
    """A sequence whose blocks are one run, taken at its first token and given back at its end.

    Args:
        pool: where the run comes from.
        block_size: tokens per block.
        num_promised: positions that are reserved at once; it cannot grow beyond them.

    Examples:
        >>> pool = ContiguousPool(num_blocks=11)
        >>> table = ContiguousTable(pool, block_size=4, num_promised=12)
        >>> table.reserve(1), table.block_ids
        ([], [0, 1, 2, 3])
        >>> table.commit([7])
        >>> table.reserve(11), table.block_ids
        ([], [0, 1, 2, 3])
    """

    pool: ContiguousPool

    def __init__(self, pool: ContiguousPool, block_size: int, num_promised: int):
        super().__init__(pool, block_size)
        self.num_promised = num_promised

    def num_missing_blocks(self, num_new_tokens: int) -> int:
        """The whole run before the first token, and nothing after it.

        Raises:
            ValueError: more positions than were promised.
        """
        end = self.num_tokens + num_new_tokens
        if end > self.num_promised:
            raise ValueError(f"{self.num_promised} positions were promised, {end} are needed")
        if self.block_ids or not num_new_tokens:
            return 0
        return run_length(-(-self.num_promised // self.block_size))

    def fork(self) -> BlockTable:
        """Refuse: nothing can be shared. Several samples are several requests."""
        raise ValueError("a run cannot be shared: ask for each sample by a request of its own")

    def drop_before(self, position: int) -> None:
        """Keep everything: a run is not given back in parts, whatever a window has passed."""

    def check(self) -> None:
        """Raise ``AssertionError`` unless this table is one run, or nothing."""
        assert 0 <= self.num_tokens <= self.num_reserved <= self.num_promised
        length = run_length(-(-self.num_promised // self.block_size)) if self.num_reserved else 0
        first = self.block_ids[0] if self.block_ids else 0
        assert self.block_ids == list(range(first, first + length)), f"no run: {self.block_ids}"

    def _cut(self, num_tokens: int) -> None:
        """Behind the end of a sequence its run stays reserved; without tokens it is given back."""
        self.num_reserved = num_tokens
        if num_tokens == 0 and self.block_ids:
            self.pool.release_run(self.block_ids)
            self.block_ids = []


# How many positions a request gets, of prompt, output and the longest possible sequence. The last
# token of an output needs none: it is never fed back.
RESERVATIONS: dict[str, Callable[[int, int, int], int]] = {
    "max": lambda prompt_len, output_len, max_len: max_len,
    "pow2": lambda prompt_len, output_len, max_len: min(
        prompt_len + run_length(output_len), max_len
    ),
    "oracle": lambda prompt_len, output_len, max_len: prompt_len + output_len - 1,
}
"""``max``: as long as any could become. ``pow2``: its output is known up to a factor of two.
``oracle``: its output is known, which no system can. Paper: section 6.1."""
