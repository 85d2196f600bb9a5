"""What a run cost, counted while it runs; prints one line, estimates nothing."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minipaged.core import Ledger, Snapshot
    from minipaged.engine.llm import LLM

_LOOK_AGAIN = 8  # steps between two measurements of an equally full pool
_GROWTH = 1.01  # of the held blocks that is worth a measurement: it takes O(blocks) time


class Meter:
    """Remembers the moment at which the pool was fullest.

    Args:
        llm: the engine, before the run.
        with_picture: also keep a snapshot of that moment.
    """

    def __init__(self, llm: LLM, with_picture: bool = False):
        self.llm, self.with_picture = llm, with_picture
        self.before = copy(llm.stats)
        self.ledger: Ledger | None = None
        self.snapshot: Snapshot | None = None
        self._most_held = self._age = 0

    def look(self) -> None:
        """After a step: measure, if the pool was never as full."""
        held, self._age = self.llm.pool.num_blocks - self.llm.pool.num_free, self._age + 1
        is_fuller = held > self._most_held * _GROWTH
        if is_fuller or (held >= self._most_held and held and self._age >= _LOOK_AGAIN):
            self.ledger, self._most_held, self._age = self.llm.ledger(), held, 0
            if self.with_picture:
                self.snapshot = self.llm.snapshot()

    def line(self) -> str:
        """The closing line."""
        stats, pool = self.llm.stats.since(self.before), self.llm.pool
        num_bytes = stats.peak_blocks * self.llm.cache.bytes_per_block
        parts = [
            f"prompt {stats.prompt_tokens_computed:,} computed + {stats.prompt_tokens_cached:,} "
            f"cached, {_rate(stats.prompt_tokens_computed, stats.prefill_seconds)}",
            f"generated {stats.tokens_generated:,}, decode "
            f"{_rate(stats.decode_tokens, stats.decode_seconds)}",
            f"peak {stats.peak_blocks:,} of {pool.num_blocks:,} blocks ({_size(num_bytes)})",
        ]
        if self.ledger is not None:
            ledger = self.ledger
            parts.append(
                f"slots {ledger.shared:,} shared, {ledger.tail_waste:,} wasted ({ledger.waste:.1%})"
            )
        if stats.blocks_copied:
            parts.append(f"{stats.blocks_copied:,} copied")
        if stats.num_preemptions:
            parts.append(
                f"{stats.num_preemptions:,} preempted, {stats.tokens_recomputed:,} tokens again"
            )
        parts.append(f"load {stats.load_seconds:.2f} s, compile {stats.compile_seconds:.2f} s")
        return " | ".join(parts)


def _rate(num_tokens: int, seconds: float) -> str:
    if not num_tokens or not seconds:
        return "- tok/s"
    rate = num_tokens / seconds
    return f"{rate:,.0f} tok/s" if rate >= 100 else f"{rate:.1f} tok/s"


def _size(num_bytes: int) -> str:
    """Bytes in binary units.

    Examples:
        >>> _size(0), _size(1536), _size(5 * 2**30)
        ('0 B', '1.5 KiB', '5.0 GiB')
    """
    size, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
