"""Give back a block without forgetting it, and take the one that is missed least.

`Pool` is given, and you write three functions for it:

- `allocate(pool)` returns a block, with one holder and without a name. A blank block goes first
  (the last of `pool.blank`); else the cached block that stands first, and whoever looks for its old
  name must not find it any more. If no block is free, it raises `OutOfBlocks`;
- `share(pool, block_id)` adds a holder to a block that was found by its name. It may be cached:
  then it is free no longer;
- `release(pool, block_ids)` takes a holder from every block of one sequence, which are given in the
  sequence's order. A block without holders is free: blank if it has no name, else cached, behind
  those that are cached already. Of one sequence the tail is forgotten before the head.

A chain of two named blocks and one without a name is given back; then three blocks are needed:

    >>> pool = Pool(num_blocks=3)
    >>> table = [allocate(pool) for _ in range(3)]
    >>> publish(pool, 0, b"head")
    >>> publish(pool, 1, b"tail")
    >>> release(pool, table)
    >>> pool.blank, list(pool.cached)
    ([2], [1, 0])
    >>> allocate(pool), allocate(pool), list(pool.index)
    (2, 1, [b'head'])
"""

from collections import OrderedDict

from minipaged.core import OutOfBlocks


class Pool:
    """Every block is held, or cached (free, and has a name), or blank (free, without)."""

    def __init__(self, num_blocks: int):
        self.ref_count = [0] * num_blocks
        self.index: dict[bytes, int] = {}  # name -> block; what a lookup asks
        self.name_of: dict[int, bytes] = {}  # block -> name, for those that have one
        self.blank = list(range(num_blocks - 1, -1, -1))  # the last goes first
        self.cached: OrderedDict[int, None] = OrderedDict()  # the first goes first


def publish(pool: Pool, block_id: int, name: bytes) -> None:
    """The block is full and written: it can be found."""
    pool.name_of[block_id], pool.index[name] = name, block_id


def allocate(pool: Pool) -> int:
    """A blank block, or else the cached one that was not used for the longest time."""
    raise NotImplementedError("write allocate here")


def share(pool: Pool, block_id: int) -> None:
    """One more holder; a cached block is held again."""
    raise NotImplementedError("write share here")


def release(pool: Pool, block_ids: list[int]) -> None:
    """One holder less for every block of a sequence; what nobody holds is free."""
    raise NotImplementedError("write release here")
