"""A kernel that kills its process gets a verdict, with the case that it died of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from minipaged.attention import paged_attention
from minipaged.oracle import Features, check_kernel
from minipaged.oracle.conventions import find_convention
from minipaged.oracle.counterexample import load
from minipaged.oracle.isolate import judge_in_a_child
from minipaged.oracle.journal import watched
from minipaged.oracle.targets import TargetError

SMALL = Features(
    dtypes=("float32",),
    head_dims=(2, 4),
    block_sizes=(2, 4),
    kv_len=(0, 9),
    query_len=(0, 3),
    num_seqs=(1, 2),
    groups=(1, 2),
    num_kv_heads=(1, 2),
    right_window=False,
)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def dies_of_two_sequences(*args: Any, **options: Any) -> Any:
    if len(args[4]) > 1:
        crash()
    return paged_attention(*args, **options)


def dies_of_padding(*args: Any, **options: Any) -> Any:
    if (args[3] > 2**30).any():
        os.abort()
    return paged_attention(*args, **options)


def leaves(*args: Any, **options: Any) -> Any:
    os._exit(3)


def hangs_where_no_alarm_rings(*args: Any, **options: Any) -> Any:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)


def is_wrong(query: Any, *args: Any, **options: Any) -> Any:
    return paged_attention(query * 1.01, *args, **options)


def judged(kernel: Any, **options: Any) -> Any:
    usual = {"level": 1, "features": SMALL, "max_examples": 3, "max_failures": 1}
    return check_kernel(kernel, isolate=True, **{**usual, **options})


def in_a_fork(kernel: Any, **options: Any) -> Any:
    """Without an address, it is judged in a fork of this process, which is quick."""
    return judged(lambda *args, **more: kernel(*args, **more), name=kernel.__name__, **options)


def test_a_crash_is_a_verdict_with_the_smallest_case_that_crashes(tmp_path):
    report = in_a_fork(dies_of_two_sequences, save=tmp_path)
    (failure,) = report.failures
    assert failure.check == "died"
    assert "killed by SIGSEGV (segmentation fault) in call" in failure.message
    assert failure.case.lengths == ((0, 0), (0, 0)) or len(failure.case.lengths) == 2
    assert report.subject == "dies_of_two_sequences"
    assert "whatever comes after" in report.not_judged[-1]
    saved = load(failure.path)
    assert saved.recipe == failure.case


def test_what_kills_it_in_a_changed_case_is_said_and_saved(tmp_path):
    (failure,) = in_a_fork(dies_of_padding, level=2, save=tmp_path).failures
    assert "SIGABRT (abort)" in failure.message
    assert "padding=2147483647" in failure.message
    with np.load(failure.path, allow_pickle=False) as data:
        assert (data["block_tables"] > 2**30).any()


def test_leaving_is_dying():
    (failure,) = in_a_fork(leaves).failures
    assert failure.check == "died"
    assert "exited with code 3 in call 1" in failure.message


def test_a_hang_in_compiled_code_is_a_verdict():
    (failure,) = in_a_fork(hangs_where_no_alarm_rings, call_limit_s=0.2, explain=False).failures
    assert failure.check == "hung"
    assert "still running after" in failure.message


def test_a_kernel_that_lives_is_judged_as_ever(tmp_path):
    assert in_a_fork(paged_attention).passed
    (failure,) = in_a_fork(is_wrong, save=tmp_path).failures
    assert failure.check == "bound"
    assert failure.path.parent == tmp_path


def test_an_address_is_judged_in_a_fresh_process(tmp_path, monkeypatch):
    """Where importing it may crash, too."""
    monkeypatch.chdir(tmp_path)
    Path("fatal.py").write_text("import os\nos.abort()\n")
    (failure,) = judged("fatal:kernel").failures
    assert (
        failure.message == "the process was killed by SIGABRT (abort) while importing fatal:kernel"
    )
    report = judged("minipaged.attention:paged_attention", level=0)
    assert report.passed
    assert report.subject == "minipaged.attention:paged_attention"


def test_an_address_where_nothing_is_raises_as_without_isolation():
    with pytest.raises(TargetError, match="the nearest: paged_attention"):
        judged("minipaged.attention:paged_atention")


def test_what_cannot_be_sent_anywhere_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ValueError, match=r"cannot be isolated.*put it into a module"):
        in_a_fork(paged_attention)
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ValueError, match="needs a system with fork"):
        judge_in_a_child(check_kernel, paged_attention, "native", {})


def test_a_watched_convention_is_the_convention():
    assert watched(find_convention("vllm"), print).lse_dtype == find_convention("vllm").lse_dtype
    seen, ended = [], []
    how = watched(find_convention("native"), seen.append, lambda: ended.append(1))
    heard = check_kernel(paged_attention, how, level=1, features=SMALL, max_examples=2)
    plain = check_kernel(paged_attention, level=1, features=SMALL, max_examples=2)
    assert (heard.judged, heard.not_judged) == (plain.judged, plain.not_judged)
    assert heard.convention == "native"
    assert len(seen) == len(ended) == heard.calls


def test_the_command_line_survives_it(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import ctypes\n\n\ndef kernel(*args, **options):\n    ctypes.string_at(0)\n"
    )
    code = "from minipaged.cli import main; main()"
    words = ["check", "mine.py:kernel", "--isolate", "--level", "0", "--save", "kept"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 1, done.stderr
    assert "SIGSEGV" in done.stdout
    assert "saved: kept/died_" in done.stdout
