"""A recorded run as one page: what it shows is what was drawn, and nothing in it can reach out."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from minipaged.core import BlockPool, BlockTable, Snapshot, root_hash
from minipaged.view import Change, Moment, block_views, frames, stepper
from minipaged.view.moment import Line, Piece, Told, mentioned, moments, num_used
from minipaged.view.stepper import MOST_BLOCKS
from minipaged.view.stepper_data import edits


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag == "script"
        if self._open:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = False

    def handle_data(self, data):
        if self._open:
            self.scripts[-1] += data

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[0])


def run(num_steps: int, num_blocks: int, num_tables: int = 4) -> list[Snapshot]:
    """Sequences of one prompt that grow by a token each step, and start anew when all is full."""
    pool, shots = BlockPool(num_blocks), []
    first = BlockTable(pool, 16, root_hash())
    first.reserve(20)
    first.commit([7] * 20)
    tables = [first, *(first.fork() for _ in range(num_tables - 1))]
    for _ in range(num_steps):
        for i, table in enumerate(tables):
            if pool.num_free < 2 * num_tables:
                table.release()
            table.reserve(1)
            table.commit([*([7] * min(table.num_tokens, 20)), *[i] * 4000])
        named = {f"request {i}": table for i, table in enumerate(tables)}
        shots.append(Snapshot.take(pool, named, 16))
    return shots


def patched(changed: list, before: list) -> list:
    """As the page's script does it."""
    found = []
    for edit in changed:
        found += before[edit[0] : edit[1]] if isinstance(edit, list) else [edit]
    return found


def pictures(data: dict) -> list[str]:
    """Every frame's SVG as the page's script puts it together."""
    found, known = [], []
    for step in data["steps"]:
        known = patched(step["picture"], known)
        found.append(data["head"] + "".join(data["parts"][i] for i in known) + "</svg>")
    return found


def test_every_frame_shows_the_pool_of_its_moment():
    told = list(frames())
    for frame, svg in zip(told, pictures(Page(stepper(told).page()).data), strict=True):
        words = " ".join(unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)", svg))
        for block in block_views(frame.snapshot):
            assert f'data-block="{block.block_id}"' in svg
            holders = "".join(block.owners) + f" ×{block.ref_count}" * block.is_shared
            assert holders in words, frame.title
        free = " ".join(map(str, frame.snapshot.free_order)) or "none"
        assert f"free, next first: {free}" in words


def test_frames_do_not_depend_on_those_before():
    told = list(frames())
    whole = pictures(Page(stepper(told).page()).data)
    assert whole[0] == pictures(Page(stepper(told[:1] + told[-1:]).page()).data)[0]
    assert len(set(whole)) > 10


def test_texts_are_kept_as_they_were():
    shot = Snapshot.take(BlockPool(2), {}, 4)
    texts = [("ab", ""), ("abcd", "e"), ("x", "yz")]
    told = [
        Moment(f"m{i}", shot, (), (Line("A", f"s{i}", (Piece(0, *text), Piece(None, "", "!"))),))
        for i, text in enumerate(texts)
    ]
    data, known = Page(stepper(told).page()).data, []
    for step, (given, generated) in zip(data["steps"], texts, strict=True):
        ((name, _, changed),) = step["lines"]
        known = patched(changed, known)
        assert name == "A"
        assert [data["pieces"][i] for i in known] == [[0, given, generated], [None, "", "!"]]


def test_what_a_model_says_stays_inside():
    """Whatever is generated ends neither the data nor the page, and is no element."""
    evil = "</script><script>alert(1)</script><!-- <script> ]]> \u2028 @@data@@ &amp;"
    shot = Snapshot.take(BlockPool(2), {}, 4)
    line = Line(evil, evil, (Piece(0, evil, evil),))
    page = Page(stepper([Moment(evil, shot, (Change("said", evil),), (line,))], title=evil).page())
    assert len(page.scripts) == 2
    (step,) = page.data["steps"]
    assert step["title"] == evil == step["changes"][0][1] == step["lines"][0][0]
    assert page.data["pieces"] == [[0, evil, evil]]


def test_nothing_is_fetched():
    text = stepper(frames()).page()
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [value for _, attrs in page.tags for name, value in attrs.items() if name == "src"]
    assert set(re.findall(r"\w+://[^\s\"'<\\]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|import\(", text)


def test_only_this_script_may_run():
    page = Page(stepper(frames()).page())
    (policy,) = (a["content"] for t, a in page.tags if a.get("http-equiv"))
    digest = b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]


def test_without_javascript_the_first_frame_is_there():
    told = list(frames())
    text = stepper(told).page()
    (inside,) = re.findall(r"<noscript>(.*?)</noscript>", text, re.DOTALL)
    assert told[0].title in inside
    assert pictures(Page(text).data)[0] in inside


