"""What the doctor says of a GPU, on machines that are only described."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from minipaged.cli import gpu
from minipaged.cli.gpu import Card, Facts, judge, look

PACKAGES = {"numba-cuda": "0.30.4", "cuda-core": "1.2.2", "cuda-bindings": "13.5.0"}
NOWHERE = Facts(torch="2.13.0", torch_cuda="13.0")
WHOLE = Facts(
    has_driver=True,
    torch="2.13.0",
    torch_cuda="13.0",
    cards=(Card("A card", 140 * 2**30, (9, 0)),),
    driver="580.65",
    driver_cuda=(13, 0),
    packages=PACKAGES,
    compiler_cuda=(13, 5),
    ptxas="/opt/ptxas",
)


def report(facts: Facts) -> dict[str, str | None]:
    """Text and remedy; nothing about a GPU is ever a problem, for a CPU will do."""
    findings = list(judge(facts))
    assert {f.topic for f in findings} <= {"cuda"}
    assert not any(f.is_problem for f in findings)
    return {f.text: f.remedy for f in findings}


def test_a_machine_that_has_it_all():
    assert report(WHOLE) == {
        "A card, 140 GiB, compute capability 9.0": None,
        "driver 580.65, knows CUDA up to 13.0; torch is built for CUDA 13.0": None,
        "numba-cuda 0.30.4, cuda-core 1.2.2, cuda-bindings 13.5.0 compile kernels for CUDA 13.5": (
            None
        ),
        "ptxas: /opt/ptxas": None,
    }


@pytest.mark.parametrize(
    ("facts", "text", "remedy"),
    [
        (NOWHERE, "no NVIDIA driver, so no GPU is used; nothing else needs one, nor the", None),
        (replace(NOWHERE, packages=PACKAGES), "no NVIDIA driver", None),
        (replace(NOWHERE, has_driver=True), "torch (CUDA 13.0) finds no device", "nvidia-smi"),
        (
            replace(NOWHERE, has_driver=True, torch_cuda=None),
            "is built without CUDA",
            "pip install --force-reinstall torch",
        ),
        (
            replace(WHOLE, packages={"numba-cuda": None, "cuda-core": None}),
            "the kernels need numba-cuda, cuda-core; until then a CPU is used",
            "pip install 'minipaged[cuda]'",
        ),
        (
            replace(WHOLE, compiler_cuda=None),
            "no libnvvm or nvJitLink: kernels cannot be compiled",
            "pip install 'minipaged[cuda]'",
        ),
        (
            replace(WHOLE, driver_cuda=(12, 8)),
            "compile for CUDA 13.5, newer than the driver knows: update the driver, or",
            "pip install 'numba-cuda[cu12]>=0.30.4,<0.31'",
        ),
        (
            replace(WHOLE, ptxas=None),
            "no ptxas: kernels run, and tests of their machine code are skipped",
            "pip install 'minipaged[cuda-test]'",
        ),
        (
            replace(WHOLE, cards=(Card("Old", 2**33, (7, 0)),)),
            "Old, 8 GiB, compute capability 7.0: too old for the kernels, which need 7.5; --device",
            None,
        ),
        (replace(WHOLE, driver=None, driver_cuda=None), "driver of unknown version; torch", None),
    ],
)
def test_what_is_missing_is_said_with_the_command_that_installs_it(facts, text, remedy):
    found = {text_: remedy_ for text_, remedy_ in report(facts).items() if text in text_}
    assert list(found.values()) == [remedy], report(facts)


def test_without_torch_nothing_is_said_of_gpus():
    assert report(Facts(has_driver=True)) == {}


def test_the_facts_are_looked_up(monkeypatch):
    card = SimpleNamespace(name="A card", total_memory=7, major=9, minor=0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda i: card)
    monkeypatch.setattr("torch.version.cuda", "12.8")
    monkeypatch.setattr(gpu, "_driver_cuda", lambda: (12, 8))
    monkeypatch.setattr(gpu, "_version", lambda name: "1.0")
    facts = look()
    assert facts.cards == (Card("A card", 7, (9, 0)),)
    assert facts.has_driver
    assert (facts.torch_cuda, facts.driver_cuda) == ("12.8", (12, 8))
    assert set(facts.packages.values()) == {"1.0"}


def test_whatever_breaks_the_doctor_goes_on(monkeypatch):
    def broken(*args):
        raise OSError("no such library")

    for name in ("_cards", "_driver", "_driver_cuda", "_compiler_cuda", "_ptxas"):
        monkeypatch.setattr(gpu, name, broken)
    facts = look()
    assert (facts.cards, facts.driver, facts.compiler_cuda, facts.ptxas) == ((), None, None, None)
    list(judge(facts))


def test_the_version_is_found_in_what_the_driver_says(monkeypatch, tmp_path):
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC"
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(gpu, "Path", lambda name: tmp_path / "version")
    assert gpu._driver() == "580.65.06"


@pytest.mark.parametrize("has_gpu", [True, False])
def test_who_has_a_gpu_that_is_not_used_is_told_whom_to_ask(monkeypatch, capsys, has_gpu):
    from minipaged.cli.generate import _mention_an_idle_gpu

    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    _mention_an_idle_gpu()
    assert ("minipaged doctor says what it needs" in capsys.readouterr().err) == has_gpu
