"""``minipaged reproduce``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

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
    number = len(places)
    assert f"{number} numbers of {number} claims: {number} beside what others" in result.stdout
    assert f"({number} agreeing)" in result.stdout
    assert "biased" not in result.stdout


def test_those_that_are_named_are_measured_once(seen):
    result = ask("kernel", "waste", "kernel", "--seed", "4", "--quick")
    assert result.exit_code == 0, "what differs is said, and is no failure"
    assert [(c.seed, c.quick, c.trace) for c in seen] == [(4, True, None)] * 2
    assert result.stdout.index("Title of kernel") < result.stdout.index("Title of waste")
    assert "✗ differs" in result.stdout
    assert "2 beside what others say (2 differing)" in result.stdout
    assert result.stdout.index("biased") < result.stdout.index("Title of kernel")


@pytest.mark.parametrize(
    ("spelled", "key"),
    [*((f"C{i}", key) for i, key in enumerate(roster.NUMBERED, 1)), ("c6", "block_size")]
    + [(spelled, "block_size") for spelled in ("block-size", "Block_Size", "block size")]
    + [("HIT-RATE", "hit_rate")],
)
def test_a_claim_is_known_by_its_number_and_however_it_is_spelled(seen, spelled, key):
    result = ask(spelled, key)
    assert result.exit_code == 0, result.output
    assert len(seen) == 1
    assert f"Title of {key}" in result.stdout


def test_the_numbers_are_those_of_the_titles():
    for i, key in enumerate(roster.NUMBERED, 1):
        source = Path(roster.__file__).with_name(f"{key}.py").read_text(encoding="utf-8")
        assert f'title="C{i} ' in source, key


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
    out = tmp_path / "new"
    result = ask("chat", "--out", str(out))
    assert (result.exit_code, out.exists()) == (130, False), "nothing known, nothing made"
    result = ask("waste", "chat", "kernel", "--out", str(tmp_path))
    assert result.exit_code == 130
    document = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert [claim["key"] for claim in document["claims"]] == ["waste"]


def test_a_trace_of_ones_own_reaches_every_claim(seen, trace):
    named = [f"--column={text}" for text in ("prompt=given", "output=made", "time=when")]
    result = ask("waste", "throughput", "--trace", str(trace), *named, "--skip-bad-lines")
    assert result.exit_code == 0, result.output
    assert [len(c.trace.arrivals) for c in seen if c.trace] == [1, 1]
    assert "mine.csv: lines skipped: 1; the first was line 3: given is 'x'" in result.stderr
    assert "not by" not in result.stderr


@pytest.mark.parametrize("prefix", [False, True])
def test_it_is_said_who_does_not_look_at_a_trace(seen, tmp_path, prefix):
    """Every claim either uses it or is named; who names only such claims is refused."""
    path = tmp_path / "mine.jsonl"
    ids = {"hash_ids": [1]} if prefix else {}
    path.write_text(json.dumps({"input_length": 5, "output_length": 2} | ids))
    using = [key for key in roster.CLAIMS if roster.takes(key, 512 * prefix)]
    others = [key for key in roster.CLAIMS if key not in using]
    assert using == ["waste", "throughput", *(["hit_rate"] if prefix else [])]
    result = ask("--trace", str(path))
    assert result.exit_code == 0, result.output
    said = f"is used by {', '.join(using)}, not by {', '.join(others)}"
    assert said in result.stderr
    seen.clear()
    for key in others:
        result = ask(key, "--trace", str(path))
        assert result.exit_code == 2
        assert f"--trace: {key} cannot use it; waste and throughput can" in result.stderr
    assert not seen


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("wast",), "there is no claim 'wast' (did you mean waste?); there are waste, thr"),
        (("C9",), "there is no claim 'C9'; there are waste, throughput,"),
        (("--skip-bad-lines",), "name it, --trace FILE"),
        (("--column", "prompt=a"), "name it, --trace FILE"),
        (("--trace", "TRACE"), "name it: --column prompt=COLUMN"),
        (("--trace", "TRACE", "--column", "prompt"), "write ROLE=NAME"),
        (
            ("--trace", "TRACE", "--column", "prompt=given", "--column", "output=made"),
            "line 3: giv",
        ),
        (("--trace", "NOWHERE"), "cannot be read: No such file"),
        (("--out", "TRACE"), "mine.csv is a file; a directory is needed"),
        (("--out", "BELOW"), "mine.csv is a file; a directory is needed"),
        (("--seed", "-1"), "--seed -1: a whole number from 0 on"),
    ],
)
def test_a_wrong_wish_is_refused_before_anything_is_measured(seen, trace, words, complaint):
    places = {
        "TRACE": str(trace),
        "NOWHERE": str(trace.parent / "nowhere"),
        "BELOW": str(trace / "deep" / "er"),
    }
    result = ask(*(places.get(word, word) for word in words))
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.startswith("minipaged: "), "one style for all"
    assert not seen
    assert [path.name for path in trace.parent.iterdir()] == ["mine.csv"]


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
