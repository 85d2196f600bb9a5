"""How ``minipaged.LLM`` computes a step on a GPU: this package's kernels, decode steps recorded.

A step in which every sequence has one new token is a *decode* step. The first of a shape runs and
is recorded; later ones of that shape are replayed by one launch, from inputs at the same addresses
(see ``buckets``). All others, with prompts in them, are launched kernel by kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from minipaged.cache import KVCache, PagedBatch
from minipaged.core import InvalidRequest
from minipaged.engine.executor import Executor, Sizes
from minipaged.engine.scheduler import Step
from minipaged.engine.transfer import rows_of
from minipaged.models import Model

from .buckets import Bucket, Inputs, bucket_for
from .caches import KernelCache
from .graphs import Gpu
from .launch.device import OLDEST

Replay = Callable[[], tuple[Tensor, Tensor]]  # hidden, logits


class CudaExecutor(Executor):
    """The tensors of one engine, on a GPU.

    Args:
        model, device, sizes, sanitize: as ``Executor``; under ``sanitize`` nothing is recorded.
        attention: None: that of ``operations``. It takes ``max_query_len`` too.
        operations: has ``paged_attention``, ``write_kv``, ``copy_blocks``, ``swap_blocks``.
        gpu: memory and recording.

    Raises:
        InvalidRequest: the card is older than what the kernels are compiled for.
    """

    requires: ClassVar[tuple[str, ...]] = ("numba_cuda", "cuda.core")

    def __init__(
        self,
        model: Model,
        device: torch.device,
        sizes: Sizes,
        *,
        attention: Callable[..., Any] | None = None,
        sanitize: bool = False,
        operations: Any = None,
        gpu: Any = None,
    ):
        self.gpu = gpu or Gpu(device)
        if self.gpu.capability < OLDEST:
            found, oldest = (f"{major}.{minor}" for major, minor in (self.gpu.capability, OLDEST))
            raise InvalidRequest(
                f"{device} has compute capability {found}, the kernels need {oldest}: "
                "give attention= a function of your own, or use device='cpu'"
            )
        if operations is None:
            from minipaged_cuda import operations
        self.operations = operations
        super().__init__(model, device, sizes, attention=attention, sanitize=sanitize)
        blocks = -(-sizes.max_model_len // sizes.block_size)
        self._largest = Bucket(sizes.max_num_seqs, blocks)
        self._recorded: dict[Bucket, tuple[Inputs, Replay]] = {}
        self._replayed: tuple[Tensor, Tensor] | None = None  # hidden, logits of the last replay
        self._warm_up()

    @property
    def decode_attention(self) -> Callable[..., Any]:
        """As ``Executor``; the kernels need not search for a row's sequence."""
        return partial(self.attention, max_query_len=1)

    def move(self, step: Step) -> None:
        """As ``Executor``, without waiting; but a sanitizer touches blocks of the host itself."""
        super().move(step)
        if not self.records and (step.swaps_out or step.swaps_in):
            self.gpu.finish()

    def forward(self, token_ids: Sequence[int], batch: PagedBatch) -> Tensor:
        """As ``Executor``; of a decode step the result is valid until the next ``forward``."""
        num_seqs, num_blocks = batch.block_tables.shape
        is_decode, self._replayed = len(token_ids) == num_seqs, None
        if is_decode and self.records:
            return self._replay(token_ids, batch)
        inputs = Inputs(len(token_ids), num_seqs, num_blocks, self.gpu)
        inputs.fill(token_ids, batch)
        return self._launch(inputs, is_decode)

    def logits(self, hidden: Tensor, rows: Sequence[int]) -> Tensor:
        """As ``Executor``; after a replay they are there already."""
        if self._replayed is not None and hidden is self._replayed[0]:
            return self._replayed[1][rows_of(rows, hidden.device)]
        return super().logits(hidden, rows)

    def _replay(self, token_ids: Sequence[int], batch: PagedBatch) -> Tensor:
        num_rows, num_blocks = batch.block_tables.shape
        bucket = bucket_for(num_rows, num_blocks, self._largest)
        if bucket in self._recorded:
            inputs, replay = self._recorded[bucket]
            inputs.fill(token_ids, batch)
        else:
            inputs, replay = self._recorded[bucket] = self._record(bucket, token_ids, batch)
        hidden, logits = replay()
        self._replayed = hidden[:num_rows], logits[:num_rows]
        return self._replayed[0]

    def _record(
        self, bucket: Bucket, token_ids: Sequence[int], batch: PagedBatch
    ) -> tuple[Inputs, Replay]:
        """Inputs that hold this batch, and the recorded step that reads them."""
        started = time.perf_counter()
        inputs = Inputs(bucket.num_rows, *bucket, self.gpu)
        inputs.fill(token_ids, batch)
        replay = self.gpu.capture(partial(self._decode, inputs))
        self.compile_seconds += time.perf_counter() - started
        return inputs, replay

    def _decode(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """What is recorded: it reads the inputs, the weights and the cache, and nothing else."""
        hidden = self._launch(inputs, is_decode=True)
        return hidden, self.decoder.logits(hidden)

    def _launch(self, inputs: Inputs, is_decode: bool) -> Tensor:
        attention = self.decode_attention if is_decode else self.attention
        return self.decoder.forward(inputs.token_ids, inputs.batch, self.cache, attention)

    def _warm_up(self) -> None:
        """Compile what every step needs, on rows that are all padding: they change nothing."""
        started = time.perf_counter()
        for num_tokens in (1, 2):  # a decode step, which is recorded too, and one with a prompt
            slots = torch.full((num_tokens,), -1)
            start_loc = torch.tensor([0, num_tokens], dtype=torch.int32)
            table, length = torch.full((1, 1), -1, dtype=torch.int32), torch.zeros(1).int()
            batch = PagedBatch(torch.zeros_like(slots), slots, table, length, start_loc)
            self.logits(self.forward([0] * num_tokens, batch), [0])
        self.compile_seconds = time.perf_counter() - started

    def _kernels(
        self, attention: Callable[..., Any] | None
    ) -> tuple[Callable[..., Any], Callable[..., None]]:
        return attention or self.operations.paged_attention, self.operations.write_kv

    def _new_cache(self, num_blocks: int, *, on_host: bool = False) -> KVCache:
        return KernelCache(
            *self._cache_shape(num_blocks),
            memory=self.gpu,
            operations=self.operations,
            on_host=on_host,
            dtype=self.decoder.dtype,
            write_kv=self.write_kv,
        )
