"""Laws of the bookkeeping that hold for all inputs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged.cache import PagedBatch
from minipaged.core import (
    BlockTable,
    OutOfBlocks,
    block_hash,
    prefix_hashes,
    relocate,
    reserve,
    root_hash,
)
from support import books
from support.events import count, must_happen_in_module
from support.world import Seq, World

events = must_happen_in_module(
    "adoption without a copy",
    "copy-on-write",
    "fits",
    "moved",
    "prefix hit",
    "refused",
    "refused move",
)

prompts = st.lists(st.integers(0, 1), min_size=1, max_size=8)
letters = st.text(alphabet="ab", max_size=3)
extra_keys = st.dictionaries(letters, letters, max_size=3)


@st.composite
def worlds(draw, *, num_host_blocks: int = 0) -> World:
    """A device on which sequences were admitted, forked, cut and released."""
    world = World(draw(st.integers(3, 9)), draw(st.integers(1, 4)), num_host_blocks=num_host_blocks)
    for prompt in draw(st.lists(prompts, min_size=1, max_size=4)):
        seq = world.admit(prompt)
        if not world.step([(seq, seq.num_pending, seq.num_pending)]):
            world.release(seq)
            continue
        if draw(st.booleans()):
            world.fork(seq)
        if draw(st.booleans()):
            world.truncate(seq, draw(st.integers(1, seq.table.num_tokens)))
    for seq in list(world.live):
        if draw(st.integers(0, 3)) == 0:
            world.release(seq)
    world.check()
    return world


@st.composite
def steps(draw, **options) -> tuple[World, list[BlockTable], list[int]]:
    """A world, and a step that some of its sequences want to do."""
    world = draw(worlds(**options))
    chosen = [seq.table for seq in world.live if draw(st.booleans())]
    counts = [draw(st.integers(0, 5)) for _ in chosen]
    return world, chosen, counts


# --- slots ---------------------------------------------------------------------------------------


@pytest.mark.invariant(13)
@given(worlds())
def test_two_tokens_share_a_slot_only_if_their_whole_prefixes_are_equal(world):
    owner = {}
    for seq in world.live:
        for position, slot in enumerate(seq.table.slots(0, seq.table.num_tokens)):
            prefix = world.prefix(seq, position)
            assert owner.setdefault(slot, prefix) == prefix


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True), st.integers(1, 5))
def test_slots_are_block_times_size_plus_offset(block_ids, block_size):
    table = BlockTable(World(1, 1).device.pool, block_size)
    table.block_ids = block_ids
    expected = [b * block_size + offset for b in block_ids for offset in range(block_size)]
    end = len(expected)
    assert table.slots(0, end) == expected
    for start in range(end):
        assert table.slots(start, end) == expected[start:]


# --- names of prefixes ---------------------------------------------------------------------------


@pytest.mark.invariant(6)
@given(prompts, prompts, st.integers(1, 4), extra_keys, extra_keys)
def test_equal_names_are_equal_prefixes(a, b, block_size, keys_a, keys_b):
    names_a = prefix_hashes(a, block_size, root_hash(keys_a))
    names_b = prefix_hashes(b, block_size, root_hash(keys_b))
    assert len(names_a) == len(a) // block_size
    for i, name in enumerate(names_a):
        for j, other in enumerate(names_b):
            whole_a, whole_b = a[: (i + 1) * block_size], b[: (j + 1) * block_size]
            assert (name == other) == (whole_a == whole_b and keys_a == keys_b)


@pytest.mark.invariant(6)
@given(*[st.lists(st.integers(0, 2**40), max_size=4)] * 2)
def test_equal_blocks_are_equal_token_for_token(a, b):
    root = root_hash()
    assert (block_hash(root, a) == block_hash(root, b)) == (a == b)


@given(extra_keys, extra_keys)
def test_equal_roots_are_equal_keys(a, b):
    assert (root_hash(a) == root_hash(b)) == (a == b)


@given(prompts, st.integers(1, 3), st.integers(1, 3))
def test_block_sizes_do_not_mix(tokens, size_a, size_b):
    names_a, names_b = (set(prefix_hashes(tokens, n, root_hash())) for n in (size_a, size_b))
    if size_a != size_b:
        # Blocks of one and of two tokens never bear one name, whatever prefix they end.
        assert not names_a & names_b


# --- looking -------------------------------------------------------------------------------------


@given(worlds(), prompts)
def test_looking_changes_nothing_and_finds_the_longest(world, prompt):
    table = BlockTable(world.device.pool, world.block_size, root_hash({"salt": "", "weights": "0"}))
    before = world.frozen()
    found = table.find_prefix(prompt)
    assert world.frozen() == before
    assert len(found) <= (len(prompt) - 1) // world.block_size
    table.match_prefix(prompt)
    assert table.block_ids == found
    seq = Seq("X", prompt, "", 0, table)
    world.live.append(seq)
    world.check()


# --- reserving -----------------------------------------------------------------------------------


@pytest.mark.invariant(2)
@given(steps())
def test_a_step_fits_exactly_if_its_sequences_fit_one_after_the_other(step):
    world, tables, counts = step
    # One by one, really allocating, on a copy: what is needed is what is taken.
    twin = world.clone()
    twins = [twin.live[[s.table for s in world.live].index(table)].table for table in tables]
    try:
        copies = [copy for t, n in zip(twins, counts) for copy in reserve([t], [n])]
        fits = True
    except OutOfBlocks:
        fits = False
    before, taken = world.frozen(), []
    allocate = world.device.pool.allocate
    world.device.pool.allocate = lambda n=1: taken.append(n) or allocate(n)
    try:
        assert reserve(tables, counts) == copies
        assert fits
    except OutOfBlocks:
        assert not fits
        assert taken == [], "who asks first need not give anything back"
    finally:
        del world.device.pool.allocate
    count("fits" if fits else "refused")
    if fits:
        assert [t.block_ids for t in tables] == [t.block_ids for t in twins]
    else:
        assert world.frozen() == before


@pytest.mark.invariant(4)
@given(steps())
def test_no_copy_of_a_step_reads_what_another_writes(step):
    world, tables, counts = step
    held = {b for seq in world.live for b in seq.table.block_ids}
    try:
        copies = reserve(tables, counts)
    except OutOfBlocks:
        return
    destinations = [copy.destination for copy in copies]
    assert len(set(destinations)) == len(destinations)
    assert not set(destinations) & held, "a destination was somebody's block"
    assert {copy.source for copy in copies} <= held


@pytest.mark.invariant(1)
@given(steps())
def test_after_a_reservation_nobody_else_can_see_what_will_be_written(step):
    world, tables, counts = step
    try:
        reserve(tables, counts)
    except OutOfBlocks:
        return
    everybody = [seq.table for seq in world.live]
    written = [slot for t in tables for slot in t.slots(t.num_tokens, t.num_reserved)]
    assert len(set(written)) == len(written), "two tokens of a step have one slot"
    for table in everybody:
        assert not set(table.slots(0, table.num_tokens)) & set(written)
    for slot in written:
        assert world.device.pool.prefix_hash[slot // world.block_size] is None


# --- sharing -------------------------------------------------------------------------------------


@given(worlds(), st.lists(st.integers(0, 9), max_size=8), st.randoms(use_true_random=False))
def test_forks_released_in_any_order_leave_nothing_behind(world, picks, random):
    for pick in picks:
        if world.live:
            world.fork(world.live[pick % len(world.live)])
    random.shuffle(world.live)
    world.check_pool_is_whole()


@given(worlds(), st.data())
def test_a_fork_and_its_parent_do_not_know_each_other(world, data):
    if not world.live:
        return
    parent = data.draw(st.sampled_from(world.live))
    child = world.fork(parent)
    history = list(parent.tokens)
    for seq, token in ((child, 0), (parent, 1)):
        seq.tokens.append(token)
        if not world.step([(seq, 1, 1)]):
            seq.tokens.pop()
        world.check()
    assert parent.tokens[: len(history)] == child.tokens[: len(history)] == history


# --- moving --------------------------------------------------------------------------------------


@pytest.mark.invariant(2)
@given(worlds(num_host_blocks=5), st.data())
def test_a_move_fits_exactly_if_there_is_room_for_what_is_not_known_there(world, data):
    host, size = world.places[1], world.block_size
    for seq in list(world.live):
        if data.draw(st.booleans()):
            world.swap([seq], publish=True)
    for seq in world.at(host):
        if data.draw(st.booleans()):
            world.release(seq)
    world.check()
    leaving = world.on_device()
    there = books.published_prefixes(world, host)
    held = {b for seq in leaving for b in seq.table.block_ids}
    known = {
        seq.table.block_ids[i]: there[prefix]
        for seq in leaving
        for i in range(seq.table.num_tokens // size)
        if (prefix := world.prefix(seq, (i + 1) * size - 1)) in there
    }
    revived = {block_id for block_id in known.values() if host.pool.is_free(block_id)}
    fits = len(held) - len(known) + len(revived) <= host.pool.num_free
    before = world.frozen()
    try:
        copies = relocate([seq.table for seq in leaving], host.pool)
    except OutOfBlocks:
        assert not fits
        assert world.frozen() == before
        count("refused move")
        return
    assert fits
    assert {copy.source for copy in copies} == held - set(known), "copied what is known there"
    count("moved")
    books.check_books(world, host)
    books.check_books(world, world.device)


# --- as tensors ----------------------------------------------------------------------------------


@given(steps())
def test_a_batch_is_what_a_loop_over_tokens_says(step):
    world, tables, counts = step
    try:
        reserve(tables, counts)
    except OutOfBlocks:
        return
    if not tables:
        return
    positions, slots, start_loc = [], [], [0]
    for table in tables:
        for p in range(table.num_tokens, table.num_reserved):
            positions.append(p)
            block_id = table.block_ids[p // world.block_size]
            slots.append(block_id * world.block_size + p % world.block_size)
        start_loc.append(len(positions))
    width = max(1, *(len(t.block_ids) for t in tables))
    rows = [t.block_ids + [-1] * (width - len(t.block_ids)) for t in tables]
    batch = PagedBatch.build(tables)
    batch.validate(world.device.pool.num_blocks, world.block_size)
    assert batch.positions.tolist() == positions
    assert batch.slot_mapping.tolist() == slots
    assert batch.block_tables.tolist() == rows
    assert batch.seq_lens.tolist() == [t.num_reserved for t in tables]
    assert batch.query_start_loc.tolist() == start_loc
    assert batch.block_tables.dtype == torch.int32


# --- accounting ----------------------------------------------------------------------------------


@given(steps())
def test_the_ledger_counts_each_slot_once(step):
    world, tables, counts = step
    for open_step in (False, True):
        if open_step:
            try:
                reserve(tables, counts)
            except OutOfBlocks:
                return
        truth = books.check_ledger(world, world.device)
        classes = sum(n for name, n in truth.items() if name != "saved")
        assert classes == world.device.pool.num_blocks * world.block_size
