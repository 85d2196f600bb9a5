"""Attention of one sequence whose K and V lie in blocks.

The formula is given: `dense_attention(query, key, value, scale=...)` is causal
and takes the queries to be the newest tokens. What is missing is its `key` and
`value`: read them out of the caches, in the order of positions, the first
`seq_len` tokens and nothing else.

- Position p lies in block `block_ids[p // block_size]`, at the offset
  `p % block_size`.
- `block_ids` may be longer than needed: the entries behind the sequence are
  -1, or blocks of somebody else.
- A slot that holds no token of this sequence may hold anything, NaN included.

Three tokens in blocks of 2, first in block 2, then in block 0. Values are 20,
30 and 60, all scores are 0, so that every token counts as much, and the slot
behind the last one is poisoned:

    >>> value_cache = torch.tensor([60.0, torch.nan, 0, 0, 20, 30]).view(3, 2, 1, 1)
    >>> zero = torch.zeros(3, 2, 1, 1)
    >>> query = torch.zeros(1, 1, 1)
    >>> out = gather_attention(query, zero, value_cache, [2, 0, -1], 3, 1.0)
    >>> round(out.item(), 2)
    36.67
"""

import torch
from torch import Tensor

from minipaged.attention import dense_attention


def gather_attention(
    query: Tensor,  # [query_len, num_heads, head_dim], of the newest query_len tokens
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    block_ids: list[int],
    seq_len: int,  # tokens of the sequence, the newest ones included
    scale: float,
) -> Tensor:  # [query_len, num_heads, head_dim]
    """Attention over the sequence's first `seq_len` positions."""
    raise NotImplementedError("gather key and value, then call dense_attention")
