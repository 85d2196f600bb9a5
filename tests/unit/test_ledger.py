"""What every slot does, counted by hand. Blocks of 4 slots; a picture for each case.

x a token   = a token of several sequences   r reserved   . tail waste   c cached   - free
"""

import pytest

from minipaged.core import BlockPool, BlockTable, Ledger, root_hash

ROOT = root_hash()


def grown(pool: BlockPool, token_ids: list[int], root=ROOT) -> BlockTable:
    table = BlockTable(pool, 4, root)
    table.reserve(len(token_ids))
    table.commit(token_ids)
    return table


def classes(tables: list[BlockTable], pool: BlockPool) -> dict[str, int]:
    """The classes that are not empty."""
    ledger = Ledger.measure(tables, pool, block_size=4)
    assert ledger.num_slots == pool.num_blocks * 4
    return {name: n for name in Ledger.__slots__ if (n := getattr(ledger, name))}


def test_one_sequence():
    pool = BlockPool(3)
    table = grown(pool, [1] * 6)
    #      xxxx xx.. ----
    assert classes([table], pool) == {"live": 6, "tail_waste": 2, "free": 4}
    assert Ledger.measure([table], pool, 4).waste == 2 / 8


def test_an_empty_pool_wastes_nothing():
    pool = BlockPool(2)
    assert classes([], pool) == {"free": 8}
    assert Ledger.measure([], pool, 4).waste == 0


def test_a_family_shares():
    pool = BlockPool(3)
    a = grown(pool, [1] * 6)
    b, c = a.fork(), a.fork()
    #      ==== ==.. ----
    expected = {"shared": 6, "tail_waste": 2, "free": 4, "saved": 12}
    assert classes([a, b, c], pool) == expected


def test_a_shorter_sibling_shares_only_what_it_has():
    pool = BlockPool(3)
    a = grown(pool, [1] * 6)
    b = a.fork()
    b.truncate(5)
    #      ==== =x.. ----
    assert classes([a, b], pool) == {
        "shared": 5,
        "live": 1,
        "tail_waste": 2,
        "free": 4,
        "saved": 5,
    }


def test_inside_a_step_slots_are_promised():
    pool = BlockPool(4)
    a = grown(pool, [1] * 6)
    b = a.fork()
    a.reserve(3)
    #      ==== xx..   b      block 1
    #           xxrr r... a   blocks 2 3
    assert classes([a, b], pool) == {
        "shared": 4,
        "live": 4,
        "reserved": 3,
        "tail_waste": 5,
        "saved": 4,
    }


def test_the_source_of_a_pending_copy_is_not_free():
    pool = BlockPool(3)
    a = grown(pool, [1] * 2)
    b = a.fork()
    a.reserve(1)
    b.release()
    #      rrrr (source)  xxr. ----
    assert classes([a], pool) == {"live": 2, "reserved": 5, "tail_waste": 1, "free": 4}


def test_what_is_free_and_findable_is_cached():
    pool = BlockPool(3)
    grown(pool, [1] * 10).release()
    #      cccc cccc ----
    assert classes([], pool) == {"cached": 8, "free": 4}


def test_a_prefix_without_its_beginning_is_orphaned():
    pool = BlockPool(3)
    table = grown(pool, [1] * 12)  # blocks 0 1 2
    table.drop_before(4)  # a window gives back the beginning first
    table.release()  # free: 0, then 2 1
    assert pool.free_order() == [0, 2, 1]
    assert classes([], pool) == {"cached": 12}
    pool.allocate(1)
    other = BlockTable(pool, 4)
    other.block_ids, other.num_tokens, other.num_reserved = [0], 4, 4
    #      xxxx oooo oooo
    assert classes([other], pool) == {"live": 4, "orphaned": 8}


def test_who_computes_the_beginning_again_brings_the_orphans_home():
    pool = BlockPool(4)
    table = grown(pool, [1] * 12)
    table.drop_before(4)
    table.release()
    (taken,) = pool.allocate(1)  # the blank block 3
    (evicted,) = pool.allocate(1)
    pool.release(taken)
    pool.release(evicted)
    assert classes([], pool) == {"orphaned": 8, "free": 8}
    grown(pool, [1] * 4).release()
    assert classes([], pool) == {"cached": 12, "free": 4}


def test_all_holders_must_be_given():
    pool = BlockPool(3)
    a = grown(pool, [1] * 6)
    b = a.fork()
    with pytest.raises(ValueError, match="block 0 has 2 holders, 1 of them were given"):
        Ledger.measure([b], pool, 4)
