"""What is remembered of each slot and of each sequence; decides nothing about right or wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# `layers`: in how many layers it was written since its block was handed out; 0 is unwritten.
# `content`: the name of all tokens up to this one, 0 where nobody told. `step`: of the write.
SLOT = np.dtype(
    [("layers", "i4"), ("position", "i8"), ("content", "i8"), ("step", "i8"), ("writer", "O")]
)
BLANK = np.array((0, -1, 0, -1, None), dtype=SLOT)


def blank_slots(num_blocks: int, block_size: int) -> np.ndarray:  # [num_blocks, block_size] SLOT
    """Slots that were never written."""
    return np.full((num_blocks, block_size), BLANK, dtype=SLOT)


class History:
    """Names every prefix of one sequence by a number: equal for equal tokens and salt.

    Python's own hash will do: a sanitizer is not attacked, and a collision hides one fault.

    Examples:
        >>> a, b = History(None), History(None)
        >>> a.update([1, 2, 3]); b.update([1, 9, 3])
        >>> (a.names == b.names).tolist()
        [True, False, False]
    """

    def __init__(self, salt: object):
        self.salt, self.root = salt, hash(("minipaged", repr(salt)))
        self.tokens: list[int] = []
        self._names = np.zeros(64, dtype=np.int64)

    @property
    def names(self) -> np.ndarray:  # [num_tokens] int64, none of them 0
        """The names of the prefixes that end at each position."""
        return self._names[: len(self.tokens)]

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The names at some positions; 0, which is anything, where the tokens are not known."""
        return np.where(positions < len(self.tokens), self._names.take(positions, mode="clip"), 0)

    def update(self, token_ids: Sequence[int]) -> None:
        """All tokens of the sequence as they are now; only new ones cost time."""
        known = len(self.tokens)
        if list(token_ids[:known]) != self.tokens:
            known = 0
        new, name = [], int(self._names[known - 1]) if known else self.root
        for token in token_ids[known:]:
            name = hash((name, token)) or 1
            new.append(name)
        if len(token_ids) > len(self._names):
            self._names = np.resize(self._names, 2 * len(token_ids))
        self._names[known : len(token_ids)] = new
        self.tokens[known:] = token_ids[known:]
