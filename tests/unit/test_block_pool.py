"""Which block comes next: a pool small enough to do by hand."""

import pytest

from minipaged.core import BlockPool, OutOfBlocks


def publish(pool: BlockPool, *block_ids: int) -> None:
    """Give each block a name of its own; block 3 holds prefix b"3", whose parent is None."""
    for block_id in block_ids:
        pool.publish(block_id, b"%d" % block_id, None)


def test_blocks_come_in_order_and_the_last_freed_comes_first():
    pool = BlockPool(4)
    assert pool.allocate(3) == [0, 1, 2]
    pool.release(0)
    pool.release(2)
    assert pool.free_order() == [2, 0, 3]
    assert pool.allocate(3) == [2, 0, 3]


def test_none_or_all():
    pool = BlockPool(3)
    pool.allocate(2)
    with pytest.raises(OutOfBlocks, match="2 blocks needed, 1 of 3 are free"):
        pool.allocate(2)
    assert (pool.num_free, pool.ref_count) == (1, [1, 1, 0])
    assert pool.allocate(0) == []


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="at least 1 block, got num_blocks=0"):
        BlockPool(0)


def test_a_shared_block_is_free_when_its_last_holder_has_gone():
    pool = BlockPool(1)
    (block,) = pool.allocate()
    pool.share(block)
    pool.release(block)
    assert (pool.ref_count, pool.num_free) == ([1], 0)
    pool.release(block)
    assert (pool.ref_count, pool.num_free) == ([0], 1)


def test_a_free_block_cannot_be_released_or_shared():
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="block 0 is already free"):
        pool.release(0)
    with pytest.raises(ValueError, match="block 0 is free and holds no prefix"):
        pool.share(0)
    assert pool.free_order() == [0, 1]


def test_a_published_block_stays_findable_when_freed_and_comes_back_to_life():
    pool = BlockPool(2)
    pool.allocate()
    publish(pool, 0)
    pool.release(0)
    assert (pool.lookup(b"0"), pool.num_cached, pool.num_free) == (0, 1, 2)
    pool.share(0)
    assert (pool.ref_count, pool.num_cached, pool.num_free) == ([1, 0], 0, 1)
    assert pool.lookup(b"another") is None


def test_blank_blocks_go_first_then_the_least_recently_released():
    pool = BlockPool(5)
    pool.allocate(4)
    publish(pool, 0, 1, 2)
    for block in (1, 0, 2, 3):  # 3 is unpublished: blank
        pool.release(block)
    pool.share(1)  # found by its prefix, and released again: now the most recent
    pool.release(1)
    assert pool.free_order() == [3, 4, 0, 2, 1]
    assert (pool.allocate(2), pool.num_evictions) == ([3, 4], 0)
    assert (pool.allocate(2), pool.num_evictions) == ([0, 2], 2)
    assert [pool.lookup(b"%d" % b) for b in range(3)] == [None, 1, None]


def test_an_evicted_block_has_no_name_left():
    pool = BlockPool(1)
    pool.allocate()
    pool.publish(0, b"old", b"parent")
    pool.release(0)
    pool.allocate()
    assert (pool.prefix_hash, pool.parent_hash, pool.lookup(b"old")) == ([None], [None], None)
    publish(pool, 0)
    assert pool.lookup(b"0") == 0


def test_only_one_block_ever_holds_a_prefix():
    pool = BlockPool(2)
    pool.allocate(2)
    assert pool.publish(0, b"same", None) == 0
    assert pool.publish(1, b"same", None) == 0, "the first one holds it: adopt that"
    assert pool.prefix_hash == [b"same", None]
    assert pool.publish(0, b"same", None) == 0, "publishing again is nothing new"


def test_a_block_may_be_written_by_a_single_holder_before_it_is_published():
    pool = BlockPool(2)
    pool.allocate()
    assert pool.writable(0)
    pool.share(0)
    assert not pool.writable(0), "another holder would see the change"
    pool.release(0)
    publish(pool, 0)
    assert not pool.writable(0), "the prefix index would lie"
    assert not pool.writable(1), "nobody's block"


def test_a_pinned_block_is_neither_held_nor_free():
    pool = BlockPool(2)
    pool.allocate()
    pool.pin(0)
    pool.pin(0)
    pool.release(0)
    assert (pool.free_order(), pool.is_free(0)) == ([1], False)
    pool.unpin(0)
    assert pool.num_free == 1, "pinned twice"
    pool.unpin(0)
    assert pool.free_order() == [0, 1]


def test_a_pinned_block_may_be_held_again():
    pool = BlockPool(1)
    pool.allocate()
    pool.pin(0)
    pool.release(0)
    pool.share(0)
    pool.unpin(0)
    assert (pool.ref_count, pool.num_free) == ([1], 0)
    pool.check()


def test_forgetting_unpublishes_everything_and_frees_nothing_that_is_held():
    pool = BlockPool(3)
    pool.allocate(2)
    publish(pool, 0, 1)
    pool.release(0)
    pool.forget_prefixes()
    assert (pool.lookup(b"0"), pool.lookup(b"1")) == (None, None)
    assert (pool.ref_count, pool.num_cached, pool.num_free) == ([0, 1, 0], 0, 2)
    pool.check()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda pool: pool._blank.append(2), "free twice"),
        (lambda pool: pool._blank.clear(), "unused are"),
        (lambda pool: pool.ref_count.__setitem__(0, 0), "unused are"),
        (lambda pool: pool.ref_count.__setitem__(0, -1), "negative"),
        (lambda pool: pool._pins.update({0: 0}), "empty pin"),
        (lambda pool: pool.prefix_hash.__setitem__(0, None), "index"),
        (lambda pool: pool._by_hash.clear(), "index"),
        (lambda pool: pool.prefix_hash.__setitem__(2, b"0"), "index"),
    ],
)
def test_the_pools_own_check_sees_damage(damage, complaint):
    pool = BlockPool(3)
    pool.allocate(2)
    publish(pool, 0)
    pool.check()
    damage(pool)
    with pytest.raises(AssertionError, match=complaint):
        pool.check()
