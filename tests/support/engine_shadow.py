"""An engine whose arithmetic is a shadow: the bookkeeping is real, and all K and V are checked.

    written   the K and V of a position are the fingerprint of its whole prefix and of its salt
    read      every new token looks, through the block table of the batch, at all that it may see
    logits    a pure function of the prefix, so what a request must get is known without an engine

So whatever goes wrong between the queue and the cache is seen where it happens, as a slot that
holds somebody else's prefix; and if it is not, then in the result. See ``engine_reference``.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from types import SimpleNamespace

import torch
from torch import Tensor

from minipaged.cache import KVCache, PagedBatch
from minipaged.core import prefix_hashes
from minipaged.engine.llm import LLM
from minipaged.engine.scheduler import Step
from minipaged.engine.sequence import Sequence as Seq
from minipaged.models import Model

EOS = 2
VOCAB_SIZE = 3  # 0, 1 and the end: prefixes must collide often, or nothing is in danger
MAX_MODEL_LEN = 40
Root = bytes | None


@functools.cache
def fingerprint(root: Root, tokens: tuple[int, ...]) -> float:
    """A number for one position's K: all tokens up to it and what its hash chain starts from."""
    return float(int.from_bytes(sha256(repr((root, tokens)).encode()).digest()[:6], "big"))


@functools.cache
def logits_after(tokens: tuple[int, ...]) -> Tensor:  # [VOCAB_SIZE] float64
    """What the model says after a prefix. It knows no salt: that decides who shares, no more."""
    draw = random.Random(repr(tokens))
    return torch.tensor([draw.gauss(0, 1.5) for _ in range(VOCAB_SIZE)], dtype=torch.float64)


class ShadowTokenizer:
    """One character per token. ``fuse``: how many more texts it makes before it breaks, once."""

    eos_token_ids = (EOS,)
    vocab_size = VOCAB_SIZE

    def __init__(self) -> None:
        self.fuse: int | None = None

    def encode(self, text: str) -> list[int]:
        return [int(char) for char in text]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Broken("tokenizer")
        return "".join("01."[i] for i in ids if i != EOS or not skip_special_tokens)


class Broken(Exception):
    """Raised by whatever was made to fail."""


class ShadowDecoder:
    """Checks what it reads, writes what it must, and says what a pure function says."""

    dtype = weight_dtype = torch.float64
    device = torch.device("cpu")

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.step = Step()  # what is being computed
        self.prefixes: list[tuple[int, ...]] = []  # of the rows of the last ``hidden``
        self.fail_after: int | None = None  # tokens written, of the next forward
        self.error: type[BaseException] = Broken
        self.logits_fail = False
        self.nan_for: str | None = None  # the request whose logits are NaN

    def warm_up(self, *_: object) -> float:
        return 0.0  # nothing is compiled

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, cache: KVCache, attention: Callable
    ) -> Tensor:
        plan = [(s, range(s.table.num_tokens, s.table.num_reserved)) for s, _ in self.step.work]
        known = [(s, s.token_ids[: positions.stop]) for s, positions in plan]
        new = [(s, tuple(s.token_ids[: p + 1])) for s, positions in plan for p in positions]
        assert token_ids.tolist() == [prefix[-1] for _, prefix in new], "not the tokens of the plan"
        assert batch.seq_lens.tolist() == [len(tokens) for _, tokens in known]
        values = [fingerprint(s.request.root, prefix) for s, prefix in new]
        written = len(values) if self.fail_after is None else min(self.fail_after, len(values))
        key = torch.tensor(values[:written], dtype=self.dtype).view(-1, 1, 1)
        cache.write(0, key, -key, batch.slot_mapping[:written])
        if self.fail_after is not None:
            self.fail_after = None
            raise self.error("model")
        starts = batch.query_start_loc.diff().tolist()
        for row, ((sequence, tokens), num_new) in enumerate(zip(known, starts, strict=True)):
            first = max(0, len(tokens) - num_new - self.window + 1) if self.window else 0
            check_reads(sequence, tokens, first, batch.block_tables[row].tolist(), cache)
        self.prefixes = [prefix for _, prefix in new]
        self.owners = [s.request.request_id for s, _ in new]
        return torch.arange(len(new))

    def logits(self, hidden: Tensor) -> Tensor:  # [num_rows, VOCAB_SIZE] float64
        if self.logits_fail:
            self.logits_fail = False
            raise Broken("logits")
        logits = torch.stack([logits_after(self.prefixes[row]) for row in hidden.tolist()])
        ill = [self.owners[row] == self.nan_for for row in hidden.tolist()]
        return logits.masked_fill(torch.tensor(ill)[:, None], torch.nan)


def check_reads(
    sequence: Seq, tokens: Sequence[int], first: int, block_ids: Sequence[int], cache: KVCache
) -> None:
    """Positions ``first`` and later of a sequence hold its own history, in K and in V."""
    size, root = cache.block_size, sequence.request.root
    needed = range(first, len(tokens))
    if not needed:
        return
    blocks = [block_ids[p // size] for p in needed]
    assert min(blocks) >= 0, f"{name(sequence)} has no block where it must look: {block_ids}"
    offsets = [p % size for p in needed]
    for held, sign in ((cache.key, 1), (cache.value, -1)):
        found = held[0, blocks, offsets, 0, 0].tolist()
        for p, value in zip(needed, found):
            right = sign * fingerprint(root, tuple(tokens[: p + 1]))
            assert value == right, f"{name(sequence)} reads something else at position {p}"


def name(sequence: Seq) -> str:
    return f"{sequence.request.request_id}.{sequence.index}"


class ShadowLLM(LLM):
    """An ``LLM`` over the shadow model. All sizes are small; ``options`` are those of ``LLM``.

    Args:
        window: what a query sees, as in a model with a sliding window.
        watermark: of the scheduler.
    """

    def __init__(
        self, *, window: int | None = None, watermark: float | None = None, **options
    ) -> None:
        config = SimpleNamespace(
            num_layers=1,
            num_kv_heads=1,
            head_dim=1,
            vocab_size=VOCAB_SIZE,
            max_position_embeddings=MAX_MODEL_LEN,
            sliding_window=window,
        )
        self.shadow, self.words = ShadowDecoder(window), ShadowTokenizer()
        model = Model(self.shadow, self.words, config)  # type: ignore[arg-type]
        super().__init__(model, attention=len, **{"sanitize": True} | options)
        if watermark is not None:
            self.scheduler.headroom = int(watermark * self.pool.num_blocks)
        self.names: dict[bytes, tuple[Root, tuple[int, ...]]] = {}  # what each hash stands for

    def _compute(self, step: Step):
        self.shadow.step = step
        for sequence, _ in step.work:
            self._learn_names(sequence)
        return super()._compute(step)

    # --- the laws of the cache -----------------------------------------------------------------

    def check(self) -> None:
        """Books, tables, slots and the prefix index agree; then what nobody owns is poisoned."""
        self.scheduler.check()
        size = self.block_size
        for pool, cache in ((self.pool, self.cache), (self.scheduler.host_pool, self.host_cache)):
            if pool is None or cache is None:
                continue
            owned = set[int]()
            for s in self.scheduler.sequences:
                table, tokens = s.table, s.token_ids[: s.table.num_tokens]
                if table.pool is pool:
                    first = table.num_dropped * size
                    check_reads(s, tokens, first, table.block_ids, cache)
                    owned.update(table.slots(first, table.num_tokens))
            for block_id, prefix_hash in enumerate(pool.prefix_hash):
                if prefix_hash is not None:
                    self._check_index(block_id, prefix_hash, cache)
                    owned.update(range(block_id * size, (block_id + 1) * size))
            cache.poison([i for i in range(pool.num_blocks * size) if i not in owned])

    def check_idle(self) -> None:
        """With nobody left, every block is free."""
        assert not self.has_unfinished
        assert not self.scheduler.sequences
        self.check()
        for pool in filter(None, (self.pool, self.scheduler.host_pool)):
            assert pool.num_free == pool.num_blocks, "blocks have leaked"

    def _learn_names(self, sequence: Seq) -> None:
        root, tokens = sequence.request.root, sequence.token_ids
        if root is not None:
            for i, prefix_hash in enumerate(prefix_hashes(tokens, self.block_size, root), 1):
                self.names[prefix_hash] = root, tuple(tokens[: i * self.block_size])

    def _check_index(self, block_id: int, prefix_hash: bytes, cache: KVCache) -> None:
        root, tokens = self.names[prefix_hash]
        found = cache.key[0, block_id, :, 0, 0].tolist()
        start = len(tokens) - self.block_size
        right = [fingerprint(root, tokens[: start + i + 1]) for i in range(self.block_size)]
        assert found == right, f"block {block_id} is published as {tokens}, holds something else"
