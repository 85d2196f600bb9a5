"""One sequence's map, and what sharing does to it: every block id written out."""

import pytest

from minipaged.core import NO_BLOCK, BlockPool, BlockTable, Copy, OutOfBlocks, reserve, root_hash

ROOT = root_hash()


def grown(pool: BlockPool, token_ids: list[int], block_size: int = 4, root=ROOT) -> BlockTable:
    """A table whose tokens are all written."""
    table = BlockTable(pool, block_size, root)
    table.reserve(len(token_ids))
    table.commit(token_ids)
    return table


# --- growing -------------------------------------------------------------------------------------


def test_slots_follow_the_blocks():
    pool = BlockPool(8)
    table = BlockTable(pool, block_size=4)
    table.block_ids = [5, 2, 3]
    assert table.slots(0, 10) == [20, 21, 22, 23, 8, 9, 10, 11, 12, 13]
    assert table.slots(7, 9) == [11, 12]
    assert table.slots(3, 3) == []


def test_a_block_holds_at_least_one_token():
    with pytest.raises(ValueError, match="at least 1 token, got block_size=0"):
        BlockTable(BlockPool(1), 0)


def test_a_block_is_taken_only_when_a_token_needs_it():
    table = BlockTable(BlockPool(8), block_size=4)
    sizes = []
    for n in range(1, 10):
        assert table.reserve(1) == []
        table.commit([0] * n)
        sizes.append(len(table.block_ids))
    assert sizes == [1, 1, 1, 1, 2, 2, 2, 2, 3]


def test_reserved_tokens_count_only_when_committed():
    pool = BlockPool(8)
    table = BlockTable(pool, 4, ROOT)
    table.reserve(5)
    assert (table.num_tokens, table.num_reserved, table.block_ids) == (0, 5, [0, 1])
    assert pool.prefix_hash[0] is None, "nothing is written yet, so nothing is findable"
    table.commit([1, 2, 3, 4, 5])
    assert (table.num_tokens, table.num_reserved) == (5, 5)
    assert pool.prefix_hash[0] is not None
    assert pool.prefix_hash[1] is None, "not full"


def test_a_chunk_publishes_only_what_is_written():
    pool = BlockPool(8)
    table = BlockTable(pool, 2, ROOT)
    prompt = [1, 2, 3, 4, 5, 6]
    table.reserve(3)
    table.commit(prompt)  # all tokens are known, three are written
    assert [pool.prefix_hash[b] is not None for b in (0, 1)] == [True, False]


def test_reserving_nothing_changes_nothing():
    table = grown(BlockPool(8), [1, 2, 3])
    assert table.reserve(0) == []
    assert (table.block_ids, table.num_reserved) == ([0], 3)


def test_a_step_must_end_before_the_next_begins():
    table = BlockTable(BlockPool(8), 4)
    table.reserve(3)
    for act in (lambda: table.reserve(1), table.fork, lambda: table.truncate(0)):
        with pytest.raises(ValueError, match="inside a step: 3 reserved positions"):
            act()


@pytest.mark.parametrize(
    ("num_given", "num_kept"), [(4, None), (5, 6), (5, 1), (3, 4)], ids=lambda n: str(n)
)
def test_a_commit_must_fit_the_reservation(num_given, num_kept):
    table = grown(BlockPool(8), [1, 1])
    table.reserve(3)
    with pytest.raises(ValueError, match="2 positions are written, 5 reserved"):
        table.commit([1] * num_given, num_kept)


# --- the whole step, or nothing ------------------------------------------------------------------


def test_no_room_for_one_is_no_step_for_all():
    pool = BlockPool(3)
    a, b = grown(pool, [1, 1, 1, 1]), grown(pool, [2, 2, 2])
    with pytest.raises(OutOfBlocks, match="3 new tokens need 2 blocks of 4, 1 of 3 are free"):
        reserve([a, b], [1, 2])
    assert (a.block_ids, a.num_reserved, b.block_ids, b.num_reserved) == ([0], 4, [1], 3)
    assert reserve([a, b], [1, 1]) == []
    assert (a.block_ids, b.block_ids, pool.num_free) == ([0, 2], [1], 0)


def test_no_sequences_need_nothing():
    assert reserve([], []) == []


def test_each_sequence_needs_its_number():
    with pytest.raises(ValueError, match="zip"):
        reserve([grown(BlockPool(2), [1])], [1, 1])


# --- fork and copy-on-write ----------------------------------------------------------------------


