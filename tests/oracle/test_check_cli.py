"""`minipaged check` and its neighbours: verdicts, exit codes, a sentence per mistake."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from minipaged.cli import app

KERNELS = """
from minipaged.attention import paged_attention

def right(*args, **options):
    return paged_attention(*args, **options)

def wrong(query, key_cache, value_cache, block_tables, seq_lens, starts, *, scale,
          return_lse=False):
    return paged_attention(query, key_cache, value_cache, block_tables, (seq_lens - 1).clamp(0),
                           starts, scale=scale, return_lse=return_lse)

number = 3
"""
QUICK = ("--level", "1", "--max-examples", "3", "--features", "kv_len=1-9", "--dtype", "float32")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "mykernels.py").write_text(KERNELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str):
    return CliRunner().invoke(app, words, prog_name="minipaged")


def test_a_right_kernel_passes_with_exit_code_0():
    result = ask("check", "mykernels.py:right", *QUICK)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mykernels.py:right: passed (kernel, native, level 1; ")


def test_a_wrong_kernel_fails_with_exit_code_1_and_can_be_replayed_and_explained():
    cards = "--report", "out/card.md", "--json", "out/card.json", "--junit", "out/card.xml"
    result = ask("check", "mykernels.py:wrong", *QUICK, "--save", "kept", *cards)
    assert result.exit_code == 1, result.output
    assert "bound (level 1): sequence 0, query 0" in result.stdout
    assert "not judged: softcap: the kernel has no argument 'softcap'" in result.stdout
    assert json.loads(Path("out/card.json").read_text(encoding="utf-8"))["passed"] is False
    assert "FAILED" in Path("out/card.md").read_text(encoding="utf-8")
    assert Path("out/card.xml").exists()

    (kept,) = Path("kept").glob("bound_*.npz")
    again = ask("replay", str(kept))
    assert again.exit_code == 1
    assert "now:  sequence 0" in again.stdout
    other = ask("replay", str(kept), "--target", "minipaged.attention:paged_attention")
    assert other.exit_code == 0
    assert "now:  right" in other.stdout

    why = ask("explain", str(kept))
    assert why.exit_code == 1, why.output
    assert "last_key_dropped" in why.stdout
    assert "keys 0..0" in why.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mykernels.py:rigth"], "mykernels.py has no 'rigth'; the nearest: right"),
        (["mykernel.py:right"], "no file 'mykernel.py'; the nearest: mykernels.py"),
        (["minipaged.atention:f"], "no module 'minipaged.atention'; the nearest: attention"),
        (["right"], "'right' is not package.module:function or path/to/file.py:function"),
        (["mykernels.py:number"], "mykernels.py:number is not a function but int"),
        (["mykernels.py:right", "-c", "flashinfr"], "no convention 'flashinfr'; the nearest:"),
        (["mykernels.py:right", "--kind", "wrter"], "no kind 'wrter'; there are kernel, writer"),
        (["mykernels.py:right", "--contract", "poisn=nan"], "Contract has no 'poisn'; the nearest"),
        (["mykernels.py:right", "--contract", "poison=no"], "it can be nan, finite, zero"),
        (["mykernels.py:right", "--features", "kv_len=1-2-3"], "it can be least-most"),
        (["mykernels.py:right", "--lse-base", "10"], "lse_base=10: it can be e, 2"),
        (["mykernels.py:right", "--kind", "quantizer"], "a quantizer is 2 functions, not 1"),
        (["mykernels.py:right", "mykernels.py:right"], "a kernel is one function, not 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_exit_code_2(words, sentence):
    result = ask("check", *words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("minipaged: ")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_where_nothing_can_be_written_is_said_before_the_work():
    Path("file").touch()
    for option, place in (("--save", "file/kept"), ("--report", "file/card.md")):
        result = ask("check", "mykernels.py:right", option, place)
        assert result.exit_code == 2
        assert "cannot write to file" in result.stderr
    Path("card.md").mkdir()
    result = ask("check", "mykernels.py:right", *QUICK, "--report", "card.md")
    assert result.exit_code == 2
    assert "cannot write card.md: Is a directory" in result.stderr
    assert "passed" in result.stdout


def test_a_module_that_cannot_be_imported_says_why():
    Path("broken.py").write_text("import not_there_at_all\n", encoding="utf-8")
    result = ask("check", "broken.py:f")
    assert result.exit_code == 2
    assert "importing" in result.stderr
    assert "No module named 'not_there_at_all'" in result.stderr


def test_files_that_are_no_counterexamples_are_refused():
    for command in ("replay", "explain"):
        result = ask(command, "none.npz")
        assert result.exit_code == 2
        assert "none.npz is not a counterexample: there is no such file" in result.stderr


def test_without_hypothesis_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None)
    for words in (["check", "a:b"], ["conventions"], ["mutants"], ["replay", "x.npz"]):
        result = ask(*words)
        assert result.exit_code == 2
        assert "pip install 'minipaged[testing]'" in result.stderr


def test_conventions_are_listed_with_what_the_kernel_gets():
    result = ask("conventions")
    assert result.exit_code == 0
    assert "native " in result.stdout
    assert "paged_attention(query, key_cache, value_cache" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_museum_is_shown_and_judged():
    result = ask("mutants", "--kind", "copy", "--labels", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert {row["kind"] for row in rows} == {"copy"}
    assert "exchanges" in {row["name"] for row in rows}
    judged = ask("mutants", "exchanges")
    assert judged.exit_code == 0, judged.output
    head, row = judged.stdout.splitlines()
    assert head.split()[:3] == ["kind", "fault", "class"]
    assert row.split()[:2] == ["copy", "exchanges"]
    assert "other blocks stay" in row
    assert "1 of 1 are seen" in judged.stderr
    assert "no exhibit 'exchange'; the nearest: exchanges" in ask("mutants", "exchange").stderr
    assert "no kind 'kernels'; the nearest: kernel" in ask("mutants", "--kind", "kernels").stderr


def test_other_kinds_are_judged_by_their_own_checks():
    result = ask(
        "check", "minipaged.attention:merge_states", "--kind", "merge", "--max-examples", "3"
    )
    assert result.exit_code == 0, result.output
    assert "passed (merge, native" in result.stdout
    result = ask("check", "minipaged.attention:merge_states", "--kind", "merge", "--isolate")
    assert result.exit_code == 2
