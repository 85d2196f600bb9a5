"""What happened between two snapshots, in words; sees only the two pictures, not the calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from minipaged.core import Snapshot, TableView


@dataclass(frozen=True)
class Change:
    """One thing that happened; ``kind`` is one word, for colours and tests."""

    kind: str
    text: str
    block_ids: tuple[int, ...] = field(default=(), compare=False)  # where; the text says it too


def changes(before: Snapshot, after: Snapshot) -> list[Change]:
    """Everything that is different in ``after``, in the order in which it must have happened.

    Examples:
        >>> from minipaged.core import BlockPool, BlockTable
        >>> pool = BlockPool(num_blocks=3)
        >>> table = BlockTable(pool, block_size=4)
        >>> empty = Snapshot.take(pool, {"A": table}, block_size=4)
        >>> table.reserve(6)
        []
        >>> for change in changes(empty, Snapshot.take(pool, {"A": table}, block_size=4)):
        ...     print(f"{change.kind:<10} {change.text}")
        allocated  blocks 0, 1 for A
        promised   positions 0-5 of A get slots in blocks 0, 1
    """
    old = {table.name: table for table in before.tables}
    copies = dict(_copies(before, after, old))
    return [
        *_given_up(before, after, copies),
        *_evicted(before, after),
        *_found(before, after),
        *_allocated(before, after, copies),
        *(
            Change("copied", f"block {source} to {copy}, for {name}", (copy,))
            for copy, (source, name) in copies.items()
        ),
        *_shared(before, after),
        *_progress(after, old),
        *_published(before, after),
    ]


def _copies(
    before: Snapshot, after: Snapshot, old: dict[str, TableView]
) -> Iterator[tuple[int, tuple[int, str]]]:
    """Destination -> source and owner: a table's entry that moved to a block that was free."""
    for table in after.tables:
        known = old[table.name].block_ids if table.name in old else ()
        for source, block_id in zip(known, table.block_ids):
            if source != block_id and source >= 0 <= block_id and not before.ref_counts[block_id]:
                yield block_id, (source, table.name)


def _given_up(
    before: Snapshot, after: Snapshot, copies: dict[int, tuple[int, str]]
) -> Iterator[Change]:
    """Who no longer holds what, and what became of it."""
    held, sources = _owners(after), set(copies.values())
    kept: dict[tuple[str, str], list[int]] = {}
    for block_id, owners in _owners(before).items():
        gone = [o for o in owners if o not in held.get(block_id, ())]
        gone = [o for o in gone if (block_id, o) not in sources]
        if gone:
            fate = _fate(after, block_id, held.get(block_id, ()), owners)
            kept.setdefault((_and(gone), fate), []).append(block_id)
    for (gone, fate), ids in kept.items():
        yield Change("released", f"{_blocks(ids)} by {gone}: {fate}", tuple(ids))


def _fate(after: Snapshot, block_id: int, heirs: Collection[str], owners: Collection[str]) -> str:
    if heirs:
        return f"{'still held by' if set(heirs) & set(owners) else 'handed on to'} {_and(heirs)}"
    if block_id not in after.free_order:
        return "the source of a copy to come"
    return "cached, still found by prefix" if after.prefixes[block_id] else "blank"


