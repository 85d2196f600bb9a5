"""What an adapter must be able to do, for pools and for schedulers; knows no judge.

An adapter is written for a manager in 20 to 40 lines, and a *factory* makes one per program:
``make(size: Size) -> adapter``. Whoever has ``step`` is taken for a scheduler. Sequences have
names, blocks have numbers from 0, and a key (a salt, an adapter's name, "" for none) keeps equal
tokens apart. A key of None, used only under ``ManagerContract(opt_out=True)``, means: this one
neither finds nor publishes prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Copies = Iterable[tuple[int, int]]
"""(source, destination) of whole blocks, all read before any is written."""


class PoolAdapter(Protocol):
    """A block pool with block tables. Optional methods are listed in ``OPTIONAL_POOL``."""

    def add(self, name: str, tokens: list[int], key: str | None, num_new: int) -> int | None:
        """Open a sequence: adopt the known beginning of ``tokens``, reserve slots for the next
        ``num_new`` tokens behind it (fewer, if there are fewer).

        Returns:
            How many tokens need no computing; None: no room, and nothing was changed.
        """  # noqa: D205
        ...

    def reserve(self, work: list[tuple[str, list[int], int]]) -> Copies | None:
        """Slots for the next tokens of several sequences, for all or for none.

        ``work`` holds each sequence's name, all its known tokens, and how many more of them are
        computed in this step.

        Returns:
            The copies to carry out before the step writes; None: no room, nothing was changed.
        """
        ...

    def commit(self, name: str, tokens: list[int], num_computed: int) -> None:
        """K and V of the first ``num_computed`` of all known ``tokens`` are written and stay.

        Fewer than were reserved: the end of a draft was rejected.
        """
        ...

    def free(self, name: str) -> None:
        """The sequence ends, in whatever state."""
        ...

    def tables(self) -> Mapping[str, Sequence[int]]:
        """The block ids of everyone who holds any; -1 where a sliding window has passed."""
        ...

    def num_free(self) -> int:
        """Blocks that could be handed out now, those of cached prefixes included."""
        ...


HOST_FREE = "num_host_free() -> host blocks that could be handed out; that none of the host is lost"
OPTIONAL_POOL = {
    "check": "check(); the manager's own look at its books between two steps, raises if wrong",
    "slots": "slots(name, start, stop) -> the slots of these positions",
    "find": "find(tokens, key) -> tokens that are known; a look that changes nothing",
    "fork": "fork(name, child) -> copies or None; a second sequence with the same tokens",
    "truncate": "truncate(name, num_tokens); forget the newest tokens",
    "cancel": "cancel(name); undo the open reservation, the step will not happen",
    "slide": "slide(name, position); nobody will look before this position",
    "reset": "reset(); forget all prefixes (False: not now, somebody is running)",
    "swap_out": "swap_out(names) -> copies to the host, or None; also swap_in, host_tables",
    "num_host_free": HOST_FREE,
}
OPTIONAL_SCHEDULER = {
    "check": "check(); the manager's own look at its books between two steps, raises if wrong",
    "reset": "reset(); forget all prefixes (False: not now, somebody is running)",
    "abort": "abort(name); take it out, in whatever state it is",
    "retry": "retry(); sampling failed, whoever got no token computes its last one again",
    "rollback": "rollback(); the step that was planned has failed",
    "host_tables": "host_tables() -> block ids of those who are swapped out",
    "num_host_free": HOST_FREE,
}


@dataclass
class Plan:
    """What one step computes. The block tables are asked for separately, after planning."""

    work: list[tuple[str, int, int]]  # name, first position, position behind the last
    copies: Copies = field(default_factory=list)
    swaps_out: Copies = field(default_factory=list)  # device block -> host block, first of all
    swaps_in: Copies = field(default_factory=list)  # host block -> device block, then


class SchedulerAdapter(Protocol):
    """A scheduler over its pool. Optional methods are listed in ``OPTIONAL_SCHEDULER``."""

    def add(
        self, name: str, tokens: list[int], max_tokens: int, key: str | None, num_samples: int
    ) -> None:
        """Queue a request; one that could never be served raises one of the contract's refusals.

        ``num_samples`` is more than 1 only if the contract says ``samples``.
        """
        ...

    def step(self) -> Plan:
        """Decide what is computed now, and reserve the slots for it."""
        ...

    def feed(self, tokens: dict[str, list[int]]) -> Iterable[str]:
        """The step was computed. Everyone whose last known token was in it gets the next one.

        A request of several samples gets several tokens the first time: the first is its own, the
        i-th is for a fork of it, from then on called ``name/i``.

        Returns:
            The names of those that are finished now.
        """
        ...

    def tables(self) -> Mapping[str, Sequence[int]]:
        """The block ids of everyone who holds any; -1 where a sliding window has passed."""
        ...

    def num_free(self) -> int:
        """Blocks that could be handed out now, those of cached prefixes included."""
        ...
