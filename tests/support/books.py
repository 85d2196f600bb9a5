"""What must be true of pools and tables at every moment, written without asking their methods.

``World`` (in ``world.py``) does things; this file only looks. It reads a pool's and a table's plain
fields and works everything out again the slow way: who holds a block, what a slot should contain,
what each slot is doing, what a prefix lookup should find.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from minipaged.core import BlockPool, BlockTable, Ledger, Snapshot

from .fingerprint import Prefix

if TYPE_CHECKING:
    from .world import Place, World


def frozen(book: BlockPool | BlockTable, *ignored: str) -> tuple:
    """Every field of a pool or table as plain tuples: equal means nothing whatsoever changed."""
    return tuple((k, _solid(v)) for k, v in vars(book).items() if k not in ignored)


def _solid(value: Any) -> Any:
    if isinstance(value, OrderedDict | list):
        return tuple(value)
    if isinstance(value, dict):
        return frozenset(value.items())
    return None if isinstance(value, BlockPool) else value


def cloned(book: Any, known: dict[int, Any], **replaced: Any) -> Any:
    """An independent copy of a pool or table; what two of them share, their copies share."""
    twin = object.__new__(type(book))
    for name, value in vars(book).items():
        if isinstance(value, list | dict):
            value = known.setdefault(id(value), value.copy())
        setattr(twin, name, value)
    vars(twin).update(replaced)
    return twin


def claims(world: World, place: Place) -> dict[int, Prefix]:
    """Slot -> what it must hold, by the tables' and by the prefix index's word.

    Two of them may claim one slot only for one and the same prefix: two sequences share a slot only
    if they agree on *every* token up to it, and on the salt.
    """
    size, claimed = world.block_size, dict[int, Prefix]()
    for seq in world.at(place):
        for p in range(seq.table.num_dropped * size, seq.table.num_tokens):
            slot = seq.table.block_ids[p // size] * size + p % size
            _claim(claimed, slot, world.prefix(seq, p), f"{seq.name} at position {p}")
    for block_id, prefix_hash in enumerate(place.pool.prefix_hash):
        if prefix_hash is not None:
            name = world.names.get(prefix_hash)
            assert name, f"block {block_id} is published before its tokens were committed"
            begin = len(name.tokens) - size
            for offset in range(size):
                prefix = name._replace(tokens=name.tokens[: begin + offset + 1])
                _claim(claimed, block_id * size + offset, prefix, "the prefix index")
    return claimed


def _claim(claimed: dict[int, Prefix], slot: int, prefix: Prefix, who: str) -> None:
    other = claimed.setdefault(slot, prefix)
    assert other == prefix, f"{who} expects {prefix} in slot {slot}, another {other}"


def check_books(world: World, place: Place) -> None:
    """Every block has exactly the holders it counts, and the books agree with themselves."""
    place.pool.check()
    holders = [0] * place.pool.num_blocks
    for seq in world.at(place):
        table = seq.table
        table.check()
        for block_id in table.block_ids[table.num_dropped :]:
            holders[block_id] += 1
        waste = (len(table.block_ids) * world.block_size) - table.num_reserved
        assert 0 <= waste < world.block_size, f"{seq.name} wastes {waste} slots"
    counts = place.pool.ref_count
    assert holders == counts, f"the blocks' holders are {holders}, the pool counts {counts}"
    names = [world.names.get(h) for h in place.pool.prefix_hash if h is not None]
    assert len(set(names)) == len(names), "one prefix is published twice"


def check_ledger(world: World, place: Place) -> Counter[str]:
    """The ledger says of all slots together what looking at each of them says."""
    truth = classify(world, place)
    tables = [seq.table for seq in world.at(place)]
    ledger = Ledger.measure(tables, place.pool, world.block_size)
    told = {name: getattr(ledger, name) for name in Ledger.__slots__ if getattr(ledger, name)}
    assert told == dict(+truth), f"the ledger says {told}, the slots say {dict(truth)}"
    assert ledger.num_slots == place.pool.num_blocks * world.block_size
    held = sum(truth[k] for k in ("live", "shared", "reserved", "tail_waste"))
    assert ledger.waste == (truth["tail_waste"] / held if held else 0)
    if not world.window_used:
        assert not ledger.orphaned, "a prefix was evicted before the longer ones that need it"
    return truth


def classify(world: World, place: Place) -> Counter[str]:
    """What each slot is doing, one slot at a time."""
    kinds, size = Counter[str](), world.block_size
    published = published_prefixes(world, place)
    for block_id in range(place.pool.num_blocks):
        holders = [
            (seq.table, seq.table.block_ids.index(block_id) * size)
            for seq in world.at(place)
            if block_id in seq.table.block_ids
        ]
        prefix_hash = place.pool.prefix_hash[block_id]
        for offset in range(size):
            writers = sum(t.num_tokens > start + offset for t, start in holders)
            if writers:
                kinds["shared" if writers > 1 else "live"] += 1
                kinds["saved"] += writers - 1
            elif any(t.num_reserved > start + offset for t, start in holders):
                kinds["reserved"] += 1
            elif holders:
                kinds["tail_waste"] += 1
            elif prefix_hash is not None:
                kinds["cached" if _reachable(world, prefix_hash, published) else "orphaned"] += 1
            else:
                kinds["free" if place.pool.is_free(block_id) else "reserved"] += 1
    return kinds


def published_prefixes(world: World, place: Place) -> dict[Prefix, int]:
    """What a lookup could find: prefix -> block."""
    hashes = enumerate(place.pool.prefix_hash)
    return {world.names[h]: block_id for block_id, h in hashes if h is not None}


def longest_known(world: World, place: Place, whole: Prefix) -> list[int]:
    """The blocks a lookup must find: as far as there are any, but one token must be left over."""
    if whole.salt is None:
        return []
    published, found = published_prefixes(world, place), []
    for end in range(world.block_size, len(whole.tokens), world.block_size):
        block_id = published.get(whole._replace(tokens=whole.tokens[:end]))
        if block_id is None:
            break
        found.append(block_id)
    return found


def _reachable(world: World, prefix_hash: bytes, published: dict[Prefix, int]) -> bool:
    name, size = world.names[prefix_hash], world.block_size
    ends = range(size, len(name.tokens), size)
    return all(name._replace(tokens=name.tokens[:end]) in published for end in ends)


def check_snapshot(world: World, place: Place) -> None:
    """A picture shows what is there."""
    tables = {seq.name: seq.table for seq in world.live}
    shot = Snapshot.take(place.pool, tables, world.block_size)
    here = world.at(place)
    assert [view.name for view in shot.tables] == [seq.name for seq in here]
    free = [b for b in range(place.pool.num_blocks) if place.pool.is_free(b)]
    assert sorted(shot.free_order) == free
    for block_id in range(place.pool.num_blocks):
        owners = [seq.name for seq in here if block_id in seq.table.block_ids]
        assert list(shot.owners(block_id)) == owners