def test_a_fork_allocates_nothing():
    pool = BlockPool(2)
    parent = grown(pool, [1, 2, 3, 4, 5])
    child = parent.fork()
    assert (child.block_ids, child.num_tokens) == ([0, 1], 5)
    assert (pool.ref_count, pool.num_free) == ([2, 2], 0)


def test_the_first_to_write_copies_and_the_last_sibling_writes_in_place():
    pool = BlockPool(8)
    a = grown(pool, [1, 2, 3, 4, 5])
    b, c = a.fork(), a.fork()
    assert a.reserve(1) == [Copy(source=1, destination=2)]
    assert b.reserve(1) == [Copy(source=1, destination=3)]
    assert c.reserve(1) == [], "nobody else is left in block 1"
    assert [t.block_ids for t in (a, b, c)] == [[0, 2], [0, 3], [0, 1]]
    assert pool.ref_count[:4] == [3, 1, 1, 1]


def test_n_siblings_in_one_step_cost_n_minus_1_copies():
    pool = BlockPool(8)
    a = grown(pool, [1, 2, 3, 4, 5])
    family = [a, a.fork(), a.fork(), a.fork()]
    assert reserve(family, [1] * 4) == [Copy(1, 2), Copy(1, 3), Copy(1, 4)]
    for table in family:
        table.commit([1, 2, 3, 4, 5, 6])
    again = reserve(family, [1] * 4)
    assert again == [], "each has its own block now: forked once, copied once"


def test_a_full_last_block_is_not_copied():
    pool = BlockPool(4)
    a = grown(pool, [1, 2, 3, 4])
    b = a.fork()
    assert reserve([a, b], [1, 1]) == []
    assert (a.block_ids, b.block_ids) == ([0, 1], [0, 2])


def test_copies_of_one_step_never_chain():
    pool = BlockPool(4)
    a = grown(pool, [1, 2, 3, 4, 5, 6], block_size=4)  # blocks 0 1
    b = a.fork()
    (copy,) = a.reserve(1)
    b.release()  # block 1 has no holder left, but the copy has not run
    assert (copy, pool.ref_count[1]) == (Copy(1, 2), 0)
    assert pool.free_order() == [3], "the source of a copy is not free before the copy has run"
    a.commit([1, 2, 3, 4, 5, 6, 7])
    assert pool.free_order() == [1, 3]


# --- finding prefixes ----------------------------------------------------------------------------


def test_a_known_prefix_is_adopted_by_pointer():
    pool = BlockPool(8)
    grown(pool, [1, 2, 3, 4, 5, 6]).release()
    table = BlockTable(pool, 4, ROOT)
    assert table.match_prefix([1, 2, 3, 4, 9]) == 4
    assert (table.block_ids, table.num_tokens, table.num_reserved) == ([0], 4, 4)
    assert pool.ref_count[0] == 1


@pytest.mark.parametrize(("num_tokens", "num_hit"), [(4, 0), (5, 4), (8, 4), (9, 8)])
def test_at_least_one_token_is_left_to_compute(num_tokens, num_hit):
    # (num_tokens - 1) // block_size blocks: somebody must produce the logits.
    pool = BlockPool(8)
    grown(pool, [7] * 9)
    assert BlockTable(pool, 4, ROOT).match_prefix([7] * num_tokens) == num_hit


def test_a_hit_ends_at_the_first_difference():
    pool = BlockPool(8)
    grown(pool, [1, 1, 2, 2, 3, 3], block_size=2)
    table = BlockTable(pool, 2, ROOT)
    assert table.find_prefix([1, 1, 9, 9, 3, 3, 0]) == [0]
    assert table.find_prefix([9, 1, 2, 2]) == []


def test_a_hit_ends_at_a_gap():
    pool = BlockPool(3)
    table = grown(pool, [1, 1, 2, 2, 3, 3], block_size=2)  # blocks 0 1 2
    table.drop_before(2)  # the beginning is free, and evicted for somebody else
    assert pool.allocate() == [0]
    assert BlockTable(pool, 2, ROOT).find_prefix([1, 1, 2, 2, 3, 3, 0]) == []


def test_looking_changes_nothing():
    pool = BlockPool(8)
    grown(pool, [1, 1, 2, 2], block_size=2).release()
    order = pool.free_order()
    table = BlockTable(pool, 2, ROOT)
    assert table.find_prefix([1, 1, 2, 2, 3]) == [0, 1]
    assert (pool.free_order(), pool.ref_count, table.block_ids) == (order, [0] * 8, [])


