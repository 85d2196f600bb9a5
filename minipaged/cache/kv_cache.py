"""The K and V tensors of all layers: they obey block tables and decide nothing.

The logical shape is ``[num_layers, num_blocks, block_size, num_kv_heads, head_dim]``. In memory a
head's tokens lie together (HND), so that attention streams a head's block as one piece: shape is a
convention, strides are a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from minipaged.core import InvalidBatch
from minipaged.huge_pages import ask_for_huge_pages


def write_kv(
    key: Tensor,  # [num_tokens, num_kv_heads, head_dim]
    value: Tensor,  # [num_tokens, num_kv_heads, value_head_dim]
    key_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor,  # [num_blocks, block_size, num_kv_heads, value_head_dim]
    slot_mapping: Tensor,  # [num_tokens] int64
) -> None:
    """Store each token's K and V in its slot; a token with slot -1 is skipped."""
    if len(key) != len(slot_mapping) or len(value) != len(slot_mapping):
        sizes = f"{len(key)} keys and {len(value)} values for {len(slot_mapping)} slots"
        raise InvalidBatch(f"{sizes}: every token needs one of each")
    keep = slot_mapping >= 0
    slots, block_size = slot_mapping[keep], key_cache.shape[1]
    key_cache[slots // block_size, slots % block_size] = key[keep]
    value_cache[slots // block_size, slots % block_size] = value[keep]


class KVCache:
    """Room for ``num_blocks * block_size`` tokens' K and V in every layer.

    Args:
        num_layers, num_blocks, block_size, num_kv_heads, head_dim: the logical shape.
        value_head_dim: V's last dimension where it differs from K's.
        dtype, device: of both tensors.
        sanitize: fill unwritten slots with NaN: reading one shows in every output.
        write_kv: a function of the signature above, compiled or not.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        value_head_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        sanitize: bool = False,
        write_kv: Callable[..., None] = write_kv,
    ):
        self.write_kv = write_kv

        def storage(dim: int) -> Tensor:
            shape = (num_layers, num_blocks, num_kv_heads, block_size, dim)
            memory = torch.empty(shape, dtype=dtype, device=device).transpose(2, 3)
            if memory.is_cpu:
                ask_for_huge_pages(memory.data_ptr(), memory.nbytes)
            return memory.fill_(torch.nan) if sanitize else memory

        self.key = storage(head_dim)
        self.value = storage(value_head_dim or head_dim)

        self.num_blocks, self.block_size = num_blocks, block_size
        self.bytes_per_block = (self.key.nbytes + self.value.nbytes) // num_blocks  # all layers

    def write(
        self,
        layer: int,
        key: Tensor,  # [num_tokens, num_kv_heads, head_dim]
        value: Tensor,  # [num_tokens, num_kv_heads, value_head_dim]
        slot_mapping: Tensor,  # [num_tokens] int64
    ) -> None:
        """Store each token's K and V of one layer in its slot."""
        self.write_kv(key, value, self.key[layer], self.value[layer], slot_mapping)

    def gather(
        self, layer: int, block_ids: Sequence[int], num_tokens: int
    ) -> tuple[Tensor, Tensor]:  # [num_tokens, num_kv_heads, head_dim], the same for V
        """K and V of a sequence's first ``num_tokens`` positions, copied into one piece each."""
        if min(block_ids, default=0) < 0:
            raise InvalidBatch(f"block_ids {list(block_ids)} has holes: give only existing blocks")
        ids = torch.tensor(block_ids, dtype=torch.int64, device=self.key.device)
        return tuple(c[layer][ids].flatten(0, 1)[:num_tokens] for c in (self.key, self.value))  # type: ignore[return-value]

    def copy_blocks(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Carry out copy-on-write, all layers at once; every source is read before any write."""
        self.swap_blocks(self, pairs)

    def swap_blocks(self, other: KVCache, pairs: Iterable[tuple[int, int]]) -> None:
        """Copy blocks ``(mine, its)`` into another cache, for example on the host."""
        if not (pairs := list(pairs)):
            return
        mine, its = torch.tensor(pairs, dtype=torch.int64).T
        for ours, theirs in ((self.key, other.key), (self.value, other.value)):
            moved = ours[:, mine.to(ours.device)].to(theirs.device)
            theirs[:, its.to(theirs.device)] = moved

    def poison(self, slots: Sequence[int]) -> None:
        """Fill slots that hold no token with NaN: whoever reads them is found out."""
        index = torch.tensor(slots, dtype=torch.int64, device=self.key.device)
        for cache in (self.key, self.value):
            cache[:, index // self.block_size, index % self.block_size] = torch.nan
