"""A paged cache's work over torch tensors: check, plan, launch.

It knows tensors and plans, not how a kernel computes, nor what a launcher runs it on. Nothing here
waits for the card, so every operation can be captured in a graph. The price is that lengths, tables
and slots, which lie there, are trusted.
"""

from .attention import paged_attention
from .cache import merge_states, write_kv
from .copies import copy_blocks, swap_blocks

__all__ = ["copy_blocks", "merge_states", "paged_attention", "swap_blocks", "write_kv"]
