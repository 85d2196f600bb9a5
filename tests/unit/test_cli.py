"""The command line: what it prints where, how it fails, and what it never loads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import minipaged
from minipaged.cli import app
from minipaged.cli.doctor import Finding, examine
from minipaged.cli.figures import _rate, _size
from minipaged.core import OutOfBlocks

ROOT = Path(__file__).parents[2]
REFERENCE = ("--attention", "minipaged.attention:paged_attention")  # compiles nothing


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def ask(*words: str, stdin: str | None = None):
    return CliRunner().invoke(app, words, input=stdin, prog_name="minipaged")


def in_a_process(*words: str, **options) -> subprocess.Popen[str]:
    code = "from minipaged.cli import main; main()"
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "stdin": subprocess.DEVNULL,
    }
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, text=True, cwd=ROOT, **pipes | options)


# --- help and version --------------------------------------------------------------------------


def test_without_a_command_it_says_what_there_is():
    result = ask()
    assert result.exit_code == 0
    assert "minipaged demo" in result.stdout
    commands = re.findall(r"^  (\w+)  +[A-Z]", result.stdout.split("Commands:")[1], re.MULTILINE)
    judge = ["check", "replay", "explain", "conventions", "mutants", "zoo"]
    first = ["generate", "demo", "learn", "trace", "pull"]
    assert commands == [*first, *judge, "reproduce", "doctor", "bench"]
    assert max(map(len, result.stdout.splitlines())) <= 80


COMMANDS = ["generate", "demo", "learn", "trace", "pull"]
COMMANDS += ["check", "replay", "explain", "conventions", "mutants", "zoo", "reproduce"]


@pytest.mark.parametrize("command", [*COMMANDS, "doctor"])
def test_every_command_has_help(command):
    result = ask(command, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: minipaged {command}")


def test_the_package_can_be_run():
    done = subprocess.run(
        [sys.executable, "-m", "minipaged", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.startswith("minipaged ")


def test_the_version_is_the_one_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert minipaged.__version__ == project["version"]
    result = ask("--version")
    assert result.stdout.split()[0] == "minipaged"


# --- the demo ----------------------------------------------------------------------------------


def test_the_demo_in_a_pipe():
    result = ask("demo")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    titles = re.findall(r"^(\d+)/14  (.*?) ─", result.stdout, re.MULTILINE)
    assert [int(number) for number, _ in titles] == list(range(1, 15))
    assert ">>> b.match_prefix(b_ids)\n8\n" in result.stdout
    assert "copied    block 3 to 4, for B" in result.stdout


def test_the_demo_step_by_step():
    result = ask("demo", "--step", stdin="\n\n")
    assert "3/14" in result.stdout
    assert "4/14" not in result.stdout  # the input ended
    assert result.exit_code == 0


def test_the_demo_in_ascii():
    process = in_a_process("demo", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert out.isascii()
    assert "| # # # #|" in out


def test_the_demo_needs_no_tensors():
    code = (
        "import sys; sys.argv[1:] = ['demo']\n"
        "from minipaged.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'numba'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_is_no_error():
    process = in_a_process("demo")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait()


# --- the doctor --------------------------------------------------------------------------------


def test_the_doctor():
    result = ask("doctor")
    assert result.exit_code == 0, result.stdout
    topics = {line.split()[0] for line in result.stdout.splitlines() if line[0] != " "}
    assert topics == {"python", "packages", "extra", "kernels", "models", "cpu", "cuda", "verdict"}
    assert "verdict   ready" in result.stdout


def test_the_doctor_finds_what_is_missing(monkeypatch):
    from minipaged.cli import doctor

    found = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "torch" else found(name))
    problem = Finding("packages", "missing: torch", True, "pip install torch")
    assert problem in list(examine())
    result = ask("doctor")
    assert result.exit_code == 1
    assert "verdict   not ready: see packages" in result.stdout


def test_the_doctor_sees_compiled_kernels(monkeypatch, tmp_path):
    from minipaged.cli.kernels import find_kernels, kernels_go_to

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert find_kernels() == []
    assert kernels_go_to() == tmp_path
    (tmp_path / "attention_1").mkdir()
    index = tmp_path / "attention_1" / "cpu_kernels.run-1.py311.nbi"
    index.touch()
    assert find_kernels() == [index]
    os.utime(index, (0, 0))  # compiled from an older source
    assert find_kernels() == []


# --- failing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("generate", "x", "--temperature", "-1"),
            "temperature=-1.0: must be a number in [0, inf)",
        ),
        (("generate", "x", "--beam", "2", "--top-k", "3"), "--top-k cannot go with it"),
        (("generate", "x", "--beam", "2", "-n", "3"), "n=3: must be at most beam_width=2"),
        (("generate", "x", "--nonsense"), "No such option: --nonsense"),
        (("generate", "-", "-"), "standard input can be read once"),
        (("generate", "x", "-m", "bundle"), "did you mean 'bundled'?"),
        (("generate", "x", "--attention", "nothing:here"), "No module named 'nothing'"),
        (("generate", "x", "--attention", "minipaged:__name__"), "it must be a function"),
        (("generate", "x", "--device", "toaster"), "device='toaster': must be 'cpu' or 'cuda'"),
        (("generate", "x", "--memory", "lots", *REFERENCE), "memory='lots': must be bytes"),
        (("generate", "x", "--num-blocks", "1", *REFERENCE), "the whole pool has 1"),
        (("generate", "hello", "--chat", *REFERENCE), "no chat template"),
        (("generate", *REFERENCE), "the prompt is empty"),
        (("pull", "everything"), "'everything' cannot be pulled; known are"),
        (("nonsense",), "No such command 'nonsense'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_what_was_asked_wrongly_is_one_sentence_and_code_2(words, reason):
    result = ask(*words, stdin="")
    assert result.exit_code == 2, result.output
    assert reason in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_what_fails_is_code_1(monkeypatch):
    def full(*_, **__):
        raise OutOfBlocks("3 blocks needed, 2 of 8 are free")

    monkeypatch.setattr("minipaged.view.frames", full)
    result = ask("demo")
    assert (result.exit_code, result.stderr) == (1, "minipaged: 3 blocks needed, 2 of 8 are free\n")


def test_a_kernel_from_the_present_folder(monkeypatch, tmp_path):
    from minipaged.cli.run import _import_kernel

    (tmp_path / "my_own_kernel.py").write_text("def attend(*_, **__): return 'attended'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert _import_kernel("my_own_kernel:attend")() == "attended"


# --- pulling -----------------------------------------------------------------------------------


def test_pulling(monkeypatch, tmp_path):
    def fetch(name, progress):
        progress(50, 100)
        progress(100, 100)
        return tmp_path / name

    monkeypatch.setattr("minipaged.models.download.pull", fetch)
    result = ask("pull", "some-model")
    assert result.stdout == f"{tmp_path / 'some-model'}\n"
    assert "minipaged generate -m some-model" in result.stderr


# --- interrupting ------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_keeps_what_there_is():
    words = ("generate", "In the beginning", "--max-tokens", "900", *REFERENCE)
    process = in_a_process(*words)
    assert process.stdout is not None
    first = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert len(first) == 20
    assert rest.endswith("\n")
    assert "Traceback" not in err
    assert re.search(r"generated \d+,", err)


# --- figures -----------------------------------------------------------------------------------


def test_rates_and_sizes():
    assert (_rate(5, 0.0), _rate(0, 1.0), _rate(5, 2.0)) == ("- tok/s", "- tok/s", "2.5 tok/s")
    assert _rate(5000, 2.0) == "2,500 tok/s"
    assert _size(1023) == "1023 B"
    assert _size(1024**2 - 1) == "1024.0 KiB"
    assert _size(3 * 2**40) == "3072.0 GiB"


@pytest.mark.parametrize("code", [None, 0, 3, "why not"])
def test_leaving_early_looks_like_leaving(code):
    """Same exit code, same output, and what was registered for the end is run, last first."""
    text = (
        "import atexit, sys, types; from minipaged.cli.errors import leave\n"
        "sys.modules['torch'] = types.ModuleType('torch')\n"
        "for word in ('last', 'before'): atexit.register(print, word)\n"
        f"print('first'); print('aside', file=sys.stderr); {{}}({code!r})"
    )
    early, usual = (
        subprocess.run([sys.executable, "-c", text.format(end)], capture_output=True, text=True)
        for end in ("leave", "sys.exit")
    )
    assert usual.stdout.split() == ["first", "before", "last"]
    for field in ("returncode", "stdout", "stderr"):
        assert getattr(early, field) == getattr(usual, field)