def test_a_prefix_is_matched_first():
    table = grown(BlockPool(8), [1, 2])
    with pytest.raises(ValueError, match="matched first, this table holds 2 tokens"):
        table.match_prefix([1, 2, 3, 4, 5])


def test_another_salt_is_another_prefix():
    pool = BlockPool(8)
    grown(pool, [1] * 5, root=root_hash({"salt": "a"}))
    for keys in (None, {"salt": "b"}, {"adapter": "a"}):
        assert BlockTable(pool, 4, root_hash(keys)).match_prefix([1] * 5) == 0
    assert BlockTable(pool, 4, root_hash({"salt": "a"})).match_prefix([1] * 5) == 4


def test_without_a_root_nothing_is_found_or_published():
    pool = BlockPool(8)
    grown(pool, [1] * 5)
    table = grown(pool, [2] * 5, root=None)
    assert [pool.prefix_hash[b] for b in table.block_ids] == [None, None]
    assert BlockTable(pool, 4).match_prefix([1] * 5) == 0


def test_two_who_compute_one_prefix_end_up_in_one_block():
    pool = BlockPool(8)
    a, b = BlockTable(pool, 2, ROOT), BlockTable(pool, 2, ROOT)
    reserve([a, b], [3, 3])
    assert (a.block_ids, b.block_ids) == ([0, 1], [2, 3])
    a.commit([1, 1, 5])
    b.commit([1, 1, 6])
    assert (a.block_ids, b.block_ids) == ([0, 1], [0, 3]), "b adopted a's and gave back its own"
    assert (pool.ref_count[0], pool.is_free(2)) == (2, True)


# --- drafts and truncation -----------------------------------------------------------------------


def test_a_rejected_draft_is_never_published_and_its_blocks_go_back():
    pool = BlockPool(8)
    table = grown(pool, [1, 1, 1], block_size=2)  # blocks 0 1
    table.reserve(4)  # a draft of four: blocks 2 3
    assert table.block_ids == [0, 1, 2, 3]
    table.commit([1, 1, 1, 8, 8, 8, 8], num_tokens=4)  # the first of them was right
    assert (table.block_ids, table.num_tokens, table.num_reserved) == ([0, 1], 4, 4)
    assert [h is not None for h in pool.prefix_hash[:4]] == [True, True, False, False]
    assert pool.free_order()[:2] == [2, 3]


def test_a_draft_may_be_rejected_whole():
    pool = BlockPool(8)
    table = grown(pool, [1, 1, 1], block_size=2)
    table.reserve(2)
    table.commit([1, 1, 1, 8, 8], num_tokens=3)
    assert (table.block_ids, table.num_tokens, pool.prefix_hash[1]) == ([0, 1], 3, None)


def test_writing_into_an_own_but_published_block_copies_it():
    # One holder alone is not enough: the prefix index still promises 1 2 3 4.
    pool = BlockPool(8)
    table = grown(pool, [1, 2, 3, 4, 5])  # blocks 0 1
    table.truncate(3)
    assert (table.block_ids, pool.ref_count[0], pool.is_free(1)) == ([0], 1, True)
    assert table.reserve(1) == [Copy(source=0, destination=1)]
    table.commit([1, 2, 3, 9])
    assert BlockTable(pool, 4, ROOT).find_prefix([1, 2, 3, 4, 5]) == [0]
    assert BlockTable(pool, 4, ROOT).find_prefix([1, 2, 3, 9, 5]) == [1]


def test_growing_back_the_same_tokens_finds_the_old_block():
    pool = BlockPool(8)
    table = grown(pool, [1, 2, 3, 4])
    table.truncate(3)
    assert table.reserve(1) == [Copy(0, 1)]
    table.commit([1, 2, 3, 4])
    assert (table.block_ids, pool.is_free(1)) == ([0], True)


def test_truncate_gives_back_whole_blocks_tail_first():
    pool = BlockPool(4)
    table = grown(pool, [1] * 8, block_size=2)
    table.truncate(3)
    assert (table.block_ids, table.num_tokens) == ([0, 1], 3)
    assert pool.free_order() == [3, 2], "the longest prefix is forgotten first"
    table.truncate(0)
    assert (table.block_ids, pool.free_order()) == ([], [3, 2, 1, 0])


def test_truncate_goes_backwards_only():
    table = grown(BlockPool(4), [1, 1])
    with pytest.raises(ValueError, match=r"truncate to 3: positions 0\.\.2 exist"):
        table.truncate(3)
    with pytest.raises(ValueError, match=r"truncate to -1: positions 0\.\.2 exist"):
        table.truncate(-1)


