"""A picture is frozen, and says who is where."""

import dataclasses

import pytest

from minipaged.core import BlockPool, BlockTable, Snapshot, TableView, relocate, root_hash


def small_world() -> tuple[BlockPool, dict[str, BlockTable]]:
    pool = BlockPool(5)
    a = BlockTable(pool, 2, root_hash())
    a.reserve(5)
    a.commit([1, 2, 3, 4, 5])
    b = a.fork()
    b.reserve(2)  # copies block 2 to block 3, and takes block 4
    return pool, {"A": a, "B": b}


def test_what_a_picture_shows():
    pool, tables = small_world()
    shot = Snapshot.take(pool, tables, block_size=2)
    assert shot.num_blocks == 5
    assert shot.ref_counts == (2, 2, 1, 1, 1)
    assert shot.tables == (
        TableView("A", (0, 1, 2), num_tokens=5, num_reserved=5),
        TableView("B", (0, 1, 3, 4), num_tokens=5, num_reserved=7),
    )
    assert [bool(p) for p in shot.prefixes] == [True, True, False, False, False]
    assert [shot.owners(b) for b in (0, 2, 4)] == [("A", "B"), ("A",), ("B",)]
    assert (shot.free_order, shot.num_evictions, shot.block_size) == ((), 0, 2)


def test_a_picture_does_not_move():
    pool, tables = small_world()
    shot = Snapshot.take(pool, tables, 2)
    copy = dataclasses.replace(shot)
    for table in tables.values():
        table.release()
    assert shot == copy != Snapshot.take(pool, tables, 2)
    assert hash(shot) == hash(copy)
    with pytest.raises(dataclasses.FrozenInstanceError):
        shot.num_evictions = 1  # type: ignore[misc]


def test_the_free_order_is_the_order_of_allocation():
    pool, tables = small_world()
    for table in tables.values():
        table.release()
    shot = Snapshot.take(pool, tables, 2)
    assert shot.free_order == tuple(pool.allocate(5))


def test_prefixes_have_short_names():
    pool, tables = small_world()
    shot = Snapshot.take(pool, tables, 2)
    assert shot.prefixes[0] == pool.prefix_hash[0].hex()[:6]


def test_only_tables_of_this_pool_are_in_the_picture():
    pool, tables = small_world()
    host = BlockPool(3)
    relocate([tables["A"]], host)
    assert [view.name for view in Snapshot.take(pool, tables, 2).tables] == ["B"]
    assert [view.name for view in Snapshot.take(host, tables, 2).tables] == ["A"]


def test_nobody_owns_what_a_window_has_passed():
    pool, tables = small_world()
    tables["B"].cancel()
    tables["A"].drop_before(4)
    shot = Snapshot.take(pool, tables, 2)
    assert shot.tables[0].block_ids == (-1, -1, 2)
    assert shot.owners(0) == ("B",)
