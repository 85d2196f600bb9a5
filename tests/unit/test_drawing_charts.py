"""Charts show the numbers they were given, in both forms, and refuse what cannot be shown."""

from __future__ import annotations

import math
import random
import re

import pytest

from minipaged.core import Ledger
from minipaged.view import (
    Drawing,
    cards,
    gantt,
    heat,
    ledger_bar,
    lines,
    stacked_bars,
    table_arrows,
    tree,
)
from minipaged.view.bar import CLASSES as LEDGER_CLASSES
from minipaged.view.figure_bars import per_cent
from minipaged.view.figure_lines import _ticks
from minipaged.view.svg import CLASSES, WIDTH
from minipaged.view.svg_text import short
from support.svg import parse, plain_words, texts, words

NAN, INFINITE = math.nan, math.inf


def both(drawing: Drawing) -> tuple[str, str]:
    """The words of the picture and of the terminal's form."""
    return words(drawing), plain_words(drawing)


def rects(drawing: Drawing) -> list[dict[str, str]]:
    return [e.attrib for e in parse(drawing).iter() if e.tag.endswith("rect")]


# --- bars ----------------------------------------------------------------------------------------

ROWS = {
    "reserve the longest": {"tokens": 0.189, "reserved": 0.019, "never used": 0.792},
    "paged": {"tokens": 0.981, "never used": 0.019},
}
PARTS = ["tokens", "reserved", "never used"]


def test_every_share_is_written_beside_its_name_and_in_proportion():
    picture = stacked_bars(ROWS, PARTS, caption="Slots")
    for said in both(picture):
        for label, row in ROWS.items():
            assert label in said
            assert all(per_cent(share) in said for share in row.values())
        assert all(part in said for part in PARTS)
    widths = [float(r["width"]) / WIDTH for r in rects(picture)]
    assert widths[:5] == pytest.approx([0.189, 0.019, 0.792, 0.981, 0.019], abs=1e-4)


def test_a_part_keeps_its_look_in_all_rows_and_the_legend():
    fills = [r["fill"] for r in rects(stacked_bars(ROWS, PARTS))]
    tokens, reserved, never = (box.fill for box in CLASSES[:3])
    assert fills == [tokens, reserved, never, tokens, never, tokens, reserved, never]


def test_a_part_that_occurs_nowhere_is_not_explained():
    said, terminal = both(stacked_bars({"x": {"a": 1, "b": 0}}, ["a", "b", "c"]))
    assert said == "x 100.0 % a"
    assert terminal.endswith("█ 100.0 % a")


@pytest.mark.parametrize(
    ("shares", "told"), [([0.5, 0.4], "0.9"), ([0.6, 0.5], "1.1"), ([0, 0], "0")]
)
def test_shares_that_do_not_sum_to_one_are_refused_with_their_sum(shares, told):
    with pytest.raises(ValueError, match=f"x: the shares sum to {re.escape(told)}, not to 1"):
        stacked_bars({"x": dict(zip("ab", shares))}, ["a", "b"])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"a": NAN, "b": 1}, "x: a is nan: only finite numbers"),
        ({"a": -0.5, "b": 1.5}, "x: a share is negative"),
        ({"a": 0.5, "c": 0.5}, r"x: \['c'\] is not among the parts \['a', 'b'\]"),
    ],
)
def test_what_is_no_share_is_refused(row, told):
    with pytest.raises(ValueError, match=told):
        stacked_bars({"x": row}, ["a", "b"])


def test_no_rows_and_too_many_parts_are_refused():
    with pytest.raises(ValueError, match="one row at least"):
        stacked_bars({}, ["a"])
    with pytest.raises(ValueError, match="7 different names at most"):
        stacked_bars({"x": {"a": 1}}, list("abcdefgh"))
    with pytest.raises(ValueError, match="7 different names at most"):
        stacked_bars({"x": {"a": 1}}, ["a", "a"])


def test_shares_of_a_third_are_close_enough_to_one():
    stacked_bars({"x": {"a": 1 / 3, "b": 2 / 3 + 1e-9}}, ["a", "b"])