# --- taking back ---------------------------------------------------------------------------------


def test_cancel_restores_the_table():
    pool = BlockPool(8)
    a = grown(pool, [1, 2, 3, 4, 5])
    b = a.fork()
    free = pool.free_order()
    assert a.reserve(8) == [Copy(1, 2)]
    assert a.block_ids == [0, 2, 3, 4]
    a.cancel()
    assert (a.block_ids, a.num_tokens, a.num_reserved) == ([0, 1], 5, 5)
    assert (pool.ref_count[:5], pool.free_order()) == ([2, 2, 0, 0, 0], free)
    assert b.block_ids == [0, 1]
    a.cancel()
    assert a.block_ids == [0, 1], "nothing to cancel"


def test_cancel_finds_the_source_even_if_everybody_else_has_left_it():
    pool = BlockPool(3)
    a = grown(pool, [1, 2, 3])
    b = a.fork()
    a.reserve(1)
    b.release()
    assert pool.ref_count == [0, 1, 0]
    a.cancel()
    assert (a.block_ids, pool.ref_count) == ([0], [1, 0, 0])


def test_release_gives_back_an_open_reservation_too():
    pool = BlockPool(8)
    a = grown(pool, [1, 2, 3, 4, 5])
    b = a.fork()
    a.reserve(6)
    a.release()
    assert (a.block_ids, pool.ref_count[:5], pool.num_free) == ([], [1, 1, 0, 0, 0], 6)
    a.release()
    b.release()
    b.release()
    assert (pool.num_free, sum(pool.ref_count)) == (8, 0)
    pool.check()


# --- the sliding window --------------------------------------------------------------------------


def test_a_window_gives_back_what_it_has_passed():
    pool = BlockPool(8)
    table = grown(pool, [1] * 7, block_size=2)
    table.drop_before(5)  # positions 0..3 fill blocks 0 1; position 4 lives with 5
    assert table.block_ids == [NO_BLOCK, NO_BLOCK, 2, 3]
    assert (table.num_dropped, pool.ref_count[:4]) == (2, [0, 0, 1, 1])
    table.drop_before(3)
    assert table.num_dropped == 2, "what is gone is gone"
    assert table.slots(4, 7) == [4, 5, 6]


def test_a_window_keeps_the_block_that_is_being_written():
    pool = BlockPool(8)
    table = grown(pool, [1, 1, 1], block_size=2)
    table.reserve(3)
    table.drop_before(100)
    assert table.block_ids == [NO_BLOCK, 1, 2]
    table.drop_before(-3)
    assert table.num_dropped == 1
    table.cancel()
    assert table.block_ids == [NO_BLOCK, 1]


def test_a_fork_behind_a_window_shares_what_is_left():
    pool = BlockPool(8)
    a = grown(pool, [1] * 5, block_size=2)
    a.drop_before(4)
    b = a.fork()
    assert (b.block_ids, b.num_dropped, pool.ref_count[:3]) == (
        [NO_BLOCK, NO_BLOCK, 2],
        2,
        [0, 0, 2],
    )
    assert b.reserve(1) == [Copy(2, 3)]
    a.release()
    b.release()
    assert pool.num_free == 8
    pool.check()


def test_truncation_stops_at_the_window_or_goes_all_the_way():
    table = grown(BlockPool(8), [1] * 7, block_size=2)
    table.drop_before(4)
    with pytest.raises(ValueError, match=r"truncate to 3: positions 4\.\.7 exist"):
        table.truncate(3)
    table.truncate(4)
    assert table.block_ids == [NO_BLOCK, NO_BLOCK]
    table.truncate(0)
    assert (table.block_ids, table.num_dropped) == ([], 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.block_ids.pop(),
        lambda t: t.block_ids.append(3),
        lambda t: t.block_ids.__setitem__(1, t.block_ids[0]),
        lambda t: t.block_ids.__setitem__(1, 3),
        lambda t: setattr(t, "num_tokens", 4),
        lambda t: setattr(t, "num_dropped", 1),
        lambda t: t._hashes.append(b""),
    ],
    ids=["short", "long", "twice", "free", "unreserved", "dropped", "hashes"],
)
def test_the_tables_own_check_sees_damage(damage):
    table = grown(BlockPool(4), [1, 1, 1], block_size=2)
    table.check()
    damage(table)
    with pytest.raises(AssertionError):
        table.check()
