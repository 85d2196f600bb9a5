"""Sessions of changing lengths, tables and data, padded to buckets or not; knows no law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .contracts import ReplayContract


@dataclass(frozen=True)
class Step:
    """What holds during some runs.

    Attributes:
        lens: Length of every sequence, 0 for one of padding.
        queries: Queries of every sequence.
        runs: How often it is run.
        tables: Seed of the placement of blocks.
        data: Seed of queries, keys and values.
    """

    lens: tuple[int, ...]
    queries: tuple[int, ...]
    runs: int = 1
    tables: int = 0
    data: int = 0

    def is_planned_after(self, other: Step) -> bool:
        """True if going on from `other` needs a plan."""
        before = other.lens, other.queries, other.tables
        return (self.lens, self.queries, self.tables) != before


@dataclass(frozen=True)
class ReplayCase:
    """One session; `in_place` is whether its tensors are the same ones all along."""

    steps: tuple[Step, ...]
    in_place: bool = False

    def __str__(self) -> str:
        lens = " then ".join(str(list(step.lens)) for step in self.steps)
        return f"lengths {lens}" + (", in the same tensors" if self.in_place else "")

    def picture(self, number: int) -> str:
        """The session as a table."""
        lines = ["step  runs  tables  data  queries           lengths"]
        for i, step in enumerate(self.steps):
            mark = "  <- wrong here" if i == number else ""
            queries = ",".join(map(str, step.queries))
            facts = f"{i + 1:>4}  {step.runs:>4}  {step.tables:>6}  {step.data:>4}  {queries:<16}"
            lines.append(f"{facts}  {','.join(map(str, step.lens))}{mark}")
        return "\n".join(lines)


class Batch(NamedTuple):
    """The tensors of a step, as the native convention has them."""

    block_tables: Tensor
    seq_lens: Tensor
    query_start_loc: Tensor
    query: Tensor
    key_cache: Tensor
    value_cache: Tensor

    @classmethod
    def build(cls, step: Step, contract: ReplayContract) -> Batch:
        """Blocks of a random permutation; poison in every slot of no token."""
        size, rng = contract.block_size, np.random.default_rng([step.tables, 1])
        free = iter(rng.permutation(contract.num_blocks).tolist())
        tables = np.full((len(step.lens), contract.max_blocks), -1, np.int32)
        shape = contract.num_blocks, size, contract.num_kv_heads, contract.head_dim
        poison = {"nan": np.nan, "big": 1e3}[contract.poison]
        caches, data = (
            [np.full(shape, poison) for _ in range(2)],
            np.random.default_rng([step.data, 2]),
        )
        for s, length in enumerate(step.lens):
            for position in range(length):
                if position % size == 0:
                    tables[s, position // size] = next(free)
                place = tables[s, position // size], position % size
                for cache in caches:
                    cache[place] = data.standard_normal(shape[2:])
        starts = np.concatenate([[0], np.cumsum(step.queries)]).astype(np.int32)
        query = data.standard_normal((int(starts[-1]), contract.num_heads, contract.head_dim)) * 2
        metadata = torch.from_numpy(tables), torch.tensor(step.lens, dtype=torch.int32)
        numbers = (torch.from_numpy(x).to(contract.dtype) for x in (query, *caches))
        return cls(*metadata, torch.from_numpy(starts), *numbers)

    @property
    def metadata(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `plan` is given."""
        return self[:3]

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        """What `run` is given."""
        return self[3:]

    def to(self, device: str) -> Batch:
        """The same elsewhere."""
        return Batch(*(x.to(device) for x in self))

    def follow(self, new: Batch) -> Batch:
        """The new contents in the old tensors, where the shapes allow."""
        pairs = zip(self, new)
        return Batch(*(old.copy_(x) if old.shape == x.shape else x for old, x in pairs))

    def sequence_of(self, row: int) -> int:
        """The sequence that a query row belongs to."""
        return int((self.query_start_loc.cpu() <= row).sum()) - 1

    def is_real(self, row: int) -> bool:
        """False for a row of padding."""
        return int(self.seq_lens[self.sequence_of(row)]) > 0

    def real_rows(self) -> list[int]:
        """Query rows of sequences that are no padding."""
        return [t for t in range(len(self.query)) if self.is_real(t)]

    def rows(self, contract: ReplayContract) -> list[int]:
        """Query rows that a law speaks of."""
        return list(range(len(self.query))) if contract.padding == "zero" else self.real_rows()


