"""A ledger as one bar: what share of all slots does what, and the numbers; measures nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.text import Text

from minipaged.core import Ledger

from .marks import marks_for
from .terminal import flow

CLASSES = {  # of the ledger, how they are called here, and their colour
    "live": ("live", "green"),
    "shared": ("shared", "cyan"),
    "reserved": ("reserved", "yellow"),
    "tail_waste": ("tail waste", "red"),
    "cached": ("cached", "blue"),
    "orphaned": ("orphaned", "magenta"),
    "free": ("free", "dim"),
}
MOSTLY_FREE = 0.9


@dataclass(frozen=True)
class LedgerBar:
    """A Rich renderable: a bar in which every class that occurs is seen, and its numbers below.

    Of a pool that is nearly all free, the bar shows the rest, and says so.

    Examples:
        >>> from minipaged.view import plain
        >>> bar = LedgerBar(Ledger(6, 4, 0, 2, 0, 0, 4, saved=4))
        >>> print(plain(bar, width=32))
        ████████████▓▓▓▓▓▓▓▓╳╳╳╳········
        █ 6 live   ▓ 4 shared
        ╳ 2 tail waste   · 4 free
        16 slots   4 saved by sharing
    """

    ledger: Ledger

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        """The bar, then the numbers."""
        width, signs = options.max_width, marks_for(options).bar
        counts = [getattr(self.ledger, name) for name in CLASSES]
        drawn, note = list(counts), ""
        if MOSTLY_FREE * self.ledger.num_slots < self.ledger.free < self.ledger.num_slots:
            drawn[-1], note = 0, " (not drawn)"
        bar, entries = Text(no_wrap=True), []
        for sign, (word, style), count, length in zip(
            signs, CLASSES.values(), counts, shares(drawn, width)
        ):
            bar.append(sign * length, style=style)
            if count:
                entries.append(f"{sign} {count:,} {word}{note if word == 'free' else ''}")
        entries.append(f"{self.ledger.num_slots:,} slots")
        if self.ledger.saved:
            entries.append(f"{self.ledger.saved:,} saved by sharing")
        yield bar
        yield from flow(entries, width)


def shares(counts: list[int], width: int) -> list[int]:
    """Cut ``width`` in proportion to ``counts``; whatever is not 0 gets at least 1.

    Examples:
        >>> shares([6, 4, 2, 4], 32), shares([1, 0, 9999], 10), shares([1, 1, 1], 2)
        ([12, 8, 4, 8], [1, 0, 9], [1, 1, 0])
    """
    total = sum(counts)
    exact = [count * width / total if total else 0 for count in counts]
    lengths = [max(int(share), 1 if count else 0) for share, count in zip(exact, counts)]
    while sum(lengths) < width and total:
        most = max(range(len(counts)), key=lambda i: exact[i] - lengths[i])
        lengths[most] += 1
    while sum(lengths) > width:
        lengths[max(range(len(counts)), key=lambda i: (lengths[i], i))] -= 1
    return lengths