def test_a_ledger_shows_its_counts():
    ledger = Ledger(6, 4, 1, 2, 3, 7, 9, saved=4)
    for said in both(ledger_bar(ledger, caption="Now")):
        assert "Now" in said
        for name, (word, _) in LEDGER_CLASSES.items():
            assert f"{getattr(ledger, name)} {word}" in said
        assert "32 slots" in said
        assert "4 saved by sharing" in said


# --- lines ---------------------------------------------------------------------------------------


def test_lines_name_their_ends_axes_and_differ_in_their_dashes():
    values = {"paged": [(1, 0.99), (16, 0.94)], "contiguous": [0.25, 0.5]}
    picture = lines(values, "block_size", "share of tokens", caption="Waste")
    for said in both(picture):
        for text in (
            "Waste",
            "block_size",
            "share of tokens",
            "paged",
            "contiguous",
            "0.94",
            "0.5",
        ):
            assert text in said
    curves = [e.attrib for e in parse(picture).iter() if e.get("stroke-width") == "2.2"]
    assert len(curves) == 2
    assert len({curve.get("stroke-dasharray") for curve in curves}) == 2


def test_a_point_lies_where_its_number_says():
    picture = lines({"a": [(0, 0), (5, 50), (10, 100)]}, "x", "y")
    (curve,) = (e for e in parse(picture).iter() if e.get("stroke-width") == "2.2")
    (x0, y0), (x1, y1), (x2, y2) = (
        tuple(map(float, place.split(","))) for place in curve.attrib["points"].split()
    )
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.01)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.01)
    assert x0 < x2
    assert y0 > y2
    heights = {t.text: (t.top + t.bottom) / 2 for t in texts(picture) if t.right < x0}
    assert heights["0"] == pytest.approx(y0, abs=4)
    assert heights["100"] == pytest.approx(y2, abs=4)


def test_on_a_logarithmic_axis_doubling_is_one_step():
    picture = lines({"a": [(1, 1), (2, 1), (8, 1)]}, "x", "y", log_x=True)
    (curve,) = (e for e in parse(picture).iter() if e.get("stroke-width") == "2.2")
    x1, x2, x8 = (float(place.split(",")[0]) for place in curve.attrib["points"].split())
    assert x8 - x2 == pytest.approx(2 * (x2 - x1), abs=0.02)


def test_ticks_are_round_and_enclose_the_values():
    rng = random.Random(1)
    for _ in range(500):
        low, high = sorted(rng.uniform(-1, 1) * 10 ** rng.randrange(-4, 7) for _ in range(2))
        ticks = _ticks(low, high)
        step = ticks[1] - ticks[0]
        assert ticks[0] <= low + 1e-6 * step
        assert ticks[-1] >= high - 1e-6 * step
        assert 2 <= len(ticks) <= 8
        assert f"{step:.1e}"[:3] in ("1.0", "2.0", "5.0")
        assert all(abs(tick / step - round(tick / step)) < 1e-6 for tick in ticks)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "draws 1 to 7 series, got 0"),
        ({key: [1] for key in "abcdefgh"}, "draws 1 to 7 series, got 8"),
        ({"a": []}, "a has no values"),
        ({"a": [1, NAN]}, "a value of a is nan: only finite numbers"),
        ({"a": [(1, INFINITE)]}, "a value of a is inf"),
        ({"a": [(1, 1), (1, 2)]}, "a: x must ascend"),
    ],
)
def test_lines_that_cannot_be_drawn_are_refused(values, told):
    with pytest.raises(ValueError, match=told):
        lines(values, "x", "y")


def test_zero_has_no_place_on_a_logarithmic_axis():
    with pytest.raises(ValueError, match="x = 0 has no place"):
        lines({"a": [1, 2]}, "x", "y", log_x=True)


def test_constant_values_of_zero_and_one_are_drawn():
    assert "a 0" in words(lines({"a": [0, 0]}, "x", "y"))
    assert "a 1" in words(lines({"a": [1, 1]}, "x", "y"))


