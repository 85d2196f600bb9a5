"""The launch plan: which kernel, grid and splits compute an operation; pure functions of sizes.

Nothing here depends on a value that lies on the card. So a plan needs no synchronisation, and it
still holds when a captured graph is replayed with other lengths, tables and tokens.
"""

from .attention import AttentionPlan, choose_num_splits, num_tiles, plan_attention
from .cache import CopySizes, WriteSizes, plan_copy, plan_merge_states, plan_write
from .choice import KERNELS, AttentionSizes, choose_kernel, why_not
from .launches import H200, Card, Constants, Grid, Launch

__all__ = [
    "H200",
    "KERNELS",
    "AttentionPlan",
    "AttentionSizes",
    "Card",
    "Constants",
    "CopySizes",
    "Grid",
    "Launch",
    "WriteSizes",
    "choose_kernel",
    "choose_num_splits",
    "num_tiles",
    "plan_attention",
    "plan_copy",
    "plan_merge_states",
    "plan_write",
    "why_not",
]
