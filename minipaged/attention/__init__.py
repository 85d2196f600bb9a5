"""Attention over paged keys as pure tensor functions; knows nothing of who owns a block.

The compiled form for CPUs is `minipaged.attention.cpu`, which is not imported here: it needs Numba.
"""

from minipaged.attention.dense import dense_attention
from minipaged.attention.online_softmax import AttentionState, merge_states
from minipaged.attention.paged import paged_attention, paged_attention_blockwise
