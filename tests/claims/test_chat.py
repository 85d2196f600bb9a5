"""C5: a script's arithmetic, and an engine that forgets is found out."""

from __future__ import annotations

import pytest

from minipaged.claims import chat
from minipaged.claims.claim import Context
from minipaged.claims.conversations import Script, new_engine, play

SHORT = Script(num_conversations=2, num_turns=4, question_len=10, answer_len=9)


def test_a_script_by_hand():
    """Ten asked, nine answered: 10, 29, 48, 67 tokens sent, of which 18, 37, 56 were written."""
    assert [SHORT.prompt_len(turn) for turn in range(4)] == [10, 29, 48, 67]
    assert [SHORT.num_known(turn) for turn in range(4)] == [0, 16, 32, 48]
    assert SHORT.num_sent == 2 * 154
    assert SHORT.num_all_known == 2 * 96


def test_the_engine_plays_it_so():
    again, found = (play(new_engine(caching), SHORT, seed=0) for caching in (False, True))
    assert again.computed == [20, 58, 96, 134]
    assert again.found == [0, 0, 0, 0]
    assert found.found == [0, 32, 64, 96]
    assert [sum(pair) for pair in zip(found.found, found.computed)] == again.computed


def test_a_history_without_its_beginning_is_not_found():
    cut = Script(num_conversations=1, num_turns=5, question_len=16, answer_len=16, longest=48)
    played = play(new_engine(True), cut, seed=0)
    assert played.found == [0, 16, 0, 0, 0]  # cut since the third turn: 80 tokens, 48 sent
    assert played.computed == [16, 32, 48, 48, 48]


@pytest.fixture(scope="module")
def claim():
    return chat.measure(Context(quick=True, seed=5))


def test_what_is_counted_repeats(claim):
    again = chat.measure(Context(quick=True, seed=5))
    assert [r for r in claim.rows if not r.wall] == [r for r in again.rows if not r.wall]
    same = ("batch", "computed")
    assert [claim.series[key] for key in same] == [again.series[key] for key in same]
    other = chat.measure(Context(quick=True, seed=6))
    assert claim.series["batch"] != other.series["batch"]


def test_the_engine_agrees_with_the_script(claim):
    verdicts = {row.what: row.verdict for row in claim.rows if row.what.startswith("history")}
    assert set(verdicts.values()) == {"holds"}
    assert len(verdicts) == 3
    computed = claim.series["computed"]
    assert computed["cut"][-3:] == [2 * 128] * 3  # two conversations, cut to 128 tokens
    assert computed["whole"][-1] > computed["cut"][-1] > computed["found"][-1]


def test_an_engine_that_forgets_is_seen(monkeypatch):
    monkeypatch.setattr(chat, "new_engine", lambda prefix_caching: new_engine(False))
    monkeypatch.setattr(chat, "_batch", lambda *_: 1.0)
    rows = {row.what: row for row in chat.measure(Context(quick=True)).rows}
    assert rows["history found: prompt tokens"].verdict == "fails"


def test_a_reason_is_given_only_where_it_differs():
    rates = {"max": 0.5, "pow2": 0.6, "oracle": 0.9, "paged": 1.0}
    notes = {row.what: bool(row.note) for row in chat._rate_rows(rates) if "/" in row.what}
    assert list(notes.values()) == [False, False, True]
