"""Plants faults into a right manager, one at a time; knows no judge.

Each is a few lines in place of one method. ``like`` names a public report of the same mistake, as
it stood when read (many are fixed since); the code here is ours. *ours*: no report is known to us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..contract import ManagerContract, Size
from ..specimen_pool import POOL, Pool
from ..specimen_scheduler import Scheduler

OURS = "ours"


@dataclass(frozen=True)
class Fault:
    """One manager with one thing wrong, the specimen if not said otherwise."""

    name: str  # what is wrong, in a sentence
    kind: str
    like: str
    changes: Mapping[str, Callable[..., Any] | None]  # method -> what stands in its place
    base: type = Pool
    contract: ManagerContract = POOL  # what it claims all the same

    @property
    def maker(self) -> Callable[[Size], Any]:
        """The faulty manager as a factory for ``check_block_manager``."""
        return type(f"Faulty{self.base.__name__}", (self.base,), dict(self.changes))  # type: ignore[return-value]


FAULTS: list[Fault] = []


def pool_fault(name: str, kind: str, like: str = OURS, **changes: Callable[..., Any]) -> None:
    """Add a fault of the pool."""
    FAULTS.append(Fault(name, kind, like, changes))


def scheduler_fault(name: str, kind: str, like: str = OURS, **changes: Any) -> None:
    """Add a fault of the scheduler."""
    FAULTS.append(Fault(name, kind, like, changes, Scheduler))
