"""Which keys a query sees and what its scores become; knows positions, not where keys are stored.

The order is the same in every form of attention here: scale, softcap, ALiBi, mask, and last the
sinks, which only add to the denominator of the softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minipaged.core.errors import InvalidBatch


def query_positions(query_len: int, seq_len: int, device: torch.device | None = None) -> Tensor:
    """The newest `query_len` positions of a sequence, so that the last query is its last token.

    With more queries than tokens the first positions are negative: they have no past to see.
    """
    return torch.arange(seq_len - query_len, seq_len, device=device)


def first_visible_key(query_len: int, seq_len: int, window: int | None) -> int:
    """The earliest position that any of the newest `query_len` tokens sees.

    Nothing before it is ever read, so the blocks there may have been freed.
    """
    return 0 if window is None else max(0, seq_len - query_len - window + 1)


def visible(
    query_positions: Tensor,  # [query_len] int64
    key_positions: Tensor,  # [num_keys] int64
    *,
    causal: bool,
    window: int | None,
) -> Tensor:  # [query_len, num_keys] bool
    """True where a query sees a key: two independent cuts.

    `causal` hides the keys after the query, `window` those before `query - window + 1`. With both,
    a query sees the `window` newest tokens, itself included.

    Examples:
        >>> here = torch.arange(4)
        >>> visible(here, here, causal=True, window=2).int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 1, 1, 0],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    age = query_positions[:, None] - key_positions
    seen = torch.ones_like(age, dtype=torch.bool)
    if causal:
        seen &= age >= 0
    if window is not None:
        seen &= age < window
    return seen


def attention_scores(
    query: Tensor,  # [query_len, num_heads, head_dim]
    key: Tensor,  # [num_keys, num_kv_heads, head_dim]
    query_positions: Tensor,  # [query_len] int64
    key_positions: Tensor,  # [num_keys] int64
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,  # [num_heads]
) -> Tensor:  # [num_heads, query_len, num_keys]
    """Every score as the softmax receives it: -inf where the query does not see the key.

    The mask comes after the cap, because a cap would lift -inf to a finite score.
    """
    check_options(window, softcap)
    key = repeat_kv_heads(key, query.shape[1])
    scores = scale * torch.einsum("qhd,khd->hqk", query, key)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        distance = key_positions - query_positions[:, None]  # 0 at the query, negative before it
        scores = scores + alibi_slopes.to(scores.dtype)[:, None, None] * distance
    seen = visible(query_positions, key_positions, causal=causal, window=window)
    return scores.masked_fill(~seen, -torch.inf)


def check_options(window: int | None, softcap: float | None) -> None:
    """None turns an option off; 0 does not, though elsewhere it may."""
    if window is not None and window < 1:
        raise InvalidBatch(f"window={window} hides every key, the query's own too; None is off")
    if softcap is not None and not softcap > 0:
        raise InvalidBatch(f"softcap={softcap} is not positive; None is off")


def repeat_kv_heads(kv: Tensor, num_heads: int) -> Tensor:
    """One kv head per query head: head h reads kv head `h // (num_heads // num_kv_heads)`."""
    return kv.repeat_interleave(num_heads // kv.shape[1], dim=1)


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any tensor is, else float32: half precision is for storage, not for sums."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
