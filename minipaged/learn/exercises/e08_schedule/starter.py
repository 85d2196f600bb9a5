"""Decide one step of an engine, and reserve its slots.

`running` and `waiting` are lists of sequences, each in order of age, the oldest first; whoever
runs is older than whoever waits. Return the work of this step: a list of (sequence, number of
new tokens). Change the two lists as sequences come and go. For every sequence in the work you
call `sequence.table.reserve(count)`; if the pool has too few free blocks, that raises
`OutOfBlocks` and changes nothing. Commit, sampling and the removal of who is done happen
outside.

What must hold:

- the counts of a step add up to at most `budget`, and nobody gets more than it lacks;
- those who run are served in order of age, each with as much as it lacks and the budget allows
  (simpler than the package, which keeps a token for each of those who lack just one);
- if there is no room for one of them, the newest that runs has to leave, perhaps that one itself:
  its blocks are released and it waits at the head of the queue. Nobody leaves without need;
- with the budget that is left, those who wait come in, oldest first, as long as *all* the tokens
  that one lacks would fit into the free blocks. The first that does not fit ends it.

Three blocks of 2 tokens: A has 4 tokens and the fifth to compute, B has 2 and the third.

>>> pool = BlockPool(3)
>>> a, b = Sequence("A", 5, BlockTable(pool, 2)), Sequence("B", 3, BlockTable(pool, 2))
>>> for sequence, computed in ((a, 4), (b, 2)):
...     _ = sequence.table.reserve(computed)
...     sequence.table.commit([0] * computed)
>>> running, waiting = [a, b], []
>>> schedule(running, waiting, pool, budget=4)      # A needs a third block, so B has to leave
[(A 4/5, 1)]
>>> running, waiting, pool.num_free
([A 4/5], [B 0/3], 0)
"""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.core import BlockPool, BlockTable, OutOfBlocks


@dataclass(eq=False)
class Sequence:
    """What a scheduler knows of a sequence: how many tokens it has, and where they lie."""

    name: str
    num_tokens: int
    table: BlockTable

    @property
    def num_remaining(self) -> int:
        """Tokens whose K/V are missing."""
        return self.num_tokens - self.table.num_tokens

    def __repr__(self) -> str:
        return f"{self.name} {self.table.num_tokens}/{self.num_tokens}"


def schedule(
    running: list[Sequence],  # oldest first; changed in place
    waiting: list[Sequence],  # oldest first, without blocks; changed in place
    pool: BlockPool,
    budget: int,  # tokens that may be computed in this step
) -> list[tuple[Sequence, int]]:
    """The work of one step, its slots reserved."""
    # table.reserve(count)              slots for the next tokens, or OutOfBlocks
    # table.release()                   give all blocks back
    # table.num_missing_blocks(count)   blocks that the next tokens would take
    # pool.num_free                     blocks that nobody holds
    raise NotImplementedError("first those who run, then those who wait")
