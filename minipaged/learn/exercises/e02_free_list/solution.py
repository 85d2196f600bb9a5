"""Hand out blocks, take them back, and never let two owners have the same one.

`FreeList(num_blocks)` keeps the blocks 0 to `num_blocks - 1`. At every moment
a block is free, or one owner holds it.

- `allocate(owner, num_blocks)` returns so many free block ids, in any order,
  and they belong to `owner` now. If fewer are free it raises `OutOfBlocks`,
  and nothing has changed.
- `free(owner, block_id)` takes a block back. If the block is free already, or
  somebody else holds it, it raises `ValueError`, and nothing has changed.
  Whoever reads the error must know where to look: it names the block, and who
  gave it back before, or who holds it.
- `num_free` is how many blocks are free.

    >>> blocks = FreeList(2)
    >>> blocks.allocate("A", 2)
    [0, 1]
    >>> blocks.free("A", 1)
    >>> blocks.num_free
    1
    >>> blocks.free("A", 1)
    Traceback (most recent call last):
    ValueError: block 1 is free already: A gave it back
    >>> blocks.free("B", 0)
    Traceback (most recent call last):
    ValueError: block 0 is held by A, not by B
    >>> blocks.allocate("B", 2)
    Traceback (most recent call last):
    minipaged.core.errors.OutOfBlocks: B needs 2 blocks, 1 of 2 are free
"""

from minipaged.core import OutOfBlocks


class FreeList:
    """Blocks of equal size, each free or held by one owner."""

    def __init__(self, num_blocks: int):
        self._num_blocks = num_blocks
        self._free = list(reversed(range(num_blocks)))
        self._holder: dict[int, str] = {}
        self._gave_back: dict[int, str] = {}

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` could hand out now."""
        return len(self._free)

    def allocate(self, owner: str, num_blocks: int = 1) -> list[int]:
        """Ids of so many blocks, which `owner` holds now; all of them or none."""
        if num_blocks > self.num_free:
            raise OutOfBlocks(
                f"{owner} needs {num_blocks} blocks, {self.num_free} of {self._num_blocks} are free"
            )
        block_ids = [self._free.pop() for _ in range(num_blocks)]
        self._holder.update(dict.fromkeys(block_ids, owner))
        return block_ids

    def free(self, owner: str, block_id: int) -> None:
        """Take a block back from the owner who holds it."""
        holder = self._holder.get(block_id)
        if holder is None:
            who = self._gave_back.get(block_id, "nobody")
            raise ValueError(f"block {block_id} is free already: {who} gave it back")
        if holder != owner:
            raise ValueError(f"block {block_id} is held by {holder}, not by {owner}")
        del self._holder[block_id]
        self._gave_back[block_id] = owner
        self._free.append(block_id)
