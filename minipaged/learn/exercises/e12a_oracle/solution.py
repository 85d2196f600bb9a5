"""Write the oracle that tells right block managers from wrong ones.

The judge plays short programs on block managers: sequences start, are forked, write, and end. For
every program it makes an `Oracle`, and tells it what happens:

- `wrote(slot, prefix)`: K and V of a token were computed and written to a slot. `prefix` is the
  text up to and including that token, because that is what they depend on;
- `copied(source, destination)`: a whole block was copied, slot by slot. The source stays as it was;
- `look(tables, texts, ref_count)` comes after every act. It returns None if the state is right, and
  otherwise a sentence that says what is wrong.

A state is right if two things hold:

- every sequence reads, at each of its positions, what was computed from its own text up to there.
  `texts` has the text of every living sequence, and `tables` its block ids: position p is in slot
  `table[p // block_size] * block_size + p % block_size`. What nobody wrote is never right;
- `ref_count[block_id]` is the number of tables that hold the block. Sharing is no mistake.

Blocks of two. B was given A's block, for its tokens are the same, but A's "ab" stood behind "bb":

    >>> oracle = Oracle(block_size=2)
    >>> for slot in range(4): oracle.wrote(slot, "bbab"[: slot + 1])
    >>> oracle.look({"A": [0, 1]}, {"A": "bbab"}, [1, 1])
    >>> oracle.look({"A": [0, 1], "B": [1]}, {"A": "bbab", "B": "ab"}, [1, 2])
    "B reads 'bba' at 0, not 'a'"
    >>> oracle.look({"A": [0, 1]}, {"A": "bbab"}, [1, 2])
    'block 1 has 1 holders, 2 are counted'
"""


class Oracle:
    """Says what is wrong with a block manager, from what it is told."""

    def __init__(self, block_size: int):
        self.block_size = block_size
        self.memory: dict[int, str] = {}  # slot -> what you want to know of it

    def wrote(self, slot: int, prefix: str) -> None:
        """The K and V of the last token of ``prefix`` are in this slot now."""
        self.memory[slot] = prefix

    def copied(self, source: int, destination: int) -> None:
        """A block was copied to another."""
        size = self.block_size
        for offset in range(size):
            self.memory[destination * size + offset] = self.memory.get(source * size + offset, "")

    def look(
        self, tables: dict[str, list[int]], texts: dict[str, str], ref_count: list[int]
    ) -> str | None:
        """None if everything is right, else what is wrong."""
        size = self.block_size
        for name, text in texts.items():
            for position in range(len(text)):
                slot = tables[name][position // size] * size + position % size
                got, wanted = self.memory.get(slot), text[: position + 1]
                if got != wanted:
                    return f"{name} reads {got!r} at {position}, not {wanted!r}"
        for block_id, count in enumerate(ref_count):
            holders = sum(block_id in block_ids for block_ids in tables.values())
            if count != holders:
                return f"block {block_id} has {holders} holders, {count} are counted"
        return None
