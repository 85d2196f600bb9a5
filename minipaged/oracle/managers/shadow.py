"""What every slot holds, told by whole prefixes; knows no manager.

Real K and V of a position depend on every token up to it, and on the adapter or the salt's tenant.
So the shadow of a slot is the number of that whole prefix: two slots agree only if real K/V would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def brief_key(key: str | None) -> str:
    """A salt or an adapter as a person reads it; of a long one, its ends."""
    told = key if key is None or len(key) <= 24 else f"{key[:10]}...{key[-10:]}"
    return f"key {told!r}"


class Names:
    """Numbers prefixes: equal numbers mean an equal key and equal tokens up to there.

    Examples:
        >>> names = Names()
        >>> a, b = names.chain("", [0, 1, 1]), names.chain("", [0, 1, 0])
        >>> a[1] == b[1], a[2] == b[2], names.text(b[2])
        (True, False, '0 1 0')
        >>> names.chain("x", [0])[0] == a[0]
        False
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object], int] = {}
        self._origins: list[tuple[int, object]] = []

    def after(self, parent: int, token: object) -> int:
        """The number of a prefix, followed by one more token; -1 starts a chain with its key."""
        origin = parent, token
        number = self._numbers.setdefault(origin, len(self._origins))
        if number == len(self._origins):
            self._origins.append(origin)
        return number

    def chain(self, key: str | None, tokens: Sequence[int]) -> list[int]:
        """The number of every position's prefix."""
        numbers, parent = [], self.after(-1, ("key", key))
        for token in tokens:
            parent = self.after(parent, token)
            numbers.append(parent)
        return numbers

    def text(self, number: int | None) -> str:
        """The prefix that a number stands for, as a person reads it."""
        if number is None:
            return "nothing that may be read"
        tokens = list(self._walk(number))
        key: str | None = tokens.pop()[1]  # type: ignore[index]
        told = [str(token) for token in reversed(tokens)]
        told[:-12] = ["..."] if len(told) > 12 else told[:-12]
        return " ".join(told) + (f" ({brief_key(key)})" if key else "")

    def _walk(self, number: int) -> Iterator[object]:
        while number != -1:
            number, token = self._origins[number]
            yield token


class Cells:
    """One shadow per slot; None is poison: a slot that nobody may read."""

    def __init__(self, num_blocks: int, block_size: int):
        self.block_size = block_size
        self.cells: list[int | None] = [None] * (num_blocks * block_size)

    def block(self, block_id: int) -> list[int | None]:
        """What a block holds."""
        return self.cells[block_id * self.block_size : (block_id + 1) * self.block_size]

    def put(self, block_id: int, cells: Sequence[int | None]) -> None:
        """Overwrite a whole block."""
        self.cells[block_id * self.block_size : (block_id + 1) * self.block_size] = cells

    def blank(self, block_ids: Iterable[int]) -> None:
        """Poison whole blocks."""
        for block_id in block_ids:
            self.put(block_id, [None] * self.block_size)

    def poison_all_but(self, slots: set[int]) -> None:
        """Poison every slot that nobody may read."""
        for slot in range(len(self.cells)):
            if slot not in slots:
                self.cells[slot] = None

    def slot(self, table: Sequence[int], position: int) -> int:
        """Where a position of a sequence lies."""
        return table[position // self.block_size] * self.block_size + position % self.block_size

    def first_wrong(self, table: Sequence[int], chain: Sequence[int], start: int) -> int | None:
        """The first position from ``start`` on that does not hold its own prefix."""
        for position in range(start, len(chain)):
            if self.cells[self.slot(table, position)] != chain[position]:
                return position
        return None
