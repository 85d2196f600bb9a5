"""A drawn pool says what the snapshot says: every block once, every number, every change."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from minipaged.core import BlockPool, BlockTable, Snapshot, TableView, reserve, root_hash
from minipaged.view import block_views, changes, drawing, frames, series
from minipaged.view.figure_block import CACHED, CHANGED, EMPTY, PROMISED
from minipaged.view.marks import CROWD
from minipaged.view.svg import PALETTE, Box
from support.svg import blocks, in_one_colour, plain_words, pool, words

STORY = [frame.snapshot for frame in frames()]
SNAPSHOTS = {
    **{f"step {i}": shot for i, shot in enumerate(STORY)},
    **{f"block size {n}": pool(12, n, 9) for n in (1, 2, 4, 8, 16, 32)},
    "24 blocks": pool(24, 4, 30),
}


@pytest.fixture(params=SNAPSHOTS)
def shot(request) -> Snapshot:
    return SNAPSHOTS[request.param]


def test_every_block_is_there_once(shot):
    assert [b.block_id for b in blocks(drawing(shot))] == list(range(shot.num_blocks))


@pytest.mark.parametrize("num_blocks", [1, 25, 40, 128])
def test_of_a_pool_of_up_to_128_blocks_all_are_drawn(num_blocks):
    drawn = blocks(drawing(pool(num_blocks, 4, 7)))
    assert [int(b.texts[0]) for b in drawn] == list(range(num_blocks))


def test_of_a_larger_pool_the_blank_blocks_are_counted():
    shot = pool(400, 4, 7)
    shown = [b.block_id for b in blocks(drawing(shot))]
    assert shown == [b.block_id for b in block_views(shot) if b.state != "blank"]
    assert f"… {400 - len(shown)} blank blocks" in words(drawing(shot))


def test_of_a_larger_pool_cached_blocks_are_drawn():
    books = BlockPool(200)
    table = BlockTable(books, 4, root_hash())
    table.reserve(8)
    table.commit(range(8))
    table.release()
    drawn = blocks(drawing(Snapshot.take(books, {}, 4)))
    assert [(block.block_id, block.texts[-1]) for block in drawn] == [(0, "cached"), (1, "cached")]


def test_a_block_says_id_prefix_holders_and_ref_count(shot):
    letters = dict(zip((t.name for t in shot.tables), drawing_letters(shot)))
    for drawn, block in zip(blocks(drawing(shot)), block_views(shot), strict=True):
        said = [text for text in drawn.texts[1:] if not re.fullmatch(r"#[0-9a-f]{6}", text)]
        assert drawn.texts[0] == str(block.block_id)
        assert (f"#{block.prefix}" in drawn.texts) == bool(block.prefix)
        own = "".join(letters[name] for name in block.owners)
        count = f" ×{block.ref_count}" if block.ref_count > 1 else ""
        assert said[-1] == (own + count or block.state)


def drawing_letters(shot: Snapshot) -> list[str]:
    """The letters of the sequences, read from the lines below the blocks."""
    lines = words(drawing(shot)).split(" free, next")[0].split("]")[:-1]
    return [re.findall(r"(?:^| )([A-Z@]) (?:= \S+ )?\[[-\d ]*$", line)[0] for line in lines]


def test_as_many_slots_are_filled_and_dashed_as_are_written_and_promised(shot):
    for drawn, block in zip(blocks(drawing(shot)), block_views(shot), strict=True):
        written = block.num_written if block.state == "held" else 0
        assert (drawn.num_written, drawn.num_promised) == (written, block.num_promised)


def test_a_written_slot_has_the_colour_of_each_holder():
    shared = STORY[5]
    letters = {table.name: table.name for table in shared.tables}
    for drawn, block in zip(blocks(drawing(shared)), block_views(shared), strict=True):
        own = [letters[name] for name in block.owners]
        assert drawn.fills == tuple(PALETTE["ABCD".index(letter)] for letter in own)


def test_the_tables_and_the_free_order_are_those_of_the_terminal(shot):
    picture = drawing(shot)
    said, terminal = words(picture), plain_words(picture)
    for table in shot.tables:
        ids = " ".join(map(str, table.block_ids))
        told = f"[{ids}] {table.num_tokens} token"
        assert told in said
        assert told in terminal
    free = f"free, next first: {' '.join(map(str, shot.free_order)) or 'none'}"
    assert free in said
    assert free in terminal


@pytest.mark.parametrize("step", range(1, len(STORY)))
def test_a_step_marks_and_tells_its_changes(step):
    before, after = STORY[step - 1], STORY[step]
    picture = drawing(after, before=before)
    happened = changes(before, after)
    touched = {b for change in happened for b in change.block_ids}
    assert {b.block_id for b in blocks(picture) if b.is_changed} == touched
    for change in happened:
        assert f"{change.kind}: {change.text}" in words(picture)
        assert f"{change.kind}: {change.text}" in plain_words(picture)


@pytest.mark.parametrize("step", range(1, len(STORY)))
def test_a_change_is_about_the_blocks_that_its_text_names(step):
    for change in changes(STORY[step - 1], STORY[step]):
        named = re.findall(r"blocks? (\d+(?:, \d+)*)", change.text)
        ids = {int(n) for group in named for n in group.split(", ")}
        if change.kind == "copied":
            ids = {int(change.text.split(" to ")[1].split(",")[0])}
        if change.kind == "published":
            ids = {int(n) for n in re.findall(r"(\d+) as #", change.text)}
        assert change.block_ids or change.kind in ("truncated",)
        assert not ids or set(change.block_ids) == ids, change


def test_written_blocks_are_those_that_hold_the_positions():
    books, a = BlockPool(4), None
    a = BlockTable(books, 4)
    a.reserve(7)
    before = Snapshot.take(books, {"A": a}, 4)
    a.commit(range(7))
    (change,) = changes(before, Snapshot.take(books, {"A": a}, 4))
    assert (change.kind, change.block_ids) == ("written", (0, 1))


def test_a_copied_block_says_so_and_not_that_it_was_promised():
    books = BlockPool(3)
    a = BlockTable(books, 4)
    a.reserve(2)
    a.commit([1, 2])
    b = a.fork()
    before = Snapshot.take(books, {"A": a, "B": b}, 4)
    reserve([a], [1])
    picture = drawing(Snapshot.take(books, {"A": a, "B": b}, 4), before=before)
    assert [block.texts[-1] for block in blocks(picture)] == ["B", "copied", "blank"]


def test_without_an_earlier_snapshot_nothing_is_marked(shot):
    assert not any(block.is_changed for block in blocks(drawing(shot)))
    assert "changed in this step" not in words(drawing(shot))


def test_what_a_slot_or_block_is_shows_without_colour():
    written = Box(PALETTE[0])
    looks = [in_one_colour(box) for box in (written, EMPTY, PROMISED, CACHED, CHANGED)]
    assert len(set(looks)) == len(looks)


def test_every_sequence_beyond_the_alphabet_is_a_crowd():
    picture = drawing(pool(60, 1, 40))
    assert f"{CROWD} one for whom no letter is left" in words(picture)
    assert "more sequences" in words(picture)


def test_letters_are_kept():
    shot = pool(8, 4, 3)
    shown = words(drawing(shot, letters={"r0": "Z", "r1": "Q"}))
    assert "Z = r0" in shown
    assert "Q = r1" in shown


def test_dropped_blocks_are_dashes_and_pinned_ones_are_copied():
    table = TableView("A", (-1, 2), 6, 6)
    shot = Snapshot(4, (0, 0, 1), (None, None, None), (0,), (table,), 0)
    assert "A [- 2] 6 tokens" in words(drawing(shot))
    assert [block.texts[1] for block in blocks(drawing(shot))] == ["blank", "copied", "A"]
    assert "source of a copy to come" in words(drawing(shot))


# --- series --------------------------------------------------------------------------------------


def test_a_series_counts_time_and_marks_each_against_the_one_before():
    picture = series(STORY[2:5], ["one", "", "three"])
    said = words(picture)
    for title in ("Time 1: one", "Time 2", "Time 3: three"):
        assert title in said
        assert title in plain_words(picture)
    for before, after in pairwise(STORY[2:5]):
        for change in changes(before, after):
            assert f"{change.kind}: {change.text}" in said
    assert picture.svg.count("data-block") == 3 * 8
    assert said.count("empty") == str(picture).count("empty") == 1  # one legend


def test_a_sequence_keeps_its_letter_through_a_series():
    shots = [pool(8, 4, 3, name) for name in ("x{}", "x{}")]
    alone = Snapshot(4, shots[0].ref_counts, shots[0].prefixes, (), shots[0].tables[1:], 0)
    assert words(series([shots[0], alone], ["", ""])).count("B = x1") == 2


def test_a_series_needs_a_caption_for_each():
    with pytest.raises(ValueError, match="2 snapshots and 1 captions"):
        series(STORY[:2], ["one"])
    with pytest.raises(ValueError, match="0 snapshots and 0 captions"):
        series([], [])


# --- notebooks -----------------------------------------------------------------------------------


def test_a_snapshot_shows_itself_in_a_notebook(shot):
    assert shot._repr_html_() == drawing(shot)._repr_html_()
    assert shot._repr_html_().startswith("<div")


def test_prefix_names_are_drawn_whole_where_there_is_room():
    books = BlockPool(2)
    table = BlockTable(books, 4, root_hash())
    table.reserve(4)
    table.commit(range(4))
    shot = Snapshot.take(books, {"A": table}, 4)
    assert f"#{shot.prefixes[0]}" in words(drawing(shot))