def test_short_numbers_are_not_other_numbers():
    rng = random.Random(2)
    for _ in range(500):
        value = rng.uniform(-1, 1) * 10 ** rng.randrange(-6, 9)
        assert float(short(value).replace(",", "")) == pytest.approx(value, rel=1e-3)
    assert [short(v) for v in (0.1, 250.5, 100, 1e-7)] == ["0.1", "250.5", "100", "1e-07"]


# --- gantt ---------------------------------------------------------------------------------------


def test_a_run_is_as_long_as_its_steps_and_carries_its_letter():
    rows = {"A": ["prefill", "decode", "decode", None], "B": [None, "", "preempted", "decode"]}
    picture = gantt(rows, caption="Steps")
    drawn = rects(picture)
    step = float(drawn[0]["width"])
    assert [float(r["width"]) / step for r in drawn[:4]] == pytest.approx([1, 2, 1, 1], abs=0.01)
    starts = [(float(r["x"]) - float(drawn[0]["x"])) / step for r in drawn[:4]]
    assert starts == pytest.approx([0, 1, 2, 3], abs=0.01)
    said, terminal = both(picture)
    assert said.startswith("Steps")
    assert re.findall(r"\b[pdr]\b", said)[:4] == ["p", "d", "r", "d"]
    assert "A |pdd. B |..rd" in terminal
    for name in ("p prefill", "d decode", "r preempted"):
        assert name in said
        assert name in terminal


def test_states_have_letters_of_their_own():
    (_, terminal) = both(gantt({"A": ["aa", "ab", "ba", "a", "b"]}))
    assert "A |abcde" in terminal.replace("A |" + terminal.split("|")[1][:5], "A |abcde")
    assert len(set(terminal.split("|")[1][:5])) == 5


def test_a_long_chart_is_sampled_and_says_so():
    terminal = str(gantt({"A": ["on"] * 1000}))
    assert "every 13th" in terminal
    assert max(map(len, terminal.splitlines())) <= 80


def test_a_chart_of_nothing_or_too_much_is_refused():
    for rows in ({}, {"A": [None, ""]}):
        with pytest.raises(ValueError, match="1 to 7 states, got 0"):
            gantt(rows)
    with pytest.raises(ValueError, match="1 to 7 states, got 8"):
        gantt({"A": list("abcdefgh")})


# --- tree ----------------------------------------------------------------------------------------

NODES = [(2, 0, "ran", True), (0, None, "cat", False), (1, 0, "sat", False), (3, 1, "on", False)]


def test_children_stand_below_their_parents_and_dead_ones_are_crossed():
    picture = tree(NODES, caption="Beams")
    place = {t.text: t for t in texts(picture)}
    assert place["cat"].bottom < place["sat"].top < place["on"].top
    assert place["sat"].top == place["× ran"].top
    assert "× dead" in place
    assert sum("stroke-dasharray" in r for r in rects(picture)) == 2  # ran, and in the legend
    for text in ("Beams", "├─ × ran", "└─ sat", "└─ on"):
        assert text in str(picture)


def test_a_broad_tree_gets_a_line_for_each_node():
    nodes = [(0, None, "root", False), *((i, 0, f"leaf number {i}", False) for i in range(1, 9))]
    rows = {t.top for t in texts(tree(nodes)) if t.text.startswith(("root", "leaf"))}
    assert len(rows) == 9


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([], "different ids"),
        ([(0, None, "a", False), (0, None, "b", False)], "different ids"),
        ([(0, 7, "a", False)], "unknown parent 7"),
        ([(0, 1, "a", False), (1, 0, "b", False)], r"nodes \[0, 1\] are each other's ancestors"),
    ],
)
def test_what_is_no_tree_is_refused(nodes, told):
    with pytest.raises(ValueError, match=told):
        tree(nodes)


# --- heat ----------------------------------------------------------------------------------------


def test_every_number_is_written_and_the_larger_is_darker():
    picture = heat([[0, 1, 2], [4, None, 8]], "address", "thread", caption="Reads")
    assert words(picture) == "Reads thread ↓ address → 0 1 2 0 1 0 1 2 4 8"
    shades = [float(r.get("fill-opacity", 0)) for r in rects(picture)]
    assert shades == sorted(shades)
    assert len(set(shades)) == 5
    assert "0 0 1 2 1 4 - 8" in plain_words(picture)


