"""PyTorch's flex attention with its experimental `PagedAttention`, not compiled."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..contract import Contract
from ..conventions import Kernel
from ..conventions.flex import Flex
from .animal import Animal, Finding, required

FEATURES = Flex.features.only(
    head_dims=(1, 3, 8, 16, 64), block_sizes=(1, 4, 16), kv_len=(0, 260), num_seqs=(1, 9)
)


def load() -> Kernel:
    """A block mask over logical pages, converted to one over physical pages."""
    flex = required("torch.nn.attention.flex_attention")
    library = required("torch.nn.attention.experimental._paged_attention")

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        page_table: Tensor,
        physical_to_logical: Tensor,
        page_size: int,
        *,
        scale: float,
        mask: Tensor,
        positions: Tensor,
        query_lens: Tensor,
        kv_lens: Tensor,
        softcap: float | None = None,
        alibi_slopes: Tensor | None = None,
        return_lse: bool = False,
    ) -> Any:
        batch, num_pages = physical_to_logical.shape
        pages = library.PagedAttention(num_pages, page_size, batch, device="cpu")
        pages.page_table, pages.physical_to_logical = page_table, physical_to_logical
        # It has no room for more logical pages than there are pages.
        longest = min(mask.shape[2], num_pages * page_size)

        def score(x: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
            if softcap is not None:
                x = softcap * (x / softcap).tanh()
            return x if alibi_slopes is None else x + alibi_slopes[h] * (kv - positions[b, q])

        logical = flex.create_block_mask(
            lambda b, h, q, kv: mask[b, q, kv],
            batch,
            None,
            query.shape[2],
            longest,
            device="cpu",
            BLOCK_SIZE=(128, page_size),
        )
        returned = flex.flex_attention(
            query,
            key,
            value,
            score_mod=pages.get_score_mod(score, kv_lens),
            block_mask=pages.convert_logical_block_mask(logical, kv_len=kv_lens),
            scale=scale,
            enable_gqa=True,
            return_aux=flex.AuxRequest(lse=True) if return_lse else None,
        )
        return (returned[0], returned[1].lse) if return_lse else returned

    return attention


TAILS = Finding(
    "NaN in slots of no position",
    ("finite",),
    "the weights of all slots, masked ones 0, multiply all values, and 0 * NaN is NaN "
    "(torch/_higher_order_ops/flex_attention.py:286)",
    {"poison": "finite"},
)
PLACES = Finding(
    "bits depend on where the pages are",
    ("placement", "sharing"),
    "it sums over all slots of the pool in the order of the pool "
    "(torch/_higher_order_ops/flex_attention.py:286)",
    {"placement_invariant": False},
    level=2,
    bitwise=True,
)

ANIMALS = (
    Animal(
        "torch flex_attention, paged",
        "slow",
        "torch",
        load,
        "flex",
        FEATURES,
        Contract(padding="-1"),
        (TAILS, PLACES),
    ),
)
