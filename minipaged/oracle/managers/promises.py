"""Which prefixes must be findable now, which may be, and which may be evicted next.

It learns what was committed, which blocks were handed out, and who holds what; it never looks into
a manager. What the manager's contract leaves open is *doubtful*, and then neither of two answers
is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


class Promises:
    """The cache as it must be, block by block."""

    def __init__(self, block_size: int):
        self.block_size = block_size
        self.holder: dict[
            int, tuple[int, ...]
        ] = {}  # block -> numbers of its whole chain, by block
        self.blocks: dict[int, set[int]] = {}  # number of a prefix -> the blocks that hold it
        self.doubtful: set[int] = set()  # numbers that may be found or not
        self.since: dict[int, tuple[int, int] | None] = {}  # when a cached block became free

    def ends(self, chain: Sequence[int], num_tokens: int | None = None) -> tuple[int, ...]:
        """The numbers of the full blocks."""
        stop = len(chain) if num_tokens is None else num_tokens
        return tuple(chain[self.block_size - 1 : stop : self.block_size])

    def expect(self, chain: Sequence[int]) -> tuple[int, int]:
        """How many blocks of a prompt must be found, and how many may be; one token is left."""
        must = may = 0
        for number in self.ends(chain, len(chain) - 1):
            if number not in self.blocks:
                break
            must += must == may and number not in self.doubtful
            may += 1
        return must, may

    def publish(self, block_id: int, ends: tuple[int, ...], *, sure: bool = True) -> None:
        """A block was committed; ``ends``: the numbers of its chain up to itself."""
        number = ends[-1]
        known = self.blocks.setdefault(number, set())
        if not known:
            self.doubtful.discard(number)
            if not sure:
                self.doubtful.add(number)
        elif sure and known == {block_id}:
            self.doubtful.discard(number)
        known.add(block_id)
        self.holder[block_id] = ends

    def lose(self, block_id: int) -> None:
        """A block was handed out anew: what it held is gone."""
        ends = self.holder.pop(block_id, None)
        self.since.pop(block_id, None)
        if ends is None:
            return
        known = self.blocks[ends[-1]]
        known.discard(block_id)
        if not known:
            del self.blocks[ends[-1]]
            self.doubtful.discard(ends[-1])
        else:  # a twin is left; whether it was entered too, is the manager's business
            self.doubtful.add(ends[-1])

    def reset(self) -> None:
        """Everything was forgotten."""
        for known in (self.holder, self.blocks, self.doubtful, self.since):
            known.clear()

    def tick(self, now: int, held: Collection[int]) -> None:
        """Note since when blocks are cached: deeper blocks count as freed earlier."""
        for block_id, ends in self.holder.items():
            if block_id in held:
                self.since.pop(block_id, None)
            else:
                self.since.setdefault(block_id, (now, -len(ends)))

    def touch(self, block_ids: Iterable[int]) -> None:
        """Somebody looked, but did not take them: their place in the order is open."""
        for block_id in block_ids:
            if block_id in self.since:
                self.since[block_id] = None

    def use(self, held: Collection[int]) -> None:
        """Blocks are held now: when they are free again, they count as used last."""
        for block_id in held:
            self.since.pop(block_id, None)

    def is_sure(self, block_id: int) -> bool:
        """Whether this block alone holds its prefix, and must be findable."""
        number = self.holder[block_id][-1]
        return number not in self.doubtful and len(self.blocks[number]) == 1

    def cached(self, held: Collection[int]) -> set[int]:
        """Blocks whose prefix must be findable though nobody holds them."""
        return {b for b in self.holder if b not in held and self.is_sure(b)}

    def wrong_victim(self, evicted: set[int], left: set[int]) -> tuple[int, int] | None:
        """A block that was evicted although another one has been unused for longer."""
        for victim in evicted:
            for other in left:
                first, then = self.since.get(victim), self.since.get(other)
                if first and then and first[0] > then[0]:
                    return victim, other
        return None

    def orphan(self, evicted: set[int], left: set[int]) -> tuple[int, int] | None:
        """A block that was evicted although a continuation of it is still cached."""
        for victim in evicted:
            number = self.holder[victim][-1]
            for other in left:
                if number in self.holder[other][:-1]:
                    return victim, other
        return None
