"""Make room for one more token, when others may read the last block.

`append` gives a sequence one more slot. It changes `block_ids` in place and returns the copy that
must be done before the slot is written, or None. There are three cases:

- the last block is full, or there is no block yet: a new one is needed, and nothing is copied;
- somebody else may read the last block: the sequence gets a block of its own, to be the copy of
  the old one, and gives back its share of the old one;
- the last block is the sequence's own: it stays, and nothing is copied.

Two kinds of reader count: other tables that hold the block (`pool.ref_count[block_id]`), and
requests still to come, which may find it if it is published (`pool.prefix_hash[block_id]` is not
None). A block that is not full can be published, too: the sequence was cut back into it.

No block may be copied without need. If the pool has no block left, `OutOfBlocks` is raised and
nothing has changed: not the table, and not the pool.

`pool` is a `BlockPool`; you also need `pool.allocate()`, which returns a list of one block, and
`pool.release(block_id)`. The block size is 4; A and B share block 1, which holds one token:

    >>> pool = BlockPool(num_blocks=4)
    >>> a = pool.allocate(2)
    >>> b = list(a)
    >>> for block_id in b: pool.share(block_id)
    >>> append(pool, b, num_tokens=5, block_size=4)
    Copy(source=1, destination=2)
    >>> append(pool, a, num_tokens=5, block_size=4)
    >>> a, b, pool.ref_count
    ([0, 1], [0, 2], [2, 1, 1, 0])
"""

from minipaged.core import BlockPool, Copy


def append(pool: BlockPool, block_ids: list[int], num_tokens: int, block_size: int) -> Copy | None:
    """One more slot for a sequence of ``num_tokens``; returns the copy to do first, if any."""
    if num_tokens == len(block_ids) * block_size:  # the last block is full, or there is none
        block_ids += pool.allocate()
        return None
    last = block_ids[-1]
    if pool.ref_count[last] == 1 and pool.prefix_hash[last] is None:  # nobody else reads it
        return None
    (block_ids[-1],) = pool.allocate()
    pool.release(last)
    return Copy(last, block_ids[-1])
