"""Faults of swapping, planted into the adapters of our own managers; knows no judge.

The specimen has no host pool. ``check`` is taken away: the judge alone has to see them.
"""

from __future__ import annotations

from ..ours import CORE, SCHEDULER, CoreAdapter, SchedulerAdapter
from .planting import FAULTS, OURS, Fault


def _abort_out_of_sight(self: SchedulerAdapter, name: str) -> None:
    sequence = self.by_name.pop(name)
    if sequence in self.scheduler.waiting:
        self.scheduler.waiting.remove(sequence)
    else:
        self.scheduler.remove(sequence)


def _free_out_of_sight(self: CoreAdapter, name: str) -> None:
    if self.by_name[name].pool is self.pool:
        self.by_name[name].release()
    self.by_name.pop(name, None)


def _commit_keeps_shared_twin(self: CoreAdapter, name: str, tokens: list[int], num: int) -> None:
    table = self.by_name[name]
    shared = {i: b for i, b in enumerate(table.block_ids) if table.pool.ref_count[b] > 1}
    table.commit(tokens, num)
    for i, own in shared.items():
        twin = table.block_ids[i : i + 1]
        if twin and twin != [own]:
            table.pool.share(own)
            table.pool.release(twin[0])
            table.block_ids[i] = own


LEAK = "double free, leak"
FAULTS += [
    Fault(
        "an abort of one that is swapped out keeps its host blocks",
        LEAK,
        OURS,
        {"abort": _abort_out_of_sight, "check": None},
        base=SchedulerAdapter,
        contract=SCHEDULER,
    ),
    Fault(
        "an end on the host keeps its host blocks",
        LEAK,
        OURS,
        {"free": _free_out_of_sight, "check": None},
        base=CoreAdapter,
        contract=CORE,
    ),
    Fault(
        "siblings that share a twin keep it beside the published one",
        "prefix index",
        OURS,
        {"commit": _commit_keeps_shared_twin, "check": None},
        base=CoreAdapter,
        contract=CORE,
    ),
]
