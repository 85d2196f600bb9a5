"""Reorder beams: build the block tables of the next step, and give back what nobody needs.

A beam's table is a list of block ids here. `parents[i]` says which of the present beams the new
beam i continues. A parent may have several children, or one, or none, and the children may come
in any order. Return the tables of the children; the old ones are not used again.

What must hold:

- child i reads the same blocks in the same order as beam `parents[i]` did;
- every block has as many holders (`pool.ref_count`) as there are children that name it;
- no block that a child needs is free in between, not even for a moment;
- nothing is allocated and nothing copied. When the children write, each into its last block, only
  those copy that must: of k writers of one partial block, k - 1.

Two beams share block 0. Beam 0 goes on twice, beam 1 ends, so its last block is free:

>>> pool = BlockPool(4)
>>> shared, a, b = pool.allocate(3)
>>> pool.share(shared)
>>> tables = reorder(pool, [[shared, a], [shared, b]], parents=[0, 0])
>>> tables, pool.ref_count
([[0, 1], [0, 1]], [2, 2, 0, 0])
"""

from __future__ import annotations

from minipaged.core import BlockPool


def reorder(
    pool: BlockPool,
    tables: list[list[int]],  # block ids of the present beams
    parents: list[int],  # for every new beam the index of the beam that it continues
) -> list[list[int]]:
    """The tables of the new beams."""
    # pool.share(block_id)     one more holder
    # pool.release(block_id)   one holder less; the last one leaves the block free
    raise NotImplementedError("in what order may blocks change hands?")
