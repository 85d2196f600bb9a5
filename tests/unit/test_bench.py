"""``minipaged bench``: what each command prints and writes, at tiny sizes, and how it ends."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from minipaged.bench import attention, blocks, oracle, startup
from minipaged.bench.app import app
from minipaged.bench.attention import TORCH, TRIAL, Shape, measure_attention
from minipaged.bench.export import export_model, read_model
from minipaged.bench.limits import Limits
from minipaged.bench.measures import TESTS
from minipaged.bench.processes import Run, run
from minipaged.bench.report import Report, number
from minipaged.bench.roster import ENGINES, Peer
from minipaged.bench.stats import Figure
from minipaged.core import ModelError
from minipaged.models import load_model
from minipaged.models.catalog import find_model

ROOT = Path(__file__).parents[2]
LIMITS = Limits(1e9, 1e9, 1e9)


def silent(text):
    pass


def ask(*words, path):
    """Run a command; returns its result and what it wrote."""
    result = CliRunner().invoke(app, [*words, "--json", str(path / "all.json")])
    content = json.loads((path / "all.json").read_text(encoding="utf-8"))
    assert result.exit_code == (1 if content["disturbed"] else 0), result.output
    assert all({"values", "median", "min", "max", "share"} <= f.keys() for f in content["figures"])
    for figure in content["figures"]:
        assert number(figure["median"]) in result.stdout
    return result, content


def shown(report: Report) -> str:
    console = Console(width=132, record=True, quiet=False)
    with console.capture() as captured:
        report.print(console)
    return captured.get()


# ---- what is printed and how it ends


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['minipaged', 'bench', '--help']\n"
        "from minipaged.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end\n"
        "assert not {'torch', 'numba', 'numpy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = ("limits", "engine", "attention", "blocks", "oracle", "startup", "gpu")
    assert all(f"\n  {name} " in done.stdout for name in names)


@pytest.mark.parametrize(("share", "code"), [(0.5, 1), (0.95, 0), (None, 0)])
def test_a_disturbed_figure_is_marked_and_the_run_ends_with_1(share, code):
    report = Report("limits", figures=[Figure("reading", "us", "GB/s", (1.0, 2.0, 4.0), share)])
    assert report.exit_code == code
    assert ("0.50!" in shown(report)) == ("Do not quote" in shown(report)) == bool(code)


def test_a_report_shows_on_what_it_was_measured_and_everything_beside_it(tmp_path):
    figures = [
        Figure("work", "minipaged", "tok/s", (20.0, 22.0, 21.0), 0.99, limit=42.0),
        Figure("work", "peer", "tok/s", (10.0, 10.0, 10.0), 1.0, note="the first 3 of 3 tokens"),
    ]
    report = Report("engine", {"model": "tiny"}, figures, ["without nobody"])
    text = " ".join(shown(report).split())
    for words in ("torch 2", "numba", "threads", "load average", "model tiny", "the first 3 of 3"):
        assert words in text
    assert "21 tok/s │ 20 - 22 │ 50% │ 0.99" in text
    assert "2.10x (2.00-2.20)" in text
    assert "- without nobody" in text
    report.write(tmp_path / "all.json")
    content = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [f["values"] for f in content["figures"]] == [[20, 22, 21], [10, 10, 10]]
    assert content["ratios"][0]["ratio"] == pytest.approx(2.1)
    assert content["machine"]["versions"].keys() >= {"Python", "torch", "numba", "minipaged"}


def test_numbers_have_three_digits_that_matter():
    assert [number(x) for x in (0.123, 12.34, 123.4, 12345.6, 3.0)] == [
        *("0.12", "12.3", "123", "12,346", "3")
    ]


# ---- the commands


def test_limits(tmp_path):
    _, content = ask("limits", "--try", "--rounds", "1", path=tmp_path)
    assert len(content["figures"]) == 6
    assert {f["unit"] for f in content["figures"]} == {"GB/s", "GFLOP/s"}


def test_blocks(tmp_path):
    _, content = ask("blocks", "--try", "--rounds", "2", path=tmp_path)
    tests = [f["test"] for f in content["figures"]]
    assert "trace of 20 requests" in tests[0]
    assert "prompt tokens found" in content["figures"][0]["note"]
    assert "decode step, per token: 100 running, 10,000 blocks" in tests
    assert "free: 10,000 blocks" in tests
    assert not any("1,000 running, 1,000 blocks" in test for test in tests)  # would not fit


def test_engine_prints_ours_beside_a_peer(tmp_path, monkeypatch):
    """With engines made up here; what is real of it is in test_bench_peers."""
    file = tmp_path / "fake.py"
    file.write_text(
        "class Engine:\n"
        "    version, precision, weight_bytes, kv_bytes, compile_seconds = 'f 1', 'f4', 4, 4, 0.5\n"
        "    def __init__(self, options): assert options['dtype'] == 'float32'\n"
        "    def generate(self, prompts, counts): return [[7] * n for n in counts]\n"
        "    def counters(self): return {'preemptions': 2}\n"
    )
    for name in ("minipaged", "transformers"):
        monkeypatch.setitem(ENGINES, name, Peer(f"{file}:Engine", "json", "f", "name"))
    monkeypatch.setattr("minipaged.bench.engine.PAUSE", 0)
    words = ("--try", "--rounds", "2", "--peers", "transformers", "--test", "mixed,preempt")
    _, content = ask("engine", *words, path=tmp_path)
    figures = [(f["test"].split(",")[0], f["engine"]) for f in content["figures"]]
    assert ("6 mixed requests: output", "transformers") in figures
    assert ("mixed requests", "minipaged, swap") in figures
    assert ("of that compiling", "minipaged") in figures
    assert "moved by up to" in content["notes"][0]
    assert len(content["figures"][0]["values"]) == 2 * 3  # limits, before and after


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--test", "nothing"), "no test 'nothing'"),
        (("--peers", "nobody"), "no peer 'nobody'"),
        (("--peer-python", "vllm"), "NAME=PATH"),
    ],
)
def test_a_wrong_option_is_an_answer_not_a_traceback(words, complaint):
    result = CliRunner().invoke(app, ["engine", *words])
    assert (result.exit_code, complaint in " ".join(result.output.split())) == (2, True)


def test_the_page_about_it_names_what_there_is():
    page = (ROOT / "docs/pages/how-to/benchmark.md").read_text(encoding="utf-8")
    calls = re.findall(r"^minipaged bench (\w+)((?: [^\n]*\\\n)*[^\n]*)", page, re.MULTILINE)
    assert {name for name, _ in calls} >= {"engine", "blocks"}
    for name, rest in calls:
        text = CliRunner().invoke(app, [name, "--help"]).output
        for option in re.findall(r"(?<= )--?[a-z][\w-]*", rest):
            assert option in text, f"minipaged bench {name} has no {option}"
    for name in (*ENGINES, *TESTS):
        assert f"`{name}`" in page or name == "minipaged"


# ---- what they measure


def test_attention_is_compared_on_equal_numbers():
    figures = measure_attention(TRIAL, LIMITS, 2, silent, flush=False)
    assert [f.engine for f in figures] == ["minipaged", TORCH] * 3
    assert [f.unit for f in figures] == ["GB/s"] * 4 + ["GFLOP/s"] * 2
    assert {(len(f.values), f.limit) for f in figures} == {(2, 1.0)}


def test_attention_that_disagrees_is_no_measurement(monkeypatch):
    def wrong(*batch, scale):
        return torch.zeros_like(batch[0])

    monkeypatch.setattr(attention, "cpu_paged_attention", wrong)
    with pytest.raises(AssertionError, match="they differ by"):
        measure_attention(TRIAL[:1], LIMITS, 1, silent, flush=False)


def test_the_sizes_of_attention():
    shape = Shape(4, 400, 3, ragged=True)
    assert shape.lengths == [100, 200, 300, 400]
    assert shape.kv_bytes == 2 * 4 * 1000 * 2 * 64
    assert Shape(1, 3, 1, num_queries=2, num_kv_heads=1, head_dim=1).flops == 4 * (2 + 3)


def test_bookkeeping_is_timed_over_real_steps():
    assert blocks.decode_seconds(3, 100, steps=2) > 0
    assert list(blocks.operation_us(100)) == [
        *("share a cached block", "release it", "allocate", "free")
    ]


def test_a_process_is_timed_to_its_end():
    assert run(["-c", "import time; time.sleep(0.1)"]).seconds >= 0.1
    with pytest.raises(subprocess.CalledProcessError):
        run(["-c", "raise SystemExit(3)"])


def test_the_oracle_is_asked_level_by_level(monkeypatch):
    """In 2 s of 5 the judge tried 10 cases: the rest was importing and compiling."""
    asked = []

    def judge(level, max_examples):
        asked.append((level, max_examples))
        return 2.0, 5.0, 10, 0.95

    monkeypatch.setattr(oracle, "_judge", judge)
    figures = oracle.measure_oracle((0, 3), 7, 2, silent)
    assert asked == [(0, 7), (0, 7), (3, 7), (3, 7)]
    assert [(f.test, f.median) for f in figures[3:]] == [
        ("level 3: judging", 2.0),
        ("level 3: cases", 5.0),
        ("level 3: the whole process", 5.0),
    ]


def test_startup_compiles_anew_in_every_cold_round(monkeypatch):
    asked = []

    def watched(arguments, environment=None):
        asked.append((tuple(arguments), (environment or {}).get("NUMBA_CACHE_DIR")))
        return Run(1.0, 1.0)

    monkeypatch.setattr(startup, "run", watched)
    figures = startup.measure_startup(2, silent)
    assert figures[-1].test == startup.COLD
    assert {len(f.values) for f in figures} == {2}
    folders = [folder for words, folder in asked if folder]
    assert len(set(folders)) == len(folders) == 2
    assert all(words == tuple(startup.FIRST_TOKEN) for words, folder in asked if folder)


# ---- models for peers


def test_exported_weights_are_ours_to_the_bit(tmp_path, monkeypatch):
    """There and back: our directory to a file in the other order of rows, that to a directory."""
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path))
    file = export_model("bundled", "gguf-f32")
    directory = export_model(file, "directory")
    assert export_model("bundled", "gguf-f32") == file  # written once
    assert export_model(directory, "directory") == directory
    _, _, ours = read_model(find_model("bundled"))
    for path in (file, directory):
        config, _, theirs = read_model(Path(path))
        assert set(ours) == set(theirs)
        assert all(torch.equal(ours[name].float(), theirs[name]) for name in ours)
        assert replace(config, rms_norm_eps=1e-5) == load_model("bundled").config
        assert config.rms_norm_eps == pytest.approx(1e-5)  # a file keeps it as float32


def test_a_quantised_file_is_handed_over_as_it_is(tmp_path, monkeypatch):
    """Under a name in a folder of ours: what an engine writes beside it litters nobody's models."""
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path / "cache"))
    mine = tmp_path / "models" / "my-model.gguf"
    mine.parent.mkdir()
    shutil.copy(export_model("bundled", "gguf-f16"), mine)
    theirs = Path(export_model(str(mine), "gguf"))
    assert theirs.samefile(mine)
    assert theirs.parent != mine.parent
    with pytest.raises(ModelError, match=r"is no \.gguf file"):
        export_model("bundled", "gguf")


def test_a_half_export_is_rounded_not_other(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path))
    _, _, ours = read_model(find_model("bundled"))
    _, _, theirs = read_model(Path(export_model("bundled", "gguf-f16")))
    name = "model.layers.0.mlp.down_proj.weight"
    assert torch.equal(ours[name].half().float(), theirs[name])
