"""From a position in a sequence to a slot of the pool, and back.

`block_ids` is a block table: the sequence's first `block_size` tokens are in
block `block_ids[0]`, the next ones in `block_ids[1]`, and so on. Slots are
numbered through the whole pool, block after block.

- `slots(block_ids, block_size, start, stop)` lists the slots of the positions
  `start` to `stop - 1`.
- `position(slot, block_ids, block_size, num_tokens)` says which position of
  this sequence is in a slot, or None if none of its `num_tokens` tokens is
  there: not in a block of another sequence, not behind the last token, and not
  in slot -1, which means "no slot".

Six tokens in blocks of 4, first in block 5, then in block 2:

    >>> slots([5, 2], 4, 2, 6)
    [22, 23, 8, 9]
    >>> position(8, [5, 2], 4, num_tokens=6)
    4
    >>> position(10, [5, 2], 4, num_tokens=6) is None
    True
    >>> position(20, [5, 2], 4, num_tokens=6)
    0
"""


def slots(block_ids: list[int], block_size: int, start: int, stop: int) -> list[int]:
    """The slots of the positions `start <= p < stop`."""
    return [block_ids[p // block_size] * block_size + p % block_size for p in range(start, stop)]


def position(slot: int, block_ids: list[int], block_size: int, num_tokens: int) -> int | None:
    """The position that is in this slot; None if no token of this sequence is."""
    block_id, offset = slot // block_size, slot % block_size
    if block_id not in block_ids:
        return None
    found = block_ids.index(block_id) * block_size + offset
    return found if found < num_tokens else None
