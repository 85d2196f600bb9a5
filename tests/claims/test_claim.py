"""What counts as agreement, and that every form of a claim tells the same."""

from __future__ import annotations

import json
import math
from io import StringIO

import pytest
from rich.console import Console

from minipaged.claims.captions import CAPTIONS
from minipaged.claims.claim import Claim, Row, Tolerance
from minipaged.claims.report import (
    WALL,
    Reproduction,
    claim_to_markdown,
    shown,
    to_json,
    to_markdown,
)
from minipaged.claims.terminal import STYLES, banner, closing, table_of
from minipaged.claims.verdicts import FORETOLD, MARKS, SAID, WORDS, mark_of

ROWS = (
    Row("tokens", "38.2 %", 40.0, "%", Tolerance.around(38.2, 5)),
    Row("batch", "2x | 4x", 1.4, "x", Tolerance.between(2, 4), note="too small a pool"),
    Row("time", "", 0.0123, "ms", wall=True),
)
CLAIM = Claim("waste", "C1  Waste", "It is little.", "section 2", ROWS, ("a note",), {"x": [1]})


def found(*rows: Row) -> Reproduction:
    claim = Claim("waste", "C1  Waste", "It is little.", "section 2", rows, ("a note",), {"x": [1]})
    return Reproduction((claim,), seed=3, quick=False)


@pytest.mark.parametrize(
    ("tolerance", "agreeing", "differing"),
    [
        (Tolerance.around(10, 2), (8, 10, 12), (7.99, 12.01)),
        (Tolerance.within(-10, 0.1), (-11, -9), (-11.1, -8.9, 10)),
        (Tolerance.between(2, 4), (2, 4), (1.9, 4.1)),
        (Tolerance.at_most(4), (4, -100), (4.1, math.inf)),
        (Tolerance.at_least(4), (4, 100), (3.9, -math.inf)),
        (Tolerance.exactly(0), (0,), (1e-300, -1)),
    ],
)
def test_what_is_tolerated(tolerance, agreeing, differing):
    for value in agreeing:
        assert Row("", "", value, tolerance=tolerance).verdict == "agrees", value
    for value in (*differing, math.nan):
        assert Row("", "", value, tolerance=tolerance).verdict == "differs", value


def test_without_a_tolerance_nothing_is_judged():
    assert Row("", "said", 3.0).verdict == "measured"


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [((0, 2), "agrees"), ((0, 1, 2), "differs"), ((2,), "measured"), ((), "measured")],
)
def test_a_claim_is_as_good_as_its_worst_row(rows, verdict):
    assert found(*(ROWS[i] for i in rows)).claims[0].verdict == verdict


IN, NEAR, OUT = 3.0, 1.9, 1.0
WIDE, SPAN = Tolerance.between(1.8, 4.4), Tolerance.between(2, 4)


@pytest.mark.parametrize(
    ("options", "verdicts"),
    [
        ({"span": SPAN}, ("agrees", "near", "differs")),
        ({}, ("agrees", "agrees", "differs")),
        ({"basis": "foretold"}, ("holds", "holds", "fails")),
        ({"basis": "fitted"}, ("fitted", "fitted", "differs")),
        ({"few": True, "span": SPAN}, ("unjudged",) * 3),
        ({"few": True, "basis": "foretold"}, ("unjudged",) * 3),
    ],
)
def test_a_verdict_says_what_was_compared_with_what(options, verdicts):
    """What was allowed beside a range is no agreement, what was fitted no evidence."""
    rows = [Row("", "2 to 4", value, tolerance=WIDE, **options) for value in (IN, NEAR, OUT)]
    assert tuple(row.verdict for row in rows) == verdicts


def test_what_lies_beside_a_range_says_on_which_side():
    marks = [mark_of(Row("", "", v, tolerance=WIDE, span=SPAN)) for v in (1.9, 2.0, 4.1)]
    assert marks == ["≈ just below", "✓ agrees", "≈ just above"]


def test_every_verdict_has_a_mark_words_and_a_style():
    assert set(MARKS) == set(WORDS) == set(STYLES)
    assert len(set(MARKS.values())) == len(MARKS)


def test_what_others_say_is_counted_apart_from_laws_and_fits():
    """Two laws, one broken, and a fit do not make the paper's number agree more often."""
    law = {"tolerance": Tolerance.exactly(1), "basis": "foretold"}
    rows = (
        Row("a", "1", 1.0, **law),
        Row("b", "1", 2.0, **law),
        Row("c", "3", 3.0, tolerance=WIDE, basis="fitted"),
        Row("d", "2 to 4", 1.9, tolerance=WIDE, span=SPAN),
        Row("e", "2 to 4", 1.9, tolerance=WIDE, few=True),
    )
    assert found(*rows).summary() == (
        "5 numbers of 1 claim: 1 beside what others say (1 just outside of the range that is "
        "said); 2 beside what is foretold here (1 as foretold, 1 not so); 1 that a constant was "
        "fitted to, so no evidence; 1 not judged, because too little was drawn."
    )
    assert [text.split(":")[1] for text in found(*rows).differing()] == [" b"]
    assert not set(SAID) & set(FORETOLD)


