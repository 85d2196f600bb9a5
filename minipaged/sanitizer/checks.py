"""What the writes and reads of a batch must be like: all rows at once, only a fault costs more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from .state import State, quoted


class Accesses(NamedTuple):
    """Which sequence touches which position in which slot; all tokens of a step."""

    owners: Sequence[str]
    row: np.ndarray  # [num_tokens] which owner
    positions: np.ndarray  # [num_tokens]
    slots: np.ndarray  # [num_tokens]

    def only(self, chosen: np.ndarray) -> Accesses:
        """Those that a mask or an index picks."""
        return Accesses(self.owners, *(x[chosen] for x in self[1:]))  # type: ignore[arg-type]

    def first(self, wrong: np.ndarray) -> Iterator[tuple[str, int, int]]:
        """(owner, position, slot) of the first that is wrong, if any is."""
        for i in np.flatnonzero(wrong)[:1].tolist():
            yield self.owners[int(self.row[i])], int(self.positions[i]), int(self.slots[i])

    def by_block(self, block_size: int) -> Iterator[tuple[int, int, str, int, int]]:
        """(index, block, owner, position, slot) of each run in one block and one sequence."""
        blocks = self.slots // block_size
        starts = (np.diff(blocks, prepend=-1) != 0) | (np.diff(self.row, prepend=-1) != 0)
        for i in np.flatnonzero(starts).tolist():
            owner = self.owners[int(self.row[i])]
            yield i, int(blocks[i]), owner, int(self.positions[i]), int(self.slots[i])


def check_sizes(
    state: State,
    owners: Sequence[str],
    tables: np.ndarray,  # [num_seqs, max_blocks_per_seq]
    lens: np.ndarray,  # [num_seqs]
    starts: np.ndarray,  # [num_seqs + 1]
    slots: np.ndarray,  # [num_tokens]
) -> np.ndarray:  # [num_seqs] the number of new tokens of each
    """Sizes that do not contradict each other."""
    counts, covered = np.diff(starts), tables.shape[-1] * state.block_size
    if not len(owners) == len(tables) == len(lens) == len(counts):
        sizes = f"{len(tables)} block tables, {len(lens)} lengths and {len(counts)} query counts"
        state.fail("bad-sizes", f"{sizes} for {len(owners)} sequences")
    if starts[0] != 0 or (counts < 0).any() or starts[-1] > len(slots):
        rise = f"query_start_loc {starts.tolist()} must rise from 0 to at most {len(slots)}"
        state.fail("bad-sizes", f"{rise}, the number of slots")
    for s in np.flatnonzero((counts > lens) | (lens > covered)).tolist():
        what = f"seq_lens is {lens[s]}, {counts[s]} of them new; its block table covers {covered}"
        state.fail("short-table", f"{what} tokens (block_size {state.block_size})", owners[s])
    return counts


# --- writes ------------------------------------------------------------------------------------


def check_writes(state: State, writes: Accesses, tables: np.ndarray | None = None) -> None:
    """Every slot is the writer's, nobody else's, unpublished, and written once; then plan it.

    ``tables``, `[num_seqs, max_blocks_per_seq]`: where positions belong. Slot -1 is skipped.
    """
    writes = writes.only(writes.slots != -1)
    size, past = state.block_size, state.num_blocks * state.block_size
    for owner, position, slot in writes.first((writes.slots < 0) | (writes.slots >= past)):
        what = f"writes position {position} to slot {slot}; the pool has slots 0 to {past - 1}"
        _fail(state, "out-of-pool", what, owner, slot, position)
    for _, block_id, owner, position, slot in writes.by_block(size):
        if (fault := _forbidden(state, owner, block_id)) is not None:
            what = f"writes position {position} to {state.where(slot)}, which {fault[1]}"
            _fail(state, fault[0], what, owner, slot, position)
    for owner, position, slot in writes.first(_again(state, writes.slots)):
        what = f"writes position {position} to {state.where(slot)}, which is written already"
        _fail(state, "double-write", f"{what} in this step", owner, slot, position)
    if tables is not None:
        _check_places(state, writes, tables)
    _plan(state, writes)


def _forbidden(state: State, owner: str, block_id: int) -> tuple[str, str] | None:
    """Why somebody must not write a block."""
    names = state.holders.get(block_id, [])
    if not state.counts[block_id]:
        return "unowned-write", state.story(block_id)
    if owner not in names:
        return "unowned-write", f"{state.held(block_id)}, not the writer"
    if len(names) > 1:
        return "shared-write", f"{state.held(block_id)}: it must be copied first"
    if block_id in state.published:
        return "published-write", "is published: its hash promises what it holds"
    return None


def _again(state: State, slots: np.ndarray) -> np.ndarray:  # [num_tokens] bool
    """Writes of slots that were written in this step, by this call or an earlier one."""
    again = state.flat["step"][slots] == state.step
    order = np.argsort(slots, kind="stable")
    again[order[1:]] |= slots[order[1:]] == slots[order[:-1]]
    return again


def _check_places(state: State, writes: Accesses, tables: np.ndarray) -> None:
    size = state.block_size
    right = tables[writes.row, writes.positions // size] * size + writes.positions % size
    wrong = writes.slots != right
    for owner, position, slot in writes.first(wrong):
        place = state.where(int(right[np.flatnonzero(wrong)[0]]))
        what = f"writes position {position} to {state.where(slot)}, but its block table puts it in"
        _fail(state, "wrong-slot", f"{what} {place}", owner, slot, position)


def _plan(state: State, writes: Accesses) -> None:
    """These slots will hold these positions; they are written when ``wrote`` says so."""
    flat, slots = state.flat, writes.slots
    state.planned = np.concatenate([state.planned, slots])
    flat["layers"][slots], flat["step"][slots] = 0, state.step
    flat["position"][slots], flat["content"][slots] = writes.positions, _names(state, writes)
    flat["writer"][slots] = np.array(writes.owners, object)[writes.row]


def _names(state: State, accesses: Accesses) -> np.ndarray:  # [num_tokens] int64
    """What the histories of the sequences say; 0 where they say nothing."""
    names = np.zeros(len(accesses.row), np.int64)
    ends = np.searchsorted(accesses.row, np.arange(len(accesses.owners)), side="right").tolist()
    for start, end, owner in zip([0, *ends], ends, accesses.owners):
        history = state.histories.get(owner)
        if history is not None and start < end:
            names[start:end] = history.at(accesses.positions[start:end])
    return names


# --- reads -------------------------------------------------------------------------------------


def check_reads(
    state: State,
    owners: Sequence[str],
    tables: np.ndarray,  # [num_seqs, max_blocks_per_seq]
    lens: np.ndarray,  # [num_seqs]
    counts: np.ndarray,  # [num_seqs] queries
    window: int | None,
) -> None:
    """All that some query sees was written: by this history, at this position."""
    reads = _reads(state, owners, tables, lens, counts, window)
    flat, slots = state.flat, reads.slots
    held, right = flat["content"][slots], _names(state, reads)
    wrong = (flat["layers"][slots] < state.num_layers) & (flat["step"][slots] != state.step)
    wrong |= (flat["position"][slots] != reads.positions) | ~state.counts[slots // state.block_size]
    wrong |= (held != right) & (held != 0) & (right != 0)
    for i, block_id, owner, _, _ in reads.by_block(state.block_size):
        wrong[i] |= owner not in state.holders.get(block_id, ())
    for owner, position, slot in reads.first(wrong):
        kind, why = _reason(state, owner, position, slot)
        what = f"reads position {position} from {state.where(slot)}, which {why}"
        _fail(state, kind, what, owner, slot, position)


def _reads(
    state: State,
    owners: Sequence[str],
    tables: np.ndarray,
    lens: np.ndarray,
    counts: np.ndarray,
    window: int | None,
) -> Accesses:
    """Every slot that some query sees, through the tables."""
    size, num_columns = state.block_size, tables.shape[1]
    firsts = np.zeros_like(lens) if window is None else np.maximum(0, lens - counts - window + 1)
    num_seen = np.where(counts > 0, lens - firsts, 0)
    row = np.repeat(np.arange(len(lens)), num_seen)
    positions = np.arange(len(row)) - (np.cumsum(num_seen) - num_seen - firsts)[row]
    column = positions // size
    for owner, position, _ in Accesses(owners, row, positions, row).first(column >= num_columns):
        what = f"reads position {position}; its block table covers {num_columns * size} tokens"
        state.fail("short-table", f"{what} (block_size {size})", owner, position=position)
    blocks = tables[row, column]
    outside = (blocks < 0) | (blocks >= state.num_blocks)
    for owner, position, block_id in Accesses(owners, row, positions, blocks).first(outside):
        what = f"reads position {position} through entry {position // size} of its block table, "
        what += f"which is {block_id}; the pool has blocks 0 to {state.num_blocks - 1}"
        state.fail("out-of-pool", what, owner, position=position)
    return Accesses(owners, row, positions, blocks * size + positions % size)


def _reason(state: State, owner: str, position: int, slot: int) -> tuple[str, str]:
    """What is wrong with one read, the plainest reason first."""
    block_id, record = slot // state.block_size, state.flat[slot]
    names, story = state.holders.get(block_id, []), state.story(slot=slot)
    if not state.counts[block_id]:
        return "freed-read", story
    if owner not in names:
        return "foreign-read", f"is in a block of {quoted(names)}, not of the reader; it {story}"
    if record["layers"] < state.num_layers and record["step"] != state.step:
        return "unwritten-read", story
    if record["position"] != position:
        return "wrong-position", story
    return "wrong-content", f"{story}, after other tokens"


def _fail(state: State, kind: str, what: str, owner: str, slot: int, position: int) -> NoReturn:
    block_id = slot // state.block_size
    state.fail(kind, what, owner, block_id=block_id, slot=slot, position=position)