def test_two_hundred_steps_of_sixty_four_blocks_are_small():
    page = stepper(run(200, 64)).page()
    assert len(page.encode()) < 2_000_000
    assert len(pictures(Page(page).data)) == 200


def test_of_a_large_pool_only_what_is_used_is_drawn():
    page = stepper(run(2, 5000)).page()
    drawn = set(re.findall(r'data-block="(\d+)"', pictures(Page(page).data)[-1]))
    assert len(drawn) == 8
    assert "4,992 more blocks are never used." in page


def test_a_pool_that_is_used_too_widely_is_cut_off():
    pool = BlockPool(2000)
    table = BlockTable(pool, 4)
    table.reserve(4 * 1900)
    page = stepper([Snapshot.take(pool, {"A": table}, 4)]).page()
    drawn = re.findall(r'data-block="(\d+)"', pictures(Page(page).data)[0])
    assert len(drawn) == MOST_BLOCKS
    assert f"{1900 - MOST_BLOCKS:,} more blocks are used, too many to be drawn." in page
    assert "100 more blocks are never used." in page


def test_the_free_order_names_no_block_that_is_not_drawn():
    """And counts all that it does not name."""
    for num_blocks in (3, 24, 300, 5000):
        pool = BlockPool(num_blocks)
        table = BlockTable(pool, 4)
        table.reserve(9)
        shots = [Snapshot.take(pool, {"A": table}, 4)]
        table.release()
        shots.append(Snapshot.take(pool, {}, 4))
        for shot, svg in zip(shots, pictures(Page(stepper(shots).page()).data), strict=True):
            drawn = {int(b) for b in re.findall(r'data-block="(\d+)"', svg)}
            (words,) = re.findall(r"free, next first: ([^<]*)<", svg)
            numbers = re.findall(r"\d+", words.replace(",", ""))
            num_more = int(numbers.pop()) if "more" in words else 0
            ids = [int(number) for number in numbers]
            assert set(ids) <= drawn
            assert ids == list(shot.free_order)[: len(ids)]
            assert len(ids) + num_more == len(shot.free_order)


def test_a_block_that_only_a_change_names_is_used():
    """Handed out and given back within a step, it is in no picture."""
    shot = Snapshot.take(BlockPool(64), {}, 4)
    seen = [Moment("quiet", shot), Moment("busy", shot, (Change("allocated", "block 20", (20,)),))]
    assert num_used(seen[:1]) == 1
    assert num_used(seen) == 21
    drawn = re.findall(r'data-block="(\d+)"', pictures(Page(stepper(seen).page()).data)[0])
    assert "20" in drawn


def test_a_change_concerns_the_holders_of_its_blocks():
    for before, after in pairwise(moments(run(12, 24))):
        tables = (*before.snapshot.tables, *after.snapshot.tables)
        for change in after.changes:
            assert isinstance(change, Told)
            holders = {t.name for t in tables if {*t.block_ids} & {*change.block_ids}}
            if change.kind == "truncated":
                holders = {t.name for t in tables if change.text.startswith(f"{t.name} from ")}
            assert set(change.names) == holders, change


def test_it_shows_itself_in_a_notebook():
    shown = stepper(frames())._repr_html_()
    (tag, attrs), *_ = Page(shown).tags
    assert tag == "iframe"
    assert attrs["srcdoc"] == stepper(frames()).page()
    assert "\n" not in shown  # or Markdown would end it at a blank line


def test_the_same_run_is_the_same_page():
    assert stepper(frames()).page() == stepper(frames()).page()


def test_what_is_no_run_is_refused():
    with pytest.raises(ValueError, match="no frames"):
        stepper([])
    with pytest.raises(TypeError, match="BlockPool is no picture"):
        stepper([BlockPool(2)])


def test_moments_of_snapshots_tell_the_changes_between_them():
    first, second = list(moments(run(2, 64)))
    assert first.changes == ()
    assert "request 0" in second.changes[-1].text
    assert [piece.block_id for piece in second.lines[0].pieces] == [
        *second.snapshot.tables[0].block_ids
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [4, 5], [4, 5]),
        ([4, 5], [4, 5], [[0, 2]]),
        ([4, 5, 6], [4, 6], [[0, 1], [2, 3]]),
        ([4], [], []),
        ([4, 4], [9, 4, 4], [9, [0, 2]]),
    ],
)
def test_edits(before, after, expected):
    assert edits(before, after) == expected
    assert patched(expected, before) == after


def test_a_block_is_found_in_every_change_that_names_it():
    for frame in frames():
        for change in (c for c in frame.changes if c.kind != "written"):
            assert set(change.block_ids) <= set(mentioned(change.text)), change
