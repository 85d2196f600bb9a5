"""Out to the host and back: what was shared stays shared, what is known there is not copied."""

import pytest

from minipaged.core import NO_BLOCK, BlockPool, BlockTable, Copy, OutOfBlocks, relocate, root_hash

ROOT = root_hash()


def grown(pool: BlockPool, token_ids: list[int], root=ROOT) -> BlockTable:
    table = BlockTable(pool, 2, root)
    table.reserve(len(token_ids))
    table.commit(token_ids)
    return table


def test_out_and_back():
    device, host = BlockPool(6), BlockPool(4)
    device.allocate(1)
    table = grown(device, [1, 2, 3, 4, 5])  # device blocks 1 2 3
    assert relocate([table], host) == [Copy(1, 0), Copy(2, 1), Copy(3, 2)]
    assert (table.block_ids, table.num_tokens, table.pool) == ([0, 1, 2], 5, host)
    assert (device.num_free, host.num_free) == (5, 1)
    table.check()

    device.allocate(1)  # takes the blank block 3
    copies = relocate([table], device)
    assert (table.block_ids, host.num_free) == ([copy.destination for copy in copies], 4)
    assert table.pool is device
    table.commit([1, 2, 3, 4, 5])  # no reservation is open; what was moved is published
    table.check()
    assert table._hashes == [device.prefix_hash[b] for b in table.block_ids[:2]]


def test_sharing_survives_the_journey():
    device, host = BlockPool(4), BlockPool(4)
    a = grown(device, [1, 2, 3])
    b = a.fork()
    a.reserve(1)
    a.commit([1, 2, 3, 4])  # a: 0 2, b: 0 1
    assert len(relocate([a, b], host)) == 3, "block 0 is moved once"
    assert (a.block_ids[0], host.ref_count[a.block_ids[0]]) == (b.block_ids[0], 2)
    assert (device.num_free, host.num_free) == (4, 1)
    host.check()


def test_who_stays_keeps_what_it_shares():
    device, host = BlockPool(4), BlockPool(4)
    a = grown(device, [1, 2, 3])
    b = a.fork()
    assert relocate([a], host) == [Copy(0, 0), Copy(1, 1)]
    assert (b.block_ids, device.ref_count) == ([0, 1], [1, 1, 0, 0])


def test_a_prefix_known_there_is_adopted_without_a_copy():
    device, host = BlockPool(4), BlockPool(4)
    resident = grown(host, [1, 2, 3])  # host block 0 holds the prefix 1 2
    table = grown(device, [1, 2, 9])
    assert relocate([table], host) == [Copy(1, 2)]
    assert (table.block_ids, host.ref_count) == ([0, 2], [2, 1, 1, 0])
    resident.release()
    assert host.ref_count == [1, 0, 1, 0]


def test_a_moved_block_that_comes_back_soon_is_still_there():
    device, host = BlockPool(4), BlockPool(4)
    table = grown(device, [1, 2, 3])
    relocate([table], host)
    table.commit([1, 2, 3])  # publishes it on the host as well
    assert relocate([table], device) == [Copy(1, 1)], "block 0 of the device still holds 1 2"
    assert (table.block_ids, device.ref_count) == ([0, 1], [1, 1, 0, 0])
    table.check()


@pytest.mark.invariant(2)
def test_too_small_a_host_changes_nothing():
    device, host = BlockPool(4), BlockPool(3)
    host.allocate(2)
    table = grown(device, [1, 2, 3])
    before = (host.free_order(), list(host.ref_count), list(device.ref_count))
    with pytest.raises(OutOfBlocks, match="2 blocks to move need 2 free blocks there, 1 of 3"):
        relocate([table], host)
    assert before == (host.free_order(), host.ref_count, device.ref_count)
    assert (table.block_ids, table.pool) == ([0, 1], device)


@pytest.mark.invariant(2)
def test_adopting_a_free_block_uses_up_a_free_block():
    device, host = BlockPool(4), BlockPool(1)
    grown(host, [1, 2]).release()
    table = grown(device, [1, 2, 3])
    with pytest.raises(OutOfBlocks, match="2 blocks to move need 2 free blocks there, 1 of 1"):
        relocate([table], host)
    assert (host.num_cached, host.ref_count, table.block_ids) == (1, [0], [0, 1])


def test_a_window_travels_with_its_table():
    device, host = BlockPool(4), BlockPool(4)
    table = grown(device, [1, 2, 3, 4, 5])
    table.drop_before(4)
    assert relocate([table], host) == [Copy(2, 0)]
    assert (table.block_ids, table.num_dropped) == ([NO_BLOCK, NO_BLOCK, 0], 2)
    table.reserve(1)
    table.commit([1, 2, 3, 4, 5, 6])
    table.check()
    table.release()
    assert (device.num_free, host.num_free) == (4, 4)


def test_the_last_blocks_go_back_first():
    device, host = BlockPool(4), BlockPool(4)
    relocate([grown(device, [1, 2, 3, 4, 5, 6])], host)
    assert device.free_order() == [3, 2, 1, 0]


def test_nobody_moves_inside_a_step():
    device, host = BlockPool(4), BlockPool(4)
    table = grown(device, [1])
    table.reserve(1)
    with pytest.raises(ValueError, match="cannot relocate inside a step"):
        relocate([table], host)


def test_sequences_without_a_root_move_too():
    device, host = BlockPool(4), BlockPool(4)
    grown(host, [1, 2, 3])
    table = grown(device, [1, 2, 3], root=None)
    assert len(relocate([table], host)) == 2
    table.check()
