"""The page about the claims shows what the command measures."""

from __future__ import annotations

import pytest

from minipaged.claims.claim import Claim, Row, Tolerance
from minipaged.claims.plots import PLOTS
from minipaged.claims.roster import CLAIMS
from support.claims_page import PAGE, counted_rows, measure_all


@pytest.mark.slow
def test_every_counted_number_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8").splitlines()
    rows = counted_rows(measure_all().claims)
    assert len(rows) > 50
    assert [row for row in rows if row not in page] == [], "python tests/claims/update_page.py"


def test_wall_times_are_not_held_down_and_all_else_is():
    rows = Row("a", "", 1.0, wall=True), Row("b | c", "", 2.0, tolerance=Tolerance.exactly(2))
    lines = counted_rows([Claim("waste", "", "", "", rows)])
    assert lines == ["| b \\| c |  | 2 | 2 | ✓ agrees |"]


def test_every_claim_is_on_the_page_with_its_figures():
    text = PAGE.read_text(encoding="utf-8").partition("<!-- claims:begin -->")[2]
    assert text.count("| | said | agrees if | measured | |") == len(CLAIMS)
    for key in PLOTS:
        for name in (f"{key}.svg#only-light", f"{key}-dark.svg#only-dark"):
            assert f"(claims/{name})" in text
            assert (PAGE.parent / "claims" / name.partition("#")[0]).exists()