def _step(lens: tuple[int, ...], contract: ReplayContract, **facts: Any) -> Step:
    """One query per sequence, and the batch padded where it must be."""
    if contract.mode == "capture":
        lens = (*lens, *[0] * (contract.max_seqs - len(lens)))
        if contract.padding == "not given":
            lens = tuple(length or 1 for length in lens)
    lens = lens if contract.padding != "not given" else tuple(x for x in lens if x)
    return Step(lens, (1,) * len(lens), **facts)


def directed_cases(contract: ReplayContract) -> Iterator[ReplayCase]:
    """Sessions in which replays went wrong before."""
    end = min(contract.max_blocks * contract.block_size, 29)
    longest = end, end - 3
    sessions: list[list[tuple[tuple[int, ...], dict[str, Any]]]] = [
        [((5,), {"runs": 3})],
        [((5, 2), {"runs": 12})],
        [((3,), {}), ((9,), {})],  # a length that grows
        [((9,), {}), ((3,), {})],
        [((3, 9), {}), ((9, 3), {}), ((3, 9), {})],  # sum and maximum stay
        [((6, 6), {}), ((5, 6), {}), ((6, 6), {})],
        [((7, 5), {}), ((7, 5), {"tables": 1}), ((7, 5), {"tables": 2, "data": 1})],
        [((7, 5), {"runs": 2}), ((7, 5), {"data": 1, "runs": 2}), ((7, 5), {"runs": 2})],
        [(longest, {"runs": 2}), ((1, 1), {"runs": 2}), (longest, {})],  # what a long one left over
        [((1, 1), {}), ((2, 2), {}), ((3, 3), {}), ((4, 4), {}), ((5, 5), {}), ((6, 6), {})],
        [((8, 2, 3, 4), {}), ((8,), {}), ((1, 2), {}), ((4, 3, 2, 8), {})],  # the batch changes
        [((8, 0, 3, 0), {"runs": 2}), ((0, 0, 0, 0), {}), ((1, 9, 0, 4), {}), ((8, 0, 3, 0), {})],
        [((0, 0, 0, 0), {}), ((5, 9, 2, 7), {"runs": 2})],  # captured with a zeroed buffer
        [((1, 1, 1, 1), {}), ((17, 2, 9, 4), {}), ((3, 25, 1, 8), {}), ((17, 2, 9, 4), {})],
    ]
    for session in sessions:
        steps = tuple(
            _step(lens[: contract.max_seqs], contract, **facts) for lens, facts in session
        )
        steps = tuple(step for step in steps if step.lens)
        if contract.mode == "plan, run":
            yield ReplayCase(steps)
        yield ReplayCase(steps, in_place=True)
    if contract.queries == "ragged" and contract.mode == "plan, run":
        ragged = ((5, 9), (5, 2)), ((5, 9), (1, 6)), ((9, 5), (3, 4)), ((5, 9), (5, 2))
        steps = tuple(Step(lens, queries, runs=2) for lens, queries in ragged)
        yield ReplayCase(steps)
        yield ReplayCase(steps, in_place=True)


def random_cases(contract: ReplayContract) -> Any:
    """A Hypothesis strategy; few steps of few short sequences is what it shrinks to."""
    from hypothesis import strategies as st

    longest = (
        min(contract.max_blocks, contract.num_blocks // contract.max_seqs) * contract.block_size
    )
    length = st.integers(0 if contract.padding != "not given" else 1, longest)

    @st.composite
    def steps(draw: Any) -> Step:
        size = (
            contract.max_seqs
            if contract.mode == "capture"
            else draw(st.integers(1, contract.max_seqs))
        )
        lens = tuple(draw(st.lists(length, min_size=size, max_size=size)))
        step = Step(
            lens,
            (1,) * size,
            draw(st.integers(1, 2)),
            draw(st.integers(0, 2)),
            draw(st.integers(0, 2)),
        )
        if contract.queries == "ragged" and contract.mode == "plan, run":
            counts = tuple(draw(st.integers(1, max(1, min(n, 5)))) for n in lens)
            return replace(step, queries=counts)
        return step

    return st.builds(
        ReplayCase,
        st.lists(steps(), min_size=1, max_size=4).map(tuple),
        st.booleans().map(lambda flag: flag or contract.mode == "capture"),
    )