def test_where_numbers_do_not_fit_the_area_tells():
    picture = heat([[1, 4] + [0] * 62] * 2, "address", "thread")
    squares = max((e.get("d", "") for e in parse(picture).iter()), key=lambda d: d.count("z"))
    one, four = (float(side) for side in re.findall(r"h([\d.]+)v", squares)[:2])
    assert squares.count("z") == 4
    assert four == pytest.approx(2 * one, abs=0.11)
    assert "the largest is 4" in words(picture)
    assert "9 is 4" in plain_words(heat([[1, 4] + [0] * 82], "address", "thread"))


def test_heavy_lines_are_drawn_and_explained():
    picture = heat([[0, 1, 2, 3, 4]], "address", "thread", every=2)
    heavy = [e for e in parse(picture).iter() if e.get("stroke-width") == "2.2"]
    assert len(heavy) == 3
    assert "every 2 columns" in words(picture)


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        ([], r"rows of one length, got lengths \[\]"),
        ([[]], r"rows of one length, got lengths \[0\]"),
        ([[1], [1, 2]], r"rows of one length, got lengths \[1, 2\]"),
        ([[1, NAN]], "row 0, column 1 is nan"),
        ([[-1]], "numbers from 0 up, got -1"),
        ([[None]], "one number at least"),
    ],
)
def test_a_matrix_that_cannot_be_shown_is_refused(matrix, told):
    with pytest.raises(ValueError, match=told):
        heat(matrix, "x", "y")


# --- cards and tables ----------------------------------------------------------------------------


def test_cards_say_what_they_were_given_and_an_arrow_leads_to_each_but_the_first():
    given = [{"title": f"block {i}", "values": {"m": f"{i}.5", "l": i}} for i in range(7)]
    picture = cards(given, caption="States")
    for said in both(picture):
        assert said.startswith("States")
        for i in range(7):
            assert f"block {i}" in said
            assert f"{i}.5" in said
    assert picture.svg.count("<polygon") == 6
    assert str(picture).count("->") == 6
    assert cards(given, arrows=False).svg.count("<polygon") == 0


def test_no_cards_are_refused():
    with pytest.raises(ValueError, match="one card at least"):
        cards([])


def test_slots_of_a_table_are_those_of_the_formula():
    picture = table_arrows([5, 2, 7], block_size=4, num_tokens=9, num_blocks=8, caption="A")
    said = [t.text for t in texts(picture)]
    assert [int(text) for text in said if text.isdigit()].count(20) == 1
    slots = {b * 4 + offset for b in range(8) for offset in range(4)}
    assert {int(text) for text in said if text.isdigit()} == slots
    filled = [r for r in rects(picture) if r["fill"] != "none"]
    assert len(filled) == 9 + 1  # and the legend
    assert picture.svg.count("<polygon") == 3
    for i, block_id in enumerate([5, 2, 7]):
        assert f"→ {block_id}" in said
        assert f"positions {4 * i}-{4 * i + 3} -> block {block_id}," in plain_words(picture)


def test_a_passed_window_has_no_arrow():
    picture = table_arrows([-1, 3], 4, 7, 8)
    assert picture.svg.count("<polygon") == 1
    assert "-1" in words(picture)
    assert "-1, no block: a window has passed" in str(picture)


@pytest.mark.parametrize(
    ("ids", "num_tokens", "told"),
    [
        ([8], 1, r"blocks \[8\] are not in a pool of 8 blocks"),
        ([-2], 1, r"blocks \[-2\] are not in a pool"),
        ([3, 3], 1, "a block occurs twice"),
        ([3], 5, "5 tokens do not fit 1 blocks: 4"),
        ([3], -1, "-1 tokens do not fit"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(ids, num_tokens, told):
    with pytest.raises(ValueError, match=told):
        table_arrows(ids, 4, num_tokens, 8)


def test_many_blocks_that_are_not_in_the_table_are_only_counted():
    for said in both(table_arrows([5, 2], 4, 8, 1000)):
        assert "998 blocks" in said
