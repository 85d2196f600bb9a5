"""The page about the museum tells of every fault that there is, and that every one of them died.

That they die is tested with the exhibits themselves, in tests/oracle; here only the page is.
"""

from __future__ import annotations

import pytest

from minipaged.oracle.museum.collection import KINDS, collection
from support.museum import FIELD, PAGE, names_on

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_every_fault_of_this_kind(kind):
    assert names_on(TEXT, kind) == [piece.name for piece in collection([kind])]


def test_nobody_survives_on_the_page():
    assert "NOBODY" not in TEXT


def test_the_museum_is_as_large_as_promised():
    pieces = list(collection())
    assert sum(piece.kind != "manager" for piece in pieces) >= 60
    assert sum(piece.kind == "manager" for piece in pieces) >= 30
    assert len({(piece.kind, piece.name) for piece in pieces}) == len(pieces)


def test_faults_that_other_suites_were_tried_on_are_in_the_museum():
    assert set(FIELD) <= {piece.name for piece in collection(["kernel"])}
