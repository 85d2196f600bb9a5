"""The loop: text in, text out. Joins scheduler, executor and sampler; decides nothing they do.

One step: the scheduler reserves slots, the executor carries out its copies and computes the new
tokens, the scheduler commits, and whoever has no token left to compute samples the next one.
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

from minipaged.cache import PagedBatch
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
from .devices import choose_device, choose_dtype, executor_for
from .executor import Sizes
from .intake import Intake, Params, Prompt
from .interrupts import uninterrupted
from .memory import default_bytes, num_blocks_for
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
            compiled one for the device, which for a GPU needs the extra ``cuda``.
        num_blocks: size of the pool in blocks; or
        memory: size of the pool in bytes, such as ``"1GiB"``. Neither: room for ``max_num_seqs``
            sequences of full length, but at most 1 GiB, or what a GPU has free.
        block_size: tokens per block.
        max_num_seqs: sequences computed in one step.
        max_num_batched_tokens: tokens computed in one step; longer prompts are cut into chunks.
        max_model_len: prompt plus output of one sequence; None: what the model was made for.
        prefix_caching: find and publish prefixes by hash.
        preemption: "recompute" or "swap", when the pool is too small for everyone.
        num_host_blocks: room for swapped sequences, default as many as ``num_blocks``.
        sanitize: poison slots that hold no token, and judge every read and write of every step
            before the kernels run (``SanitizerError``). Slower, and the tokens are the same.
        device, dtype: None: a GPU where there is one that can be used; float32 on a CPU, where
            "int8" takes less memory and time: weights in 8 bits, the rest in float32.

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
        home = model.decoder.device if isinstance(model, Model) else None
        self.device, self.stats = choose_device(device or home, attention), EngineStats()
        make_executor = executor_for(self.device, attention)  # fails before anything is loaded
        self.block_size, self.prefix_caching, self.sanitize = block_size, prefix_caching, sanitize
        self._load(model, choose_dtype(dtype, self.device))
        limit = self.config.max_position_embeddings
        self.max_model_len = min(max_model_len or limit, limit)
        if num_blocks is None:
            num_blocks = self._num_blocks(memory, max_num_batched_tokens, max_num_seqs)
        num_host_blocks = (num_host_blocks or num_blocks) if preemption == "swap" else None
        self.executor = make_executor(
            self.model,
            self.device,
            Sizes(num_blocks, num_host_blocks, block_size, max_num_seqs, self.max_model_len),
            attention=attention,
            sanitize=sanitize,
        )
        self.stats.compile_seconds = self.executor.compile_seconds
        self.pool, self.cache = BlockPool(num_blocks), self.executor.cache
        self.host_cache = self.executor.host_cache
        host_pool = BlockPool(num_host_blocks) if num_host_blocks else None
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
        keys = {"model": repr(self.config), "dtype": str(self.model.decoder.weight_dtype)}
        self._requests: dict[str, Request] = {}  # the unfinished ones
        self._intake = Intake(
            self.tokenizer,
            self.config.vocab_size,
            self.max_model_len,
            self.pool,
            block_size,
            keys if prefix_caching else None,
        )
        self._advancer = Advancer(self.executor, self._intake, self.scheduler)

    def _load(self, model: str | Model, dtype: torch.dtype) -> None:
        started = time.perf_counter()
        if not isinstance(model, Model):
            model = load_model(model, dtype=dtype, device=self.device)
        elif (home := model.decoder.device).type != self.device.type:
            raise InvalidRequest(f"device='{self.device}': the model given is on {home} already")
        self.model, self.tokenizer, self.config = model, model.tokenizer, model.config
        self.stats.load_seconds = time.perf_counter() - started

    def _num_blocks(self, memory: str | int | None, num_tokens: int, num_seqs: int) -> int:
        """Blocks of the pool: what fits, and by default no more than could ever be in use."""
        model = self.config, self.block_size, self.model.decoder.dtype
        if memory is not None:
            return num_blocks_for(memory, *model)
        most = default_bytes(self.device, self.config, num_tokens, num_seqs)
        return min(
            num_blocks_for(most, *model), num_seqs * -(-self.max_model_len // self.block_size)
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
            compiling = self.executor.compile_seconds - self.stats.compile_seconds
            self.stats.compile_seconds += compiling
            self.stats.spend(time.perf_counter() - started - compiling, only_decodes)
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
        self.executor.move(step)
        if not step.work:
            return torch.empty(0), []
        batch = PagedBatch.build([s.table for s, _ in step.work])
        if self._sanitizer is not None:
            owners = self._owners([s for s, _ in step.work])
            self._sanitizer.before_kernels(batch, owners, self.config.sliding_window)
        new = (s.token_ids[s.table.num_tokens : s.table.num_reserved] for s, _ in step.work)
        hidden = self.executor.forward(list(chain.from_iterable(new)), batch)
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
