"""``minipaged bench gpu``: runs the measurements and says on what; measures nothing itself."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console
from rich.table import Table

from minipaged.engine.devices import executor_for
from minipaged.engine.llm import LLM
from minipaged.models import ModelConfig, load_model

from .clock import Clock, CudaClock, HostClock
from .gpu import (
    TRIAL,
    Section,
    Sizes,
    copy_rate,
    measure_attention,
    measure_generation,
    measure_launches,
)
from .random_model import SMOLLM2_135M, random_model

NO_GPU = "torch finds no GPU here, and nothing else is measured by this; --try runs it on the CPU"
ON_TRIAL = "A trial of the program on a CPU, at tiny sizes: none of these is a figure of a GPU."
PACKAGES = ("minipaged", "torch", "numba-cuda", "cuda-core", "cuda-bindings")
TINY = ModelConfig("llama", 60, 16, 32, 2, 4, 2, 8, max_position_embeddings=64)

Say = Callable[[str], None]


def measure(*, on_trial: bool, say: Say) -> tuple[list[str], list[Section]]:
    """All tables, and the lines that belong above them.

    Args:
        on_trial: on the CPU, at sizes that only show that it runs.
        say: is told what is being measured.

    Raises:
        InvalidRequest: the kernels are not installed.
    """
    if on_trial:
        tiny = random_model(TINY, torch.float32, HostClock.device)
        return [ON_TRIAL, _versions()], _sections(HostClock(), LLM(tiny, device="cpu"), TRIAL, say)
    device = torch.device("cuda", torch.cuda.current_device())
    executor_for(device)  # says what is missing before anything else is done
    llm = LLM("bundled", device=device)
    return [_card(device), _versions()], _sections(CudaClock(device), llm, Sizes(), say)


def _sections(clock: Clock, llm: LLM, sizes: Sizes, say: Say) -> list[Section]:
    attention, dtype = llm.executor.decode_attention, llm.model.decoder.dtype
    say("copying")
    rate = copy_rate(clock, sizes)
    copying = Section("copying from one place on the device to another", ("GB/s, read + written",))
    copying.rows.append((f"{rate / 1e9:,.1f}",))
    say("decode attention")
    attending = measure_attention(clock, attention, dtype, rate, sizes)
    say("generating")
    models = {"bundled": load_model("bundled", dtype=dtype, device=clock.device)}
    if sizes is TRIAL:
        models = {"random weights, tiny": llm.model}
    else:
        models["SmolLM2-135M, random weights"] = random_model(SMOLLM2_135M, dtype, clock.device)
    generating = measure_generation(clock, models, rate, sizes)
    say("launching")
    return [copying, attending, generating, measure_launches(clock, attention, dtype, sizes)]


def show(out: Console, heads: list[str], sections: list[Section]) -> None:
    """The report on a terminal."""
    for head in heads:
        out.print(head)
    for section in sections:
        table = Table(*section.columns, title=section.title, title_justify="left")
        for row in section.rows:
            table.add_row(*row)
        out.print(table)


def to_json(heads: list[str], sections: list[Section]) -> str:
    """The report for a program: each row under its columns' names."""
    tables = {s.title: [dict(zip(s.columns, row)) for row in s.rows] for s in sections}
    content = {"command": "gpu", "machine": heads, "tables": tables}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def markdown(heads: list[str], sections: list[Section]) -> str:
    """The report as a page."""
    lines = ["# minipaged bench gpu", "", *(f"{head}  " for head in heads)]
    for section in sections:
        lines += ["", f"## {section.title}", "", _row(section.columns)]
        lines += [_row(("---:",) * len(section.columns)), *map(_row, section.rows)]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _card(device: torch.device) -> str:
    card, driver = torch.cuda.get_device_properties(device), "unknown"
    with suppress(OSError, subprocess.SubprocessError):
        ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]
    return (
        f"{card.name}, compute capability {card.major}.{card.minor}, "
        f"{card.total_memory / 2**30:.0f} GiB; driver {driver}; CUDA {torch.version.cuda}"
    )


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return f"{date.today().isoformat()}; {', '.join(found)}"
