"""What holds for every picture, whatever it shows: sound, legible, stable, and safe in a page."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from html import unescape

import pytest

from minipaged.core import Ledger
from minipaged.view import (
    Card,
    Drawing,
    cards,
    drawing,
    frames,
    gantt,
    heat,
    ledger_bar,
    lines,
    series,
    stacked_bars,
    table_arrows,
    tree,
)
from minipaged.view.svg import CLASSES, PALETTE, Sheet
from minipaged.view.svg_text import fit, spread, text_width, wrap
from support.svg import clipped, in_one_colour, overlapping, parse, pool, words

NASTY = "R&D <b>\"x\"</b> 'y'"
LONG = "a name that is much too long for any label of any picture " * 3


STORY = list(frames())
BARE: Card = {"title": "", "values": {}}
PICTURES: dict[str, Callable[[], Drawing]] = {
    "one blank block": lambda: drawing(pool(1, 4, 0)),
    "no tables": lambda: drawing(pool(12, 4, 0)),
    "40 blocks": lambda: drawing(pool(40, 16, 20)),
    "400 blocks": lambda: drawing(pool(400, 16, 30)),
    **{f"block size {n}": lambda n=n: drawing(pool(12, n, 6)) for n in (1, 2, 4, 16, 32, 100)},
    "more tables than letters": lambda: drawing(pool(60, 1, 40)),
    "nasty names": lambda: drawing(pool(8, 4, 5, NASTY + "{}"), caption=NASTY),
    "long names": lambda: drawing(pool(8, 4, 5, LONG + "{}"), caption=LONG),
    "a change": lambda: drawing(STORY[6].snapshot, before=STORY[5].snapshot, caption="A change"),
    "changes in a large pool": lambda: drawing(pool(40, 4, 9), before=pool(40, 4, 0)),
    "a series": lambda: series([f.snapshot for f in STORY], [f.title for f in STORY]),
    "a table": lambda: table_arrows([5, 2, 7], 4, 9, 8, caption="A table"),
    "a table with a window": lambda: table_arrows([-1, 3, 2], 4, 9, 8),
    "a table of large blocks": lambda: table_arrows([5, 2, 70], 16, 40, 100),
    "an empty table": lambda: table_arrows([], 1, 0, 1),
    "bars": lambda: stacked_bars({"x": {"a": 0.5, "b": 0.5}, "y": {"b": 1}}, ["a", "b"], "Bars"),
    "narrow bars": lambda: stacked_bars({"x": dict(zip("abcdef", [0.95] + 5 * [0.01]))}, "abcdef"),
    "seven bars": lambda: stacked_bars({LONG: dict.fromkeys("abcdefg", 1 / 7)}, list("abcdefg")),
    "bars of long names": lambda: stacked_bars({NASTY: {NASTY: 0.9, LONG: 0.1}}, [NASTY, LONG]),
    "a ledger": lambda: ledger_bar(Ledger(6, 4, 0, 2, 0, 0, 4, saved=4), caption="A ledger"),
    "lines": lambda: lines({"a": [1, 2, 3], "b": [(0, 5), (9, 1)]}, "step", "tokens"),
    "lines that meet": lambda: lines({c * 9: [0, 1] for c in "abcdefg"}, "step", "share"),
    "one point": lambda: lines({NASTY: [0], LONG: [(0, 1)]}, NASTY, LONG, caption=NASTY),
    "a logarithmic axis": lambda: lines({"a": [(1, 9e6), (4096, 1e-3)]}, "x", "y", log_x=True),
    "negative values": lambda: lines({"a": [-3, -2], "b": [-700, 5.5]}, "x", "y"),
    "a chart": lambda: gantt({"A": ["prefill", "decode"], LONG: [None, "wait"]}, caption=NASTY),
    "a long chart": lambda: gantt({NASTY: ["on", None, LONG] * 300, "": []}),
    "a tree": lambda: tree([(0, None, "a", False), (1, 0, NASTY, False), (2, 0, "c", True)]),
    "a broad tree": lambda: tree([(i, (i - 1) // 3 if i else None, f"{i}", 0) for i in range(40)]),
    "a deep tree": lambda: tree([(i, i - 1 if i else None, LONG, i > 9) for i in range(40)], NASTY),
    "numbers": lambda: heat([[0, 1, 2], [3, None, 12345]], "address", "thread", every=2),
    "squares": lambda: heat([[i * j for j in range(64)] for i in range(32)], "x", "y", every=8),
    "only squares": lambda: heat([[0.5, None]], LONG, NASTY, numbers=False, caption=LONG),
    "cards": lambda: cards([{"title": f"{i}", "values": {"m": 1, "l": "x"}} for i in range(9)]),
    "two cards": lambda: cards([{"title": LONG, "values": {NASTY: LONG}}, BARE]),
}  # fmt: skip


@pytest.fixture(scope="module", params=PICTURES)
def picture(request) -> Drawing:
    return PICTURES[request.param]()


def test_it_is_well_formed_and_one_line(picture):
    assert parse(picture).tag.endswith("svg")
    assert "\n" not in picture._repr_html_()


def test_it_has_no_ids_that_could_collide_and_fetches_nothing(picture):
    root = parse(picture)
    for element in root.iter():
        assert not {"id", "href", "class", "onclick"} & set(element.attrib)
        assert element.tag.rpartition("}")[2] not in ("image", "script", "style", "use", "defs")
    assert "url(" not in picture.svg


def test_a_reader_who_does_not_see_it_is_told(picture):
    root = parse(picture)
    title, description = (child.text for child in list(root)[:2])
    assert root.get("role") == "img"
    assert root.get("aria-label") == title
    assert title
    assert description
    assert len(description) > 10


def test_no_text_is_clipped(picture):
    assert clipped(picture) == []


def test_no_text_covers_another(picture):
    assert overlapping(picture) == []


def test_text_is_large_enough_on_a_phone(picture):
    width = float(parse(picture).attrib["viewBox"].split()[2])
    sizes = {float(e.get("font-size")) for e in parse(picture).iter() if e.get("font-size")}
    assert min(sizes) * 360 / width >= 7.5


def test_it_is_told_in_the_terminal_too(picture):
    text = str(picture)
    assert text.strip()
    assert all(len(line) <= 80 for line in text.splitlines())


def test_colours_are_those_of_the_page_and_the_palette(picture):
    paints = set(re.findall(r'(?:fill|stroke)="([^"]*)"', picture.svg))
    assert paints <= {*PALETTE, "currentColor", "none"}


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_input_gives_the_same_bytes(name):
    assert PICTURES[name]().svg == PICTURES[name]().svg


def test_markup_in_a_name_stays_a_name():
    svg = PICTURES["nasty names"]().svg
    assert "<b>" not in svg
    assert NASTY in unescape(svg)
    assert NASTY in words(PICTURES["nasty names"]())


def test_control_characters_do_not_break_the_xml():
    shown = words(cards([{"title": "a\x00b\n\n\tc\ud800", "values": {}}]))
    assert shown == "a�b c�"


# --- the layer below -----------------------------------------------------------------------------


def test_classes_differ_in_more_than_colour():
    assert len({in_one_colour(box) for box in CLASSES}) == len(CLASSES) == len(set(PALETTE))


def test_a_hatch_is_seen_in_small_rectangles():
    for box in CLASSES[1:]:
        for width, height in ((4, 24), (18, 12), (100, 17), (11, 11)):
            sheet = Sheet()
            sheet.rect(0, 0, width, height, box)
            assert "<path" in sheet.render("", ""), (box, width, height)


@pytest.mark.parametrize("box", CLASSES[1:], ids=lambda box: f"hatch {box.hatch}")
def test_a_hatch_stays_inside(box):
    rng = random.Random(5)
    for _ in range(200):
        x, y, width, height = (rng.uniform(1, 60) for _ in range(4))
        sheet = Sheet()
        sheet.rect(x, y, width, height, box)
        for path in re.findall(r' d="([^"]*)"', sheet.render("", "")):
            for a, b in ends_of(path):
                assert x - 0.01 <= a <= x + width + 0.01
                assert y - 0.01 <= b <= y + height + 0.01


def ends_of(path: str) -> list[tuple[float, float]]:
    """Both ends of each line of a hatch."""
    found, (x, y) = [], (0.0, 0.0)
    for sign, numbers in re.findall(r"([MLhv])([-0-9. ]+)", path):
        values = [float(n) for n in numbers.split()]
        if sign in "ML":
            x, y = values
        else:
            x, y = (x + values[0], y) if sign == "h" else (x, y + values[0])
        found.append((x, y))
    return found


def test_fit_and_wrap_keep_to_the_room():
    rng = random.Random(3)
    for _ in range(300):
        text = "".join(rng.choice("ab 漢é&") for _ in range(rng.randrange(40)))
        room = rng.uniform(20, 200)
        assert text_width(fit(text, room)) <= room
        broken = wrap(text, room)
        assert all(text_width(line) <= room for line in broken)
        if not any("…" in line for line in broken):
            assert " ".join(broken).split() == text.split()


def test_spread_keeps_order_and_distance():
    rng = random.Random(4)
    for _ in range(300):
        sizes = [rng.uniform(5, 20) for _ in range(rng.randrange(1, 8))]
        places = sorted(rng.uniform(0, 200) for _ in sizes)
        found = spread(places, sizes, stop=200)
        assert found[0] - sizes[0] / 2 >= -1e-9
        assert found[-1] + sizes[-1] / 2 <= 200 + 1e-9
        for i in range(len(sizes) - 1):
            assert found[i + 1] - found[i] >= (sizes[i] + sizes[i + 1]) / 2 - 1e-9


def test_spread_leaves_alone_what_has_room():
    assert spread([10, 50, 90], [20, 20, 20], stop=100) == [10, 50, 90]
