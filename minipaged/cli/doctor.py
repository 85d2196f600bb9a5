"""``minipaged doctor``: what is here, what is missing, and which command installs it."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from minipaged.threads import CPUS

from . import gpu
from .gpu import Finding

NEEDED = ("torch", "numpy", "numba", "safetensors", "gguf", "tokenizers", "jinja2", "rich")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
EXTRAS = {"testing": "hypothesis"}


def doctor() -> None:
    """Say what works on this machine, and what would make more work."""
    findings = []
    for finding in examine():
        findings.append(finding)
        typer.echo(f"{finding.topic:<9} {'!! ' if finding.is_problem else ''}{finding.text}")
        if finding.remedy:
            typer.echo(f"{'':<9} -> {finding.remedy}")
    problems = [finding.topic for finding in findings if finding.is_problem]
    if problems:
        typer.echo(f"verdict   not ready: see {', '.join(problems)}")
        raise typer.Exit(1)
    typer.echo('verdict   ready: minipaged generate "In the beginning"')


def examine() -> Iterator[Finding]:
    """Look at everything, from the interpreter up; the slowest looks come last."""
    yield Finding(
        "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield from _packages()
    yield from _extras()
    yield from _kernels()
    yield from _models()
    yield from _processor()
    yield from gpu.judge(gpu.look())


def _packages() -> Iterator[Finding]:
    found = {name: _version(name) for name in ("minipaged", *NEEDED)}
    missing = [name for name, text in found.items() if text is None]
    yield Finding("packages", ", ".join(f"{name} {text}" for name, text in found.items() if text))
    if missing:
        remedy = f"pip install {' '.join(missing)}"
        yield Finding("packages", f"missing: {', '.join(missing)}", True, remedy)


def _extras() -> Iterator[Finding]:
    for extra, module in EXTRAS.items():
        here = importlib.util.find_spec(module) is not None
        remedy = None if here else f"pip install 'minipaged[{extra}]'"
        yield Finding(
            "extra", f"{extra}: {'installed' if here else 'not installed'}", False, remedy
        )


def _kernels() -> Iterator[Finding]:
    from .kernels import find_kernels, kernels_go_to

    found, place = find_kernels(), kernels_go_to()
    if found:
        folders = sorted({str(path.parent) for path in found})
        yield Finding("kernels", f"compiled, {len(found)} files in {', '.join(folders)}")
    elif place is not None:
        yield Finding(
            "kernels", f"not compiled yet: the first run does it and keeps them in {place}"
        )
    else:
        text = "there is no place to keep them, so every run compiles anew"
        yield Finding("kernels", text, remedy="export NUMBA_CACHE_DIR=/a/writable/folder")


def _models() -> Iterator[Finding]:
    if _version("torch") is None:
        return
    from minipaged.models.catalog import NAMES
    from minipaged.models.download import DOWNLOADS, models_dir, pulled_path

    yield Finding("models", f"{NAMES[0]}: part of the package; pulled ones lie in {models_dir()}")
    for name in DOWNLOADS:
        path = pulled_path(name)
        text = f"{path.stat().st_size / 1e6:.0f} MB" if path else "not pulled"
        yield Finding(
            "models", f"{name}: {text}", False, None if path else f"minipaged pull {name}"
        )


def _processor() -> Iterator[Finding]:
    limits = [f"{n}={os.environ[n]}" for n in THREAD_VARIABLES if n in os.environ]
    threads = ""
    if _version("torch") and _version("numba"):
        import numba
        import torch

        threads = f"; threads: torch {torch.get_num_threads()}, numba {numba.get_num_threads()}"
    bound = "each thread bound to one" if "OMP_PROC_BIND" in os.environ else "threads not bound"
    told = f"; {', '.join(limits)}" if limits else ""
    usable = f"{len(CPUS)} of {os.cpu_count()} processors, {bound}"
    yield Finding("cpu", f"{usable}{_quota()}{threads}{told}")


def _quota() -> str:
    """A container may have many cores and little time on them."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return ""
    return "" if quota == "max" else f", limited to the time of {int(quota) / int(period):g}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
