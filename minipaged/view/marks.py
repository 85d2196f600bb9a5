"""The signs of a picture in Unicode and in ASCII, and who is drawn in which letter and colour.

Knows no snapshot's content beyond names. Everything a colour says, a letter or a sign says too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from rich.console import ConsoleOptions

from minipaged.core import TableView

# Names, not RGB: the terminal's own theme decides how they look on its background.
_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")
CROWD = "@"
"""The letter of everyone for whom no letter of the alphabet is left."""


@dataclass(frozen=True)
class Marks:
    """One set of signs; ``box`` holds corners and lines in reading order, then ``─`` and ``│``."""

    written: str
    promised: str
    empty: str
    cached: str
    times: str
    more: str
    box: str
    bar: str  # in the order of the ledger's classes
    dot: str
    arrow: str


UNICODE = Marks("■", "□", "·", "▒", "×", "…", "┌┬┐├┼┤└┴┘─│", "█▓▢╳░?·", "·", "→")
ASCII = Marks("#", "+", ".", ":", "x", "~", "+++++++++-|", "#=+x:?.", "-", "->")


def marks_for(options: ConsoleOptions) -> Marks:
    """Unicode where the output can carry it."""
    return ASCII if options.ascii_only or options.legacy_windows else UNICODE


class Letters:
    """Gives every sequence a letter, and keeps it for as long as the sequence is seen.

    A name that is one capital letter stands for itself; letters of those who left are given again.

    Examples:
        >>> letters = Letters()
        >>> letters.of(["A", "request 1"])
        {'A': 'A', 'request 1': 'B'}
        >>> letters.of(["request 1", "request 2"])
        {'request 1': 'B', 'request 2': 'A'}
    """

    def __init__(self, known: Mapping[str, str] | None = None):
        self._letters = dict(known or {})

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """The letter of each of the present ``names``."""
        names = list(names)
        self._letters = {n: letter for n, letter in self._letters.items() if n in set(names)}
        free = [c for c in ascii_uppercase if c not in {*self._letters.values(), *names}]
        for name in names:
            if name not in self._letters:
                own = len(name) == 1 and name in ascii_uppercase
                own = own and name not in self._letters.values()
                self._letters[name] = name if own else free.pop(0) if free else CROWD
        return {name: self._letters[name] for name in names}


def extent(table: TableView) -> str:
    """``9 tokens and 2 promised``."""
    text = f"{table.num_tokens:,} token{'' if table.num_tokens == 1 else 's'}"
    promised = table.num_reserved - table.num_tokens
    return f"{text} and {promised} promised" if promised > 0 else text


def colour(letter: str) -> str:
    """The colour in which a letter is always drawn."""
    place = ascii_uppercase.find(letter.upper())
    if place < 0:
        return "white"
    bright = "bright_" if place // len(_COLOURS) % 2 else ""
    return f"{bright}{_COLOURS[place % len(_COLOURS)]}"
