"""Faults of prefix names, of the index, of hits and of eviction; knows no judge."""

from __future__ import annotations

from hashlib import sha256

from ..specimen_pool import Pool
from .planting import OURS, pool_fault

# --- names of prefixes -------------------------------------------------------------------------


def _number(self: Pool, name: object) -> int:
    return self.numbers.setdefault(name, len(self.numbers))


NAMES = "name of a prefix"
pool_fault(
    "a block is named without what comes before it",
    NAMES,
    "nano-vllm #163",
    key=lambda self, parent, tokens: _number(self, tuple(tokens)),
)
pool_fault(
    "a block's last token is not in its name",
    NAMES,
    "TGI #3067",
    key=lambda self, parent, tokens: _number(self, (parent, tuple(tokens[:-1]))),
)
pool_fault(
    "tokens of a block are named in any order",
    NAMES,
    OURS,
    key=lambda self, parent, tokens: _number(self, (parent, tuple(sorted(tokens)))),
)
pool_fault("the salt is not in the name", NAMES, "vLLM #16016", root=lambda self, key: ("root",))
pool_fault(
    "tokens run into each other",
    NAMES,
    "vLLM #12621",
    key=lambda self, parent, tokens: _number(self, (parent, "".join(map(str, tokens)))),
)
pool_fault(
    "names are cut to 16 bits",
    NAMES,
    "LMCache #4086",
    key=lambda self, parent, tokens: hash((parent, *tokens)) % 65536,
)

pool_fault(
    "names are cut to 24 bits",
    NAMES,
    "LMCache #4086",
    key=lambda self, parent, tokens: sha256(repr((parent, *tokens)).encode()).digest()[:3],
)
pool_fault(
    "case and blanks of a salt do not count",
    NAMES,
    OURS,
    root=lambda self, key: ("root", (key or "").strip().lower()),
)
pool_fault(
    "eight characters of a salt count",
    NAMES,
    OURS,
    root=lambda self, key: ("root", (key or "")[:8]),
)
pool_fault(
    "64 characters of a salt count", NAMES, OURS, root=lambda self, key: ("root", (key or "")[:64])
)
pool_fault(
    "the last 64 characters of a salt count",
    NAMES,
    OURS,
    root=lambda self, key: ("root", (key or "")[-64:]),
)

# --- the index -----------------------------------------------------------------------------------


def _evict_keeps_entry(self: Pool, block: int) -> None:
    self.key_of.pop(block, None)


def _evict_keeps_key(self: Pool, block: int) -> None:
    if self.index.get(self.key_of.get(block)) == block:
        del self.index[self.key_of[block]]


def _evict_always_unmaps(self: Pool, block: int) -> None:
    self.index.pop(self.key_of.get(block), None)
    self.key_of.pop(block, None)


def _publish_last_wins(self: Pool, block: int, key: object) -> None:
    self.index[key] = block


def _publish_never(self: Pool, block: int, key: object) -> None:
    """Nothing is ever found."""


def _publish_some(self: Pool, block: int, key: object) -> None:
    if block != 2:
        Pool.publish(self, block, key)


def _known_over_gaps(self: Pool, tokens: list, root: object) -> list[int]:
    keys = self.keys(self.usable(tokens), root)
    return [self.index[key] for key in keys if key in self.index] if self.caching else []


def _reset_spares_held(self: Pool) -> None:
    for block in [b for b in self.key_of if self.refs[b] == 0]:
        self.evict(block)


def _reset_forgets_half(self: Pool) -> None:
    self.index.clear()


INDEX, HITS = "prefix index", "length of a hit"
pool_fault("an evicted block is still found", INDEX, "vLLM #4761", evict=_evict_keeps_entry)
pool_fault("an evicted block keeps its key", INDEX, "kvcached #362", evict=_evict_keeps_key)
pool_fault(
    "the last twin takes the entry, and keeps no key",
    INDEX,
    "nano-vllm #219",
    publish=_publish_last_wins,
)
pool_fault("nothing is ever published", INDEX, "MinivLLM #98", publish=_publish_never)
pool_fault("one block is never published", INDEX, OURS, publish=_publish_some)
pool_fault("a lookup goes on behind a gap", INDEX, "TGI #3067", known=_known_over_gaps)
pool_fault(
    "what is known but not computed is published",
    INDEX,
    "TGI #2489",
    publishable=lambda self, entry, tokens: tokens[: len(entry.table) * self.block_size],
)
pool_fault(
    "rejected drafts are published",
    INDEX,
    "vLLM #18668",
    advance=lambda self, entry, num: Pool.cut(self, entry, entry.reserved),
)
pool_fault(
    "a block is found one token too late",
    INDEX,
    "vLLM #7619",
    publishable=lambda self, entry, tokens: tokens[: max(0, entry.computed - 1)],
)
pool_fault("a reset spares what is held", INDEX, "vLLM #12284", reset=_reset_spares_held)
pool_fault("a reset forgets one of two tables", INDEX, "vLLM #28827", reset=_reset_forgets_half)
pool_fault("a reset does nothing", INDEX, "vLLM #34382", reset=lambda self: None)
pool_fault("a prompt may be found whole", HITS, "nano-vllm #144", usable=lambda self, t: t)
pool_fault(
    "the last full block is never found",
    HITS,
    "vLLM #11186",
    usable=lambda self, tokens: tokens[: -1 - self.block_size],
)

# --- the order of eviction -----------------------------------------------------------------------


def _drop_all_head_first(self: Pool, blocks: list[int]) -> None:
    for block in blocks:
        self.drop(block)


def _take_newest(self: Pool) -> int:
    newest = next(reversed(self.free_queue))
    del self.free_queue[newest]
    return newest


ORDER = "eviction order"
pool_fault(
    "the beginning of a prefix goes first", ORDER, "LMCache #443", drop_all=_drop_all_head_first
)
pool_fault(
    "the most recently used goes first", ORDER, "llm-d-inference-sim #704", next_victim=_take_newest
)
pool_fault(
    "prefixes go before blank blocks", ORDER, OURS, is_worth_keeping=lambda self, block: True
)
pool_fault(
    "prefixes in order of their number",
    ORDER,
    "vLLM #5411",
    next_victim=lambda self: (b := min(self.free_queue), self.free_queue.pop(b))[0],
)
