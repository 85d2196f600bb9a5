"""How a step's tensors are computed on one device: caches, copies, model; knows no requests.

This one computes with torch and any attention function. Another device brings an executor of its
own, a subclass that ``devices`` finds by the device's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from minipaged.cache import KVCache, PagedBatch, write_kv
from minipaged.core import InvalidRequest
from minipaged.models import Model

from .scheduler import Step
from .transfer import rows_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an executor makes room for."""

    num_blocks: int
    num_host_blocks: int | None  # None: nothing is swapped
    block_size: int
    max_num_seqs: int
    max_model_len: int


class Executor:
    """The tensors of one engine, and what a step does to them.

    Args:
        model: its weights are on ``device``.
        device: where everything is computed.
        sizes: of the caches, and the largest step.
        attention: a function of the native signature; None: the compiled one.
        sanitize: every write to the cache goes through Python, where a shadow sees it.

    Attributes:
        attention: may be exchanged between two steps.
        records: where steps can be recorded and replayed, do it; may be changed between two steps.
        cache, host_cache: K and V; ``host_cache`` is None where nothing is swapped.
        compile_seconds: spent on compiling so far: by the constructor, so that no request waits for
            it, or by whichever step had to.
    """

    requires: ClassVar[tuple[str, ...]] = ()  # modules of the extra named like the device

    def __init__(
        self,
        model: Model,
        device: torch.device,
        sizes: Sizes,
        *,
        attention: Callable[..., Any] | None = None,
        sanitize: bool = False,
    ):
        if attention is not None and not callable(attention):
            raise InvalidRequest(
                f"attention={attention!r}: must be a function of the native signature"
            )
        self.decoder, self.config, self.device = model.decoder, model.config, device
        self.sizes, self.records, self.compile_seconds = sizes, not sanitize, 0.0
        self.attention, self.write_kv = self._kernels(attention)
        self.cache, self.host_cache = self._new_cache(sizes.num_blocks), None
        self.compile_seconds += self.decoder.warm_up(self.cache, self.attention)
        if sizes.num_host_blocks is not None:
            self.host_cache = self._new_cache(sizes.num_host_blocks, on_host=True)

    @property
    def decode_attention(self) -> Callable[..., Any]:
        """Attention for batches of exactly one new token per sequence."""
        return self.attention

    def move(self, step: Step) -> None:
        """Carry out what comes before computing: blocks go out, come in, are copied for writing."""
        if self.host_cache is not None:
            self.cache.swap_blocks(self.host_cache, step.swaps_out)
            self.host_cache.swap_blocks(self.cache, step.swaps_in)
        self.cache.copy_blocks(step.copies)

    def forward(self, token_ids: Sequence[int], batch: PagedBatch) -> Tensor:
        """The residual stream of a step's new tokens, ``[num_tokens, hidden_size]``.

        Args:
            token_ids: the new tokens.
            batch: where they are; its tensors are on the host.
        """
        ids = torch.tensor(token_ids).to(self.device)
        if self.device.type != "cpu":
            tensors = (getattr(batch, field.name) for field in fields(batch))
            batch = PagedBatch(*(tensor.to(self.device) for tensor in tensors))
        return self.decoder.forward(ids, batch, self.cache, self.attention)

    def logits(self, hidden: Tensor, rows: Sequence[int]) -> Tensor:
        """Scores of every next token after these rows, ascending, of ``forward``'s result.

        ``[num_rows, vocab_size]``; valid until the next ``forward``.
        """
        return self.decoder.logits(hidden[rows_of(rows, hidden.device)])

    def _kernels(
        self, attention: Callable[..., Any] | None
    ) -> tuple[Callable[..., Any], Callable[..., None]]:
        """Attention, and the writer of the cache."""
        if attention is not None:
            return attention, write_kv
        from minipaged.attention import cpu

        self.compile_seconds += cpu.warm_up(self.decoder.dtype)
        return cpu.cpu_paged_attention, cpu.cpu_write_kv

    def _new_cache(self, num_blocks: int, *, on_host: bool = False) -> KVCache:
        return KVCache(
            *self._cache_shape(num_blocks),
            dtype=self.decoder.dtype,
            device="cpu" if on_host else self.device,
            write_kv=self.write_kv,
        )

    def _cache_shape(self, num_blocks: int) -> tuple[int, ...]:
        config, block_size = self.config, self.sizes.block_size
        return config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim
