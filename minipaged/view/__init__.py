"""Pictures of a snapshot, drawn from nothing else, so that they cannot drift from the code.

Those that a page shows are a ``Drawing``: SVG, and the same as text for a terminal.
"""

from .bar import LedgerBar
from .blocks import BlockView, block_views
from .changes import Change, changes
from .figure import Drawing
from .figure_bars import stacked_bars
from .figure_cards import Card, cards
from .figure_gantt import gantt
from .figure_heat import heat
from .figure_ledger import ledger_bar
from .figure_lines import lines
from .figure_pool import drawing, series
from .figure_table import table_arrows
from .figure_tree import Node, tree
from .marks import Letters
from .moment import Moment
from .stepper import Html, stepper
from .story import Frame, frames
from .terminal import PoolMap, picture, plain

__all__ = [
    "BlockView",
    "Card",
    "Change",
    "Drawing",
    "Frame",
    "Html",
    "LedgerBar",
    "Letters",
    "Moment",
    "Node",
    "PoolMap",
    "block_views",
    "cards",
    "changes",
    "drawing",
    "frames",
    "gantt",
    "heat",
    "ledger_bar",
    "lines",
    "picture",
    "plain",
    "series",
    "stacked_bars",
    "stepper",
    "table_arrows",
    "tree",
]
