"""What counts as agreement, and that every form of a claim tells the same."""

from __future__ import annotations

import json
import math
from io import StringIO

import pytest
from rich.console import Console

from minipaged.claims.claim import Claim, Row, Tolerance
from minipaged.claims.report import (
    WALL,
    Reproduction,
    claim_to_markdown,
    shown,
    to_json,
    to_markdown,
)
from minipaged.claims.terminal import closing, table_of

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
    assert "batch: too small a pool" in text
    assert "a note" in text


def test_at_the_end_is_what_differs():
    console = Console(width=120, record=True, file=StringIO())
    console.print(closing(found(*ROWS, *ROWS[:1])))
    lines = console.export_text().splitlines()
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
        "- a and 2 more: x",
        "- b: y",
        "- a note",
    ]


def test_markdown_is_a_table_that_nothing_breaks():
    lines = claim_to_markdown(CLAIM).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + len(ROWS)
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert "- batch: too small a pool" in lines
    assert f"| time |  |  | 0.0123 ms {WALL} | · measured |" in lines


def test_the_page_says_how_it_was_made_and_shows_the_figures_that_are_there():
    page = to_markdown(found(*ROWS), ["waste.svg", "chat.svg"])
    assert "`minipaged reproduce waste --seed 3`" in page
    assert 'srcset="waste-dark.svg"' in page
    assert "chat" not in page
    assert "<picture>" not in to_markdown(found(*ROWS))
    assert "3 numbers of 1 claims: 1 agree with what is said, 1 differ from it, 1 have" in page
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
