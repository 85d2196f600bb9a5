"""Write an attention function that a real model can write with.

`LLM("bundled", attention=attention)` calls it in every layer of every step: for whole prompts, for
chunks of them, for single tokens, and for all of these in one batch. The keys and values of the
new tokens are in the cache already. Any way is right that gives the right numbers; gathering a
sequence's keys and using the formula is the shortest.

What must hold:

- the queries of sequence s are the rows `query_start_loc[s]` up to `query_start_loc[s + 1]`;
- query i of n, in a sequence of `seq_lens[s]` tokens, is at position `seq_lens[s] - n + i`, and
  sees every position up to its own;
- position p lies in block `block_tables[s, p // block_size]` at offset `p % block_size`; slots that
  hold no token may hold anything, NaN included;
- query head h reads K/V head `h // (num_heads // num_kv_heads)`.

Three tokens in blocks 1 and 0, their values 1, 2 and 6; two of them are new. Queries of zero weigh
all they see alike, so the first gives the mean of 1 and 2, the second that of all three:

>>> nan, query = torch.nan, torch.zeros(2, 1, 1)
>>> value = torch.tensor([[6.0, nan], [1.0, 2.0]]).view(2, 2, 1, 1)
>>> tables, seq_lens, starts = torch.tensor([[1, 0]]), torch.tensor([3]), torch.tensor([0, 2])
>>> attention(query, value, value, tables, seq_lens, starts, scale=1.0).flatten().tolist()
[1.5, 3.0]
"""

from __future__ import annotations

import torch
from torch import Tensor


def attention(
    query: Tensor,  # [num_tokens, num_heads, head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    block_tables: Tensor,  # [num_seqs, max_blocks_per_seq] int32, -1 where there is no block
    seq_lens: Tensor,  # [num_seqs] int32, the new tokens included
    query_start_loc: Tensor,  # [num_seqs + 1] int32
    *,
    scale: float,
    **options,  # this model needs none of them
) -> Tensor:  # [num_tokens, num_heads, head_dim]
    """Causal attention of a ragged batch over paged keys and values."""
    raise NotImplementedError("for every sequence: gather, score, hide the future, softmax, sum")
