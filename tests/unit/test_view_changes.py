"""What happened between two pictures, told from the pictures alone."""

from __future__ import annotations

import pytest

from minipaged.core import BlockPool, BlockTable, Snapshot, reserve, root_hash
from minipaged.view import changes


class Watch:
    """Tables of one pool; ``told`` says what changed since it was last asked."""

    def __init__(self, num_blocks: int = 8):
        self.pool, self.tables = BlockPool(num_blocks), dict[str, BlockTable]()
        self.last = self.shot()

    def shot(self) -> Snapshot:
        held = {name: table for name, table in self.tables.items() if table.block_ids}
        return Snapshot.take(self.pool, held, 4)

    def told(self) -> list[str]:
        before, self.last = self.last, self.shot()
        return [f"{change.kind}: {change.text}" for change in changes(before, self.last)]

    def new(self, name: str, root: bytes | None = None) -> BlockTable:
        self.tables[name] = table = BlockTable(self.pool, 4, root)
        return table


@pytest.fixture
def watch():
    return Watch()


def test_nothing(watch):
    assert watch.told() == []


def test_reserving_and_committing(watch):
    a = watch.new("A", root_hash())
    a.reserve(5)
    assert watch.told() == [
        "allocated: blocks 0, 1 for A",
        "promised: positions 0-4 of A get slots in blocks 0, 1",
    ]
    a.commit(range(5))
    assert watch.told() == ["written: positions 0-4 of A", "published: block 0 as #637131"]
    a.reserve(1)
    assert watch.told() == ["promised: position 5 of A gets a slot in block 1"]
    a.cancel()
    assert watch.told() == []


def test_a_fork_and_its_copies(watch):
    a = watch.new("A")
    a.reserve(2)
    a.commit([1, 2])
    watch.told()
    watch.tables["B"] = b = a.fork()
    assert watch.told() == ["shared: block 0 by A and B"]
    reserve([a, b], [1, 1])
    assert watch.told() == [
        "copied: block 0 to 1, for A",
        "promised: position 2 of A gets a slot in block 1",
        "promised: position 2 of B gets a slot in block 0",
    ]


def test_leaving_being_found_and_being_evicted(watch):
    a = watch.new("A", root_hash())
    a.reserve(5)
    a.commit(range(5))
    watch.told()
    a.release()
    assert watch.told() == [
        "released: block 0 by A: cached, still found by prefix",
        "released: block 1 by A: blank",
    ]
    b = watch.new("B", root_hash())
    b.match_prefix(range(5))
    assert watch.told() == ["found: block 0 by prefix, cached until now: held by B"]
    b.release()
    watch.told()
    watch.new("C").reserve(32)
    assert watch.told() == [
        "evicted: block 0: its prefix #637131 is forgotten",
        "allocated: blocks 0, 1, 2, 3, 4, 5, 6, 7 for C",
        "promised: positions 0-31 of C get slots in blocks 1, 2, 3, 4, 5, 6, 7, 0",
    ]


def test_one_of_two_leaves(watch):
    a = watch.new("A")
    a.reserve(3)
    a.commit([1, 2, 3])
    watch.tables["B"] = a.fork()
    watch.told()
    a.release()
    assert watch.told() == ["released: block 0 by A: still held by B"]


def test_adopting_at_publication(watch):
    """Two computed the same prefix: the second takes the first one's block and frees its own."""
    a, b = watch.new("A", root_hash()), watch.new("B", root_hash())
    reserve([a, b], [4, 4])
    watch.told()
    a.commit(range(4))
    b.commit(range(4))
    assert watch.told() == [
        "released: block 1 by B: blank",
        "shared: block 0 by A and B",
        "written: positions 0-3 of A and B",
        "published: block 0 as #637131",
    ]


def test_truncating_and_forgetting(watch):
    a = watch.new("A", root_hash())
    a.reserve(9)
    a.commit(range(9))
    watch.told()
    a.truncate(3)
    assert watch.told() == [
        "released: block 1 by A: cached, still found by prefix",
        "released: block 2 by A: blank",
        "truncated: A from 9 to 3 tokens",
    ]
    watch.pool.forget_prefixes()
    assert watch.told() == [
        "unpublished: block 0: no longer #637131",
        "unpublished: block 1: no longer #e9bdaa",
    ]


def test_a_window_gives_blocks_up(watch):
    a = watch.new("A")
    a.reserve(9)
    a.commit(range(9))
    watch.told()
    a.drop_before(5)
    assert watch.told() == ["released: block 0 by A: blank"]


def test_a_block_that_changes_hands_at_once(watch):
    a = watch.new("A")
    a.reserve(1)
    watch.told()
    del watch.tables["A"]
    a.release()
    watch.new("B").reserve(1)
    assert watch.told() == [
        "released: block 0 by A: handed on to B",
        "promised: position 0 of B gets a slot in block 0",
    ]