@pytest.mark.parametrize("percent", [0.0, 0.35, 4.0, 57.3, 96.3, 100.0])
@pytest.mark.parametrize("share", [None, 0.05])
def test_a_tolerance_of_a_share_can_fail_on_both_sides_of_what_is_possible(percent, share):
    """Never below 0 or above 100 per cent, and not wider than what was allowed."""
    tolerance = Tolerance.points(percent, 5.0, share)
    assert 0 <= tolerance.low <= percent <= tolerance.high <= 100
    assert tolerance.high - tolerance.low <= 10
    if share is not None:
        assert tolerance.high - tolerance.low <= 2 * share * percent + 1e-12
        assert tolerance.low > 0 or percent == 0


def test_a_tolerance_has_the_digits_of_what_is_measured():
    assert str(Tolerance.within(30.42, 0.2)) == "24.3 to 36.5"
    assert str(Tolerance.around(24.3871, 1e-9)) == shown(24.3871) == "24.4"


def test_a_look_says_that_it_is_one():
    quick = Reproduction((CLAIM,), seed=0, quick=True)
    console = Console(width=120, record=True, file=StringIO())
    console.print(banner())
    for text in (console.export_text(), to_markdown(quick)):
        assert "A look, not a measurement." in text
        assert "biased" in text
    assert "biased" not in to_markdown(found(*ROWS))


def test_what_was_left_out_is_said():
    claim = Claim("waste", "C1", "", "", ROWS, ("a note",), left_out="the best part")
    assert "- Left out by `--quick`: the best part." in claim_to_markdown(claim)
    assert "Left out" not in claim_to_markdown(CLAIM)


def test_numbers_are_read_easily():
    assert shown(1856) == "1,856"
    assert shown(0.0996, "x") == "0.0996 x"
    assert shown(math.inf, "s") == "- s"
    assert str(Tolerance.exactly(13_824)) == "13,824"
    assert str(Tolerance.at_least(1.5)) == "at least 1.5"


def test_the_table_shows_every_row_and_note():
    console = Console(width=120, record=True, file=StringIO())
    console.print(table_of(CLAIM))
    text = console.export_text()
    for word in ("C1  Waste", "33.2 to 43.2", "40 %", "✓ agrees", "✗ differs", "· measured"):
        assert word in text
    assert f"0.0123 ms {WALL}" in text
    assert "✗ differs [1]" in text
    assert "[1] too small a pool" in text
    assert "a note" in text


def test_at_the_end_is_what_differs():
    console = Console(width=120, record=True, file=StringIO())
    console.print(closing(found(*ROWS, *ROWS[:1])))
    lines = console.export_text().splitlines()
    assert lines[0].split() == ["✓", "agrees", "✗", "differs", "·", "measured"]
    assert lines[1].split() == ["C1", "Waste", "2", "1", "1"]
    assert "✗ waste: batch: said 2x | 4x, measured 1.4 x" in lines
    assert lines[-1].startswith(WALL)
    page = to_markdown(found(*ROWS, *ROWS[:1])).splitlines()
    assert "| C1  Waste | 2 | 1 | 1 |" in page
    console = Console(width=120, record=True, file=StringIO())
    console.print(closing(found(ROWS[0])))
    assert "✗" not in console.export_text().partition("\n")[2]


def test_a_note_is_said_once():
    rows = [Row(what, "", 1.0, note=note) for what, note in zip("abcd", ["x", "y", "x", "x"])]
    text = claim_to_markdown(found(*rows).claims[0])
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- [1] x",
        "- [2] y",
        "- a note",
    ]
    marks = [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("| ")]
    assert marks[1:] == [f"· measured [{i}]" for i in (1, 2, 1, 1)]


def test_markdown_is_a_table_that_nothing_breaks():
    lines = claim_to_markdown(CLAIM).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(ROWS)
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert "- [1] too small a pool" in lines
    assert f"| time |  |  | 0.0123 ms {WALL} | · measured |" in lines


def test_the_page_says_how_it_was_made_and_shows_the_figures_that_are_there():
    page = to_markdown(found(*ROWS), ["waste.svg", "chat.svg"])
    assert "`minipaged reproduce waste --seed 3`" in page
    assert 'srcset="waste-dark.svg"' in page
    assert CAPTIONS["waste"].alt in page
    assert "chat" not in page
    assert "<picture>" not in to_markdown(found(*ROWS))
    assert (
        "3 numbers of 1 claim: 2 beside what others say (1 agreeing, 1 differing); 1 just" in page
    )
    assert WALL in page
    assert f"`{WALL}` marks" not in to_markdown(found(ROWS[0]))


def test_json_holds_all_of_it():
    rows = (*ROWS, Row("none", "", math.inf))
    (claim,) = json.loads(to_json(found(*rows)))["claims"]
    assert [row["verdict"] for row in claim["rows"]] == ["agrees", "differs", *2 * ["measured"]]
    assert [row["wall"] for row in claim["rows"]] == [False, False, True, False]
    assert claim["rows"][3]["measured"] is None
    assert claim["rows"][1]["agrees_if"] == "2 to 4"
    assert claim["series"] == {"x": [1]}
