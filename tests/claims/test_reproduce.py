"""``minipaged reproduce``: what it prints, writes and refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from minipaged.claims import figures, roster
from minipaged.claims.claim import Claim, Context, Row, Tolerance
from minipaged.cli import app
from minipaged.cli.reproduce import NO_FIGURES


def ask(*words: str):
    return CliRunner().invoke(app, ["reproduce", *words], prog_name="minipaged")


@pytest.fixture
def seen(monkeypatch) -> list[Context]:
    """Claims that only note with what they were asked, instead of measuring."""
    contexts: list[Context] = []

    def measure_of(key: str):
        def measure(context: Context) -> Claim:
            context.tell("something")
            contexts.append(context)
            row = Row(f"number of {key}", "3", 3.0 + context.seed, "x", Tolerance.exactly(3))
            return Claim(key, f"Title of {key}", "It is three.", "section 1", (row,))

        return measure

    monkeypatch.setattr(roster, "measure_of", measure_of)
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    return contexts


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("when,given,made\n1,7,3\n2,x,3\n")
    return path


def test_all_claims_are_measured_in_order(seen):
    result = ask()
    assert result.exit_code == 0, result.output
    places = [result.stdout.index(f"Title of {key}") for key in roster.CLAIMS]
    assert places == sorted(places)
    assert f"{len(places)} numbers of {len(places)} claims: {len(places)} agree" in result.stdout


def test_those_that_are_named_are_measured_once(seen):
    result = ask("kernel", "waste", "kernel", "--seed", "4", "--quick")
    assert result.exit_code == 0, "what differs is said, and is no failure"
    assert [(c.seed, c.quick, c.trace) for c in seen] == [(4, True, None)] * 2
    assert result.stdout.index("Title of kernel") < result.stdout.index("Title of waste")
    assert "✗ differs" in result.stdout
    assert "0 agree with what is said, 2 differ" in result.stdout


def test_everything_is_written(seen, tmp_path):
    out = tmp_path / "deep" / "er"
    result = ask("waste", "chat", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {"claims.json", "claims.md"}
    document = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert [claim["key"] for claim in document["claims"]] == ["waste", "chat"]
    assert "## Title of chat" in (out / "claims.md").read_text(encoding="utf-8")
    assert NO_FIGURES in result.stderr
    assert NO_FIGURES not in result.stdout


def test_without_matplotlib_it_says_how_to_get_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", {"matplotlib": None}.__getitem__)
    result = ask("hit_rate", "--quick", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {"claims.json", "claims.md"}
    assert "pip install 'minipaged[claims]'" in result.stderr
    assert "pip" not in result.stdout


def test_what_is_known_is_kept_when_something_fails(seen, tmp_path, monkeypatch):
    working = roster.measure_of

    def measure_of(key: str):
        if key == "chat":
            raise KeyboardInterrupt
        return working(key)

    monkeypatch.setattr(roster, "measure_of", measure_of)
    result = ask("waste", "chat", "kernel", "--out", str(tmp_path))
    assert result.exit_code == 130
    document = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert [claim["key"] for claim in document["claims"]] == ["waste"]


def test_a_trace_of_ones_own_reaches_every_claim(seen, trace):
    named = [f"--column={text}" for text in ("prompt=given", "output=made", "time=when")]
    result = ask("waste", "chat", "--trace", str(trace), *named, "--skip-bad-lines")
    assert result.exit_code == 0, result.output
    assert [len(c.trace.arrivals) for c in seen if c.trace] == [1, 1]
    assert "mine.csv: lines skipped: 1; the first was line 3: given is 'x'" in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("wast",), "there is no claim 'wast'; there are waste, throughput,"),
        (("--skip-bad-lines",), "name it, --trace FILE"),
        (("--column", "prompt=a"), "name it, --trace FILE"),
        (("--trace", "TRACE"), "name it: prompt=COLUMN"),
        (("--trace", "TRACE", "--column", "prompt"), "write ROLE=NAME"),
        (
            ("--trace", "TRACE", "--column", "prompt=given", "--column", "output=made"),
            "line 3: giv",
        ),
        (("--trace", "NOWHERE"), "cannot be read: No such file"),
        (("--out", "TRACE"), "cannot write to"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_a_wrong_wish_is_refused_before_anything_is_measured(seen, trace, words, complaint):
    places = {"TRACE": str(trace), "NOWHERE": str(trace.parent / "nowhere")}
    result = ask(*(places.get(word, word) for word in words))
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not seen


def test_the_real_thing(tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the extra 'claims'")
    result = ask("hit_rate", "--quick", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md", ".svg"}
    assert "hit_rate-dark.svg" in (tmp_path / "claims.md").read_text(encoding="utf-8")
    (claim,) = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert claim["key"] == "hit_rate"
    assert len(claim["rows"]) == 5


def test_every_claim_of_the_roster_can_be_measured():
    for key in roster.CLAIMS:
        assert callable(roster.measure_of(key))
    with pytest.raises(KeyError):
        roster.measure_of("nothing")
