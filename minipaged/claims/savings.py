"""Counts blocks that several sequences of a request share; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from minipaged.core import BlockTable
from minipaged.engine.scheduler import Step
from minipaged.engine.sequence import Request


@dataclass(slots=True)
class Savings:
    """Blocks of the steps in which ``num_sequences`` of a request exist.

    Examples:
        >>> from minipaged.core import BlockPool
        >>> table = BlockTable(BlockPool(8), block_size=4)
        >>> table.reserve(4); table.commit([1] * 4)
        []
        >>> child = table.fork()
        >>> table.reserve(1), child.reserve(1)
        ([], [])
        >>> savings = Savings(num_sequences=2)
        >>> savings.count([table, child]); savings.without, savings.existing, savings.percent
        (4, 3, 25.0)
    """

    num_sequences: int
    without: int = 0  # blocks that would exist if nothing were shared
    existing: int = 0

    def see(self, step: Step) -> None:
        """Count a step, scheduled and not committed yet."""
        requests: dict[Request, list[BlockTable]] = {}
        for sequence, _ in step.work:
            requests.setdefault(sequence.request, []).append(sequence.table)
        for request, tables in requests.items():
            if len(request.sequences) == self.num_sequences:
                self.count(tables)

    def count(self, tables: Iterable[BlockTable]) -> None:
        """Count one request's tables."""
        block_ids = list(chain.from_iterable(table.block_ids for table in tables))
        self.without += len(block_ids)
        self.existing += len(set(block_ids))

    @property
    def percent(self) -> float:
        """Share of the blocks that need not exist."""
        return 100 * (1 - self.existing / self.without) if self.without else 0.0
