"""What a block manager promises, and how large the one is that we ask for; knows no manager."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

_LONG = "k" * 64
ALIKE = ("x", "X", "x ", " x", "abcdefgh1", "abcdefgh2")
ALIKE += (f"{_LONG}1", f"{_LONG}2", f"1{_LONG}", f"2{_LONG}")
"""Salts that are taken for one another where case or blanks are dropped, or where one is cut."""


@dataclass(frozen=True)
class Size:
    """The manager we ask for: pools are tiny, so that every border is near.

    Attributes:
        num_blocks: All blocks, those that the manager reserves for itself included.
        block_size: Tokens per block.
        budget: Tokens per step (schedulers only).
        max_seqs: Sequences per step (schedulers only).
        num_host_blocks: A second pool to swap to; 0: none.
        window: Positions a query sees (schedulers only); None: all.
        headroom: Blocks that a new request leaves free while others run (schedulers only).
        cache: Whether prefixes are to be cached.
    """

    num_blocks: int = 4
    block_size: int = 2
    budget: int = 64
    max_seqs: int = 16
    num_host_blocks: int = 0
    window: int | None = None
    headroom: int = 0
    cache: bool = True

    def __str__(self) -> str:
        more = f", budget {self.budget}, at most {self.max_seqs} sequences per step"
        host = f", {self.num_host_blocks} blocks on the host" if self.num_host_blocks else ""
        window = f", window {self.window}" if self.window else ""
        window += f", headroom {self.headroom}" if self.headroom else ""
        cache = "" if self.cache else ", prefixes are not cached"
        head = f"{self.num_blocks} blocks of {self.block_size} tokens"
        return (
            head + (more if self.budget < 64 or self.max_seqs < 16 else "") + host + window + cache
        )


def _promise(default: Any, otherwise: str) -> Any:
    """A field of the contract; ``otherwise`` says what is not judged if it is not promised."""
    return field(default=default, metadata={"otherwise": otherwise})


@dataclass(frozen=True)
class ManagerContract:
    """What the manager promises; the default is everything. It is judged by this and no more.

    Whole features (fork, truncate, cancel, slide, reset, swap, rollback, find) need no field: a
    manager has the method or has not.

    Examples:
        >>> ManagerContract(eviction="any").not_promised()
        ['eviction=any: which prefix is evicted first was not judged']
    """

    prefix_cache: bool = _promise(True, "hits were not expected")
    keys: tuple[str, ...] = _promise(("", "x"), "these salts and adapters were used, no others")
    opt_out: bool = _promise(False, "")
    cache_off: bool = _promise(False, "")
    reserved_blocks: int = _promise(0, "so many blocks may never be handed out")
    min_blocks: int = _promise(3, "smaller pools were not tried")
    min_block_size: int = _promise(1, "smaller blocks were not tried")
    deduplicates: bool = _promise(True, "a prefix may lie in two blocks")
    shares_in_step: bool = _promise(False, "a step may read what the same step writes")
    rewrites: bool = _promise(False, "what is shared may be written again with the same bytes")
    eviction: str = _promise("lru", "which prefix is evicted first was not judged")
    tail_first: bool = _promise(True, "the beginning of a prefix may be evicted before its end")
    blank_first: bool = _promise(True, "prefixes may be evicted while blank blocks are left")
    exact_tables: bool = _promise(True, "a table may hold blocks for tokens of a later step")
    exact_room: bool = _promise(True, "refusals for lack of room were not judged")
    whole_steps: bool = _promise(True, "steps of several running sequences were not tried")
    pins_sources: bool = _promise(True, "a copy's source may be handed out in the same step")
    fewest_copies: bool = _promise(True, "a fork may copy more than the last writer spares")
    free_twice: bool = _promise(True, "freeing twice was not tried")
    drafts: bool = _promise(True, "rejected drafts were not tried")
    samples: bool = _promise(False, "")
    windows: bool = _promise(False, "")
    refuses_impossible: bool = _promise(True, "only requests that fit an empty pool were sent")
    fills_pool: bool = _promise(True, "no request was sent that fills the pool to its last slot")
    refusals: tuple[type[Exception], ...] = _promise((ValueError,), "these exceptions are refusals")
    decodes_in_budget: bool = _promise(True, "steps of decodes alone may exceed the token budget")
    max_idle_steps: int = _promise(0, "so many steps in a row may do nothing")
    max_decode_wait: int | None = _promise(8, "how long a decode may wait for prompts")
    max_overtakes: int | None = _promise(6, "how many younger ones may pass a waiting one")
    oldest_progresses: bool = _promise(True, "the oldest running one may be left out of a step")
    preempts_newest: bool = _promise(True, "anybody may be preempted")
    preempts_late: bool = _promise(True, "preemptions without need were not judged")
    work_conserving: bool = _promise(True, "a running one may be left out though there is budget")
    waits_for_prefix: bool = _promise(False, "")
    headroom: bool = _promise(False, "")
    admits_what_fits: bool | str = _promise(True, "one may wait though it fits (whole: if cut)")

    def not_promised(self) -> list[str]:
        """One sentence for everything that this contract leaves out."""
        sentences = []
        for entry in fields(self):
            value, otherwise = getattr(self, entry.name), entry.metadata["otherwise"]
            is_less = value != entry.default and not self._is_stricter(entry.name, value)
            if is_less and otherwise:
                sentences.append(f"{entry.name}={value}: {otherwise}")
        return sentences

    def _is_stricter(self, name: str, value: Any) -> bool:
        """Whether more is promised than the default."""
        if name == "keys":
            return len(value) > 1
        default = type(self).__dataclass_fields__[name].default
        return name.startswith("max_") and value is not None and value < default
