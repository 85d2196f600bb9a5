"""The loop: text in, text out. Joins scheduler, cache, model and sampler; decides nothing they do.

One step: the scheduler reserves slots, the cache carries out its copies, the model computes the
new tokens, the scheduler commits, and whoever has no token left to compute samples the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from itertools import chain
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from minipaged.cache import KVCache, PagedBatch, write_kv
from minipaged.core import (
    BlockPool,
    BlockTable,
    InvalidRequest,
    Ledger,
    Snapshot,
)
from minipaged.models import Model, load_model
from minipaged.sanitizer import Owner, Sanitizer

from .advance import Advancer
from .intake import Intake, Params, Prompt
from .interrupts import uninterrupted
from .memory import num_blocks_for
from .outputs import Delta, RequestOutput
from .params import SamplingParams
from .scheduler import Scheduler, Step
from .sequence import Request, Sequence
from .stats import EngineStats


class LLM:
    """A language model over a paged K/V cache.

    Args:
        model: "bundled", a pulled name, a Hugging Face directory, a ``.gguf`` file, or a ``Model``.
        attention: a function of the native signature (``minipaged.attention``); None picks the
            compiled one for the device.
        num_blocks: size of the pool in blocks; or
        memory: size of the pool in bytes, such as ``"1GiB"``. Neither: room for ``max_num_seqs``
            sequences of full length, but at most 1 GiB.
        block_size: tokens per block.
        max_num_seqs: sequences computed in one step.
        max_num_batched_tokens: tokens computed in one step; longer prompts are cut into chunks.
        max_model_len: prompt plus output of one sequence; None: what the model was made for.
        prefix_caching: find and publish prefixes by hash.
        preemption: "recompute" or "swap", when the pool is too small for everyone.
        num_host_blocks: room for swapped sequences, default as many as ``num_blocks``.
        sanitize: poison slots that hold no token, and judge every read and write of every step
            before the kernels run (``SanitizerError``). Slower, and the tokens are the same.
        device, dtype: None: a CUDA device where there is one; float32 on a CPU.

    Examples:
        >>> llm = LLM("bundled")                                             # doctest: +SKIP
        >>> llm.generate("In the beginning", SamplingParams(max_tokens=8))   # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | Model = "bundled",
        attention: Callable[..., Any] | None = None,
        *,
        num_blocks: int | None = None,
        memory: str | int | None = None,
        block_size: int = 16,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        max_model_len: int | None = None,
        prefix_caching: bool = True,
        preemption: str = "recompute",
        num_host_blocks: int | None = None,
        sanitize: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
    ):
        _check_sizes(
            block_size=(block_size, 1),
            max_num_seqs=(max_num_seqs, 1),
            max_num_batched_tokens=(max_num_batched_tokens, 1),
            max_model_len=(max_model_len, 2),
            num_blocks=(num_blocks, 1),
            num_host_blocks=(num_host_blocks, 1),
        )
        if num_blocks is not None and memory is not None:
            raise InvalidRequest(f"{num_blocks=} and {memory=}: the pool's size is given once")
        if preemption not in ("recompute", "swap"):
            raise InvalidRequest(f"preemption={preemption!r}: must be 'recompute' or 'swap'")
        self.device, self.stats = _device(device), EngineStats()
        self.block_size, self.prefix_caching, self.sanitize = block_size, prefix_caching, sanitize
        self._load(model, _dtype(dtype, self.device))
        limit = self.config.max_position_embeddings
        self.max_model_len = min(max_model_len or limit, limit)
        if num_blocks is None:
            enough = max_num_seqs * -(-self.max_model_len // block_size)
            num_blocks = self._num_blocks(memory, enough)
        self.attention, write_kv = self._kernels(attention)
        self.pool = BlockPool(num_blocks)
        self.cache = self._new_cache(num_blocks, self.device, write_kv)
        self.host_cache, host_pool = None, None
        if preemption == "swap":
            host_pool = BlockPool(num_host_blocks or num_blocks)
            self.host_cache = self._new_cache(host_pool.num_blocks, "cpu", write_kv)
        pools = (self.pool, self.cache), (host_pool, self.host_cache)
        self._sanitizer = Sanitizer(*pools) if sanitize else None  # type: ignore[arg-type]
        self.scheduler = Scheduler(
            self.pool,
            block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            host_pool=host_pool,
            window=self.config.sliding_window,
        )
        keys = {"model": repr(self.config), "dtype": str(self.model.decoder.dtype)}
        self._requests: dict[str, Request] = {}  # the unfinished ones
        self._intake = Intake(
            self.tokenizer,
            self.config.vocab_size,
            self.max_model_len,
            self.pool,
            block_size,
            keys if prefix_caching else None,
        )
        self._advancer = Advancer(self.model.decoder, self._intake, self.scheduler)

    def _load(self, model: str | Model, dtype: torch.dtype) -> None:
        started = time.perf_counter()
        if not isinstance(model, Model):
            model = load_model(model, dtype=dtype, device=self.device)
        self.model, self.tokenizer, self.config = model, model.tokenizer, model.config
        self.stats.load_seconds = time.perf_counter() - started

    def _kernels(
        self, attention: Callable[..., Any] | None
    ) -> tuple[Callable[..., Any], Callable[..., None]]:
        """Attention, and the writer of the cache, for the device.

        What has to be compiled is compiled now, so that no request waits for it.
        """
        if attention is not None and not callable(attention):
            raise InvalidRequest(
                f"attention={attention!r}: must be a function of the native signature"
            )
        if attention is not None or self.device.type != "cpu":
            from minipaged.attention import paged_attention

            return attention or paged_attention, write_kv
        from minipaged.attention import cpu

        self.stats.compile_seconds = cpu.warm_up(self.model.decoder.dtype)
        return cpu.cpu_paged_attention, cpu.cpu_write_kv

    def _num_blocks(self, memory: str | int | None, enough: int) -> int:
        config, dtype = self.config, self.model.decoder.dtype
        shape = (self.block_size, config.num_kv_heads, config.head_dim)
        return num_blocks_for(memory, enough, config.num_layers, shape, dtype)

    def _new_cache(
        self, num_blocks: int, device: torch.device | str, write_kv: Callable[..., None]
    ) -> KVCache:
        return KVCache(
            self.config.num_layers,
            num_blocks,
            self.block_size,
            self.config.num_kv_heads,
            self.config.head_dim,
            dtype=self.model.decoder.dtype,
            device=device,
            write_kv=write_kv,
        )

    # --- requests ------------------------------------------------------------------------------

    def add(
        self,
        prompt: Prompt,
        params: Params | None = None,
        *,
        request_id: str | None = None,
        salt: str | None = None,
    ) -> Request:
        """Queue one request; ``step`` moves it on.

        Args:
            prompt: text, or token ids.
            params: default ``SamplingParams()``.
            request_id: a name of your choice, unique among the unfinished; None: a number.
            salt: prefixes are shared only between requests of equal salt.

        Raises:
            InvalidRequest: no step could ever serve it; nothing was queued.
        """
        if request_id in self._requests:
            raise InvalidRequest(f"request {request_id!r} is still unfinished: choose another name")
        request = self._request(prompt, params or SamplingParams(), request_id, salt)
        self._enqueue(request)
        return request

    def abort(self, request_id: str) -> RequestOutput:
        """End a request in whatever state; its blocks are free at once. Returns what it had.

        Raises:
            InvalidRequest: no unfinished request has this name.
        """
        if request_id not in self._requests:
            known = ", ".join(self._requests) or "none"
            raise InvalidRequest(f"no unfinished request {request_id!r}; unfinished are: {known}")
        request = self._requests[request_id]
        self._deliver([self._advancer.finish(s, "abort") for s in request.unfinished])
        return RequestOutput.of(request)

    @property
    def has_unfinished(self) -> bool:
        """True while some request still needs steps."""
        return bool(self._requests)

    def generate(
        self, prompts: Prompt | Seq[Prompt], params: Params | Seq[Params] | None = None
    ) -> list[RequestOutput]:
        """Answer one or many prompts together; results come in the order of the prompts.

        Raises:
            InvalidRequest: naming the prompt that cannot be served; then none was started.
        """
        requests = self._add_all(prompts, params)
        try:
            while any(r.unfinished for r in requests):
                self.step()
        finally:
            self._abandon(requests)
        return [RequestOutput.of(r) for r in requests]

    def stream(
        self, prompts: Prompt | Seq[Prompt], params: Params | Seq[Params] | None = None
    ) -> Iterator[Delta]:
        """The same, piece by piece as it is generated. Leaving the loop early aborts the rest."""
        requests = self._add_all(prompts, params)
        for request in requests:
            request.inbox = []
        try:
            while any(r.inbox or r.unfinished for r in requests):
                if not any(r.inbox for r in requests):
                    self.step()
                for request in requests:
                    inbox, request.inbox = request.inbox, []
                    yield from inbox or ()
        finally:
            self._abandon(requests)

    def chat(
        self, messages: Seq[dict[str, str]], params: Params | None = None
    ) -> list[RequestOutput]:
        """Answer a conversation, ``[{"role": "user", "content": "..."}]``, in the model's form."""
        if not all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in messages):
            form = '[{"role": "user", "content": "Hi"}]'
            raise InvalidRequest(f"messages={messages!r}: must be a list such as {form}")
        return self.generate(self.tokenizer.chat(messages), params)

    def _add_all(
        self, prompts: Prompt | Seq[Prompt], params: Params | Seq[Params] | None
    ) -> list[Request]:
        if not isinstance(prompts, Iterable):
            raise InvalidRequest(f"{prompts!r} is no prompt: must be text, token ids, or a list")
        many: list[Any] = [prompts] if isinstance(prompts, str) else list(prompts)
        if many and isinstance(many[0], Integral):
            many = [many]  # the token ids of one prompt
        each = params if isinstance(params, Seq) else [params or SamplingParams()] * len(many)
        if len(each) != len(many):
            raise InvalidRequest(f"{len(many)} prompts, but {len(each)} params: one each, or one")
        requests = []
        for i, (prompt, wish) in enumerate(zip(many, each)):
            try:
                requests.append(self._request(prompt, wish))
            except InvalidRequest as error:
                where = f"prompt {i + 1} of {len(many)}: " if len(many) > 1 else ""
                raise InvalidRequest(f"{where}{error}") from None
        for request in requests:
            self._enqueue(request)
        return requests

    def _request(self, prompt: Prompt, params: Params, *name_and_salt: str | None) -> Request:
        while str(self._intake.num_taken) in self._requests:
            self._intake.num_taken += 1  # a caller has chosen this number as a name
        return self._intake.request(prompt, params, *name_and_salt)

    def _enqueue(self, request: Request) -> None:
        self._requests[request.request_id] = request
        self.scheduler.add(request.sequences[0])

    def _deliver(self, deltas: list[Delta]) -> None:
        """Put news into the inboxes of streaming callers, and forget finished requests."""
        for delta in deltas:
            request = self._requests[delta.request_id]
            if request.inbox is not None:
                request.inbox.append(delta)
        for delta in deltas:
            request = self._requests.get(delta.request_id)
            if delta.finish_reason is not None and request and not request.unfinished:
                del self._requests[delta.request_id]

    def _abandon(self, requests: list[Request]) -> None:
        """However its caller was left, a request keeps no blocks."""
        for request in requests:
            if request.unfinished:
                self.abort(request.request_id)

    # --- one step ------------------------------------------------------------------------------

    def step(self) -> list[Delta]:
        """Compute one batch and sample; returns what was added. Does nothing if nothing is left.

        If the model fails, the exception comes through, but every book is as before the step, so
        the next ``step`` tries again. Ctrl-C takes effect after the step.
        """
        with uninterrupted():
            started = time.perf_counter()
            step = self.scheduler.schedule()
            self.stats.num_preemptions = self.scheduler.num_preemptions
            if step.is_empty:
                return []
            try:
                hidden, ends = self._compute(step)
                self._advancer.record_prompts(step, hidden, ends)
            except BaseException:
                self.scheduler.rollback(step)
                raise
            self.scheduler.commit(step)
            only_decodes = self.stats.count(step, self.pool.num_blocks - self.pool.num_free)
            deltas: list[Delta] = []
            try:
                for delta in self._advancer.advance(step, hidden, ends):
                    deltas.append(delta)
            except BaseException:
                self.scheduler.retry()
                raise
            finally:  # who got a token before something failed, has it
                self._deliver(deltas)
                self.stats.tokens_generated += sum(len(d.token_ids) for d in deltas)
            self.stats.spend(time.perf_counter() - started, only_decodes)
            if self._sanitizer is not None:
                self._sanitizer.after_step(self._owners(self.scheduler.sequences))
                self.scheduler.check()
            return deltas

    def _compute(self, step: Step) -> tuple[Tensor, list[int]]:
        """Carry out the plan on the tensors.

        Returns:
            The residual stream of the new tokens, and where each sequence's rows end.
        """
        if self._sanitizer is not None:
            self._sanitizer.before_copies(self._owners(self.scheduler.sequences))
        if self.host_cache is not None:
            self.cache.swap_blocks(self.host_cache, step.swaps_out)
            self.host_cache.swap_blocks(self.cache, step.swaps_in)
        self.cache.copy_blocks(step.copies)
        if not step.work:
            return torch.empty(0), []
        batch = PagedBatch.build([s.table for s, _ in step.work], self.device)
        if self._sanitizer is not None:
            owners = self._owners([s for s, _ in step.work])
            self._sanitizer.before_kernels(batch, owners, self.config.sliding_window)
        new = (s.token_ids[s.table.num_tokens : s.table.num_reserved] for s, _ in step.work)
        token_ids = torch.tensor(list(chain.from_iterable(new)), device=self.device)
        hidden = self.model.decoder.forward(token_ids, batch, self.cache, self.attention)
        return hidden, batch.query_start_loc[1:].tolist()

    # --- looking inside ------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """What every slot of the pool is doing now."""
        return Ledger.measure(list(self._tables().values()), self.pool, self.block_size)

    def snapshot(self) -> Snapshot:
        """A picture of the pool now; sequences are named request, or request.sample."""
        return Snapshot.take(self.pool, self._tables(), self.block_size)

    def _tables(self) -> dict[str, BlockTable]:
        sequences = self.scheduler.sequences
        return {_name(s): s.table for s in sequences if s.table.pool is self.pool}

    @staticmethod
    def _owners(sequences: Iterable[Sequence]) -> list[Owner]:
        return [Owner(_name(s), s.table, s.token_ids) for s in sequences]


def _name(s: Sequence) -> str:
    return s.request.request_id + (f".{s.index}" if len(s.request.sequences) > 1 else "")


def _check_sizes(**sizes: tuple[int | None, int]) -> None:
    for name, (value, least) in sizes.items():
        is_default = value is None and name in ("max_model_len", "num_blocks", "num_host_blocks")
        if not is_default and (not isinstance(value, int) or value < least):
            raise InvalidRequest(f"{name}={value!r}: must be a whole number of at least {least}")


def _device(device: torch.device | str | None) -> torch.device:
    has_cuda = torch.cuda.is_available()
    try:
        found = torch.device(device or ("cuda" if has_cuda else "cpu"))
    except RuntimeError:
        raise InvalidRequest(f"device={device!r}: must be 'cpu' or 'cuda'") from None
    if found.type == "cuda" and not has_cuda:
        raise InvalidRequest(
            f"device={device!r}: torch finds no CUDA device; `minipaged doctor` may say why"
        )
    return found


def _dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise InvalidRequest(f"dtype={dtype!r}: must be float32, bfloat16, float16 or float64")
    return found
