"""Name blocks by everything that comes before them, and find them by their names.

`names(token_ids, block_size)` returns one name (bytes) for every *full* block of a sequence:

- two sequences have the same i-th name if and only if their first (i + 1) blocks of tokens are the
  same tokens in the same order;
- a last block that is not full has no name.

Use `sha256(...).digest()`, of bytes that say unmistakably what you mean: the tokens 1, 23 are not
the tokens 12, 3.

`match_prefix(pool, token_ids, block_size)` returns the blocks that already hold the longest known
beginning of `token_ids`, in order, and shares each of them:

- `pool.lookup(name)` is the block published under a name, or None; looking changes nothing;
- `pool.share(block_id)` adds a holder. Share the blocks you return, and no other;
- stop at the first block that is not there;
- at least one token is left to compute, because the next token is drawn from what it yields.

    >>> a, b = names([1, 2, 3, 4, 5], 2), names([9, 2, 3, 4], 2)
    >>> len(a), len(b), a[1] == b[1]
    (2, 2, False)
    >>> pool = BlockPool(num_blocks=4)
    >>> for block_id, name in zip(pool.allocate(2), a): _ = pool.publish(block_id, name, None)
    >>> match_prefix(pool, [1, 2, 3, 4, 5], 2), match_prefix(pool, [1, 2, 3, 4], 2)
    ([0, 1], [0])
    >>> pool.ref_count
    [3, 2, 0, 0]
"""

from hashlib import sha256

from minipaged.core import BlockPool


def names(token_ids: list[int], block_size: int) -> list[bytes]:
    """One name for every full block, made of its tokens and all before them."""
    found, parent = [], b""
    for end in range(block_size, len(token_ids) + 1, block_size):
        own = repr(list(token_ids[end - block_size : end])).encode()
        parent = sha256(parent + own).digest()
        found.append(parent)
    return found


def match_prefix(pool: BlockPool, token_ids: list[int], block_size: int) -> list[int]:
    """The blocks of the longest known prefix that leaves a token to compute, now shared."""
    found = []
    for name in names(token_ids[:-1], block_size):
        block_id = pool.lookup(name)
        if block_id is None:
            break
        pool.share(block_id)
        found.append(block_id)
    return found