def _evicted(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for block_id, (was, now) in enumerate(zip(before.prefixes, after.prefixes)):
        if was and was != now:
            if after.num_evictions > before.num_evictions and not before.ref_counts[block_id]:
                text = f"block {block_id}: its prefix #{was} is forgotten"
                yield Change("evicted", text, (block_id,))
            else:
                yield Change("unpublished", f"block {block_id}: no longer #{was}", (block_id,))


def _found(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    ids: dict[str, list[int]] = {}
    for block_id in _newly_held(before, after):
        if before.prefixes[block_id] and before.prefixes[block_id] == after.prefixes[block_id]:
            ids.setdefault(_and(after.owners(block_id)), []).append(block_id)
    for owners, found in ids.items():
        text = f"{_blocks(found)} by prefix, cached until now: held by {owners}"
        yield Change("found", text, tuple(found))


def _allocated(
    before: Snapshot, after: Snapshot, copies: dict[int, tuple[int, str]]
) -> Iterator[Change]:
    ids: dict[str, list[int]] = {}
    for block_id in _newly_held(before, after):
        was = before.prefixes[block_id]
        if block_id not in copies and not (was and was == after.prefixes[block_id]):
            ids.setdefault(_and(after.owners(block_id)), []).append(block_id)
    for owners, taken in ids.items():
        yield Change("allocated", f"{_blocks(taken)} for {owners}", tuple(taken))


def _shared(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    held = _owners(after)
    ids: dict[str, list[int]] = {}
    for block_id, (was, now) in enumerate(zip(before.ref_counts, after.ref_counts)):
        if now > was > 0:
            ids.setdefault(_and(held.get(block_id, ())), []).append(block_id)
    for owners, shared in ids.items():
        yield Change("shared", f"{_blocks(shared)} by {owners}", tuple(shared))


def _progress(after: Snapshot, old: dict[str, TableView]) -> Iterator[Change]:
    """How far the sequences came: slots promised, tokens written, or cut."""
    written: dict[str, list[str]] = {}
    where: dict[str, list[int]] = {}
    for table in after.tables:
        was = old.get(table.name)
        start, promised = (was.num_tokens, was.num_reserved) if was else (0, 0)
        promised = max(promised, table.num_tokens)
        if table.num_reserved > promised:
            yield _promise(table, promised, after.block_size)
        if was and table.num_tokens > start:
            positions = _positions(start, table.num_tokens)
            written.setdefault(positions, []).append(table.name)
            where.setdefault(positions, []).extend(
                _ids(table, start, table.num_tokens, after.block_size)
            )
        if table.num_tokens < start:
            yield Change("truncated", f"{table.name} from {start} to {table.num_tokens} tokens")
    for positions, names in written.items():
        ids = dict.fromkeys(where[positions])
        yield Change("written", f"{positions} of {_and(names)}", tuple(ids))


def _promise(table: TableView, start: int, size: int) -> Change:
    stop = table.num_reserved
    ids = _ids(table, start, stop, size)
    verb = "gets a slot" if stop - start == 1 else "get slots"
    text = f"{_positions(start, stop)} of {table.name} {verb} in {_blocks(ids)}"
    return Change("promised", text, tuple(ids))


def _ids(table: TableView, start: int, stop: int, size: int) -> list[int]:
    """The blocks in which these positions lie."""
    return list(dict.fromkeys(table.block_ids[p // size] for p in range(start, stop)))


def _published(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    pairs = enumerate(zip(before.prefixes, after.prefixes))
    new = {b: f"{b} as #{now}" for b, (was, now) in pairs if now and was != now}
    if new:
        text = f"block{'s' * (len(new) > 1)} {', '.join(new.values())}"
        yield Change("published", text, tuple(new))


# --- helpers ---------------------------------------------------------------------------------


def _owners(snapshot: Snapshot) -> dict[int, list[str]]:
    owners: dict[int, list[str]] = {}
    for table in snapshot.tables:
        for block_id in table.block_ids:
            if block_id >= 0:
                owners.setdefault(block_id, []).append(table.name)
    return owners


def _newly_held(before: Snapshot, after: Snapshot) -> Iterator[int]:
    for block_id, (was, now) in enumerate(zip(before.ref_counts, after.ref_counts)):
        if now and not was:
            yield block_id


def _blocks(ids: list[int]) -> str:
    return f"block{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"


def _positions(start: int, stop: int) -> str:
    return f"position {start}" if stop - start == 1 else f"positions {start}-{stop - 1}"


def _and(names: Iterable[str]) -> str:
    *most, last = list(names) or ["nobody"]
    return f"{', '.join(most)} and {last}" if most else last
