"""Pictures of a snapshot, drawn from nothing else, so that they cannot drift from the code."""

from .bar import LedgerBar
from .blocks import BlockView, block_views
from .changes import Change, changes
from .marks import Letters
from .story import Frame, frames
from .terminal import PoolMap, picture, plain

__all__ = [
    "BlockView",
    "Change",
    "Frame",
    "LedgerBar",
    "Letters",
    "PoolMap",
    "block_views",
    "changes",
    "frames",
    "picture",
    "plain",
]
