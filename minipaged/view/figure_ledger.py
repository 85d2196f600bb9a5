"""A ledger as a bar, as SVG; measures nothing."""

from __future__ import annotations

from minipaged.core import Ledger

from .bar import CLASSES, LedgerBar
from .figure import Drawing, headed
from .figure_bars import stacked_bars


def ledger_bar(ledger: Ledger, caption: str = "") -> Drawing:
    """What share of all slots does what; the numbers of slots stand in the legend.

    Examples:
        >>> print(ledger_bar(Ledger(6, 4, 0, 2, 0, 0, 4, saved=4)))
        ██████████████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓╳╳╳╳╳╳╳╳╳╳····················
        █ 6 live   ▓ 4 shared   ╳ 2 tail waste   · 4 free   16 slots   4 saved by sharing
    """
    counts = {word: getattr(ledger, name) for name, (word, _) in CLASSES.items()}
    parts = {f"{count:,} {word}": count / ledger.num_slots for word, count in counts.items()}
    label = f"{ledger.num_slots:,} slots"
    if ledger.saved:
        label += f", {ledger.saved:,} saved by sharing"
    svg = stacked_bars({label: parts}, list(parts), caption).svg
    return Drawing(svg, headed(caption, LedgerBar(ledger)))
