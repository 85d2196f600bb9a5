"""The command line of the benchmarks: what to measure, against whom, and how it is printed."""

from __future__ import annotations

import json as json_format
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from minipaged.threads import CPUS

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure speed on this machine, beside peers.",
)
_err = Console(stderr=True)
_out = Console() if Console().is_terminal else Console(width=120)  # a file is not narrow


@app.command()
def engine(
    model: Annotated[
        str, typer.Option("--model", "-m", help="name, directory or GGUF")
    ] = "bundled",
    peers: Annotated[list[str] | None, typer.Option("--peer", help="transformers")] = None,
    tests: Annotated[list[str] | None, typer.Option("--test", help="single, mixed, prefix")] = None,
    rounds: Annotated[int, typer.Option(help="rounds that count, after one that does not")] = 3,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
    json: Annotated[Path | None, typer.Option(help="write every sample to this file")] = None,
) -> None:
    """Generate with this engine and its peers, in turns, on the same token ids."""
    from minipaged.models import load_model

    from .engine import TESTS, measure, ratios
    from .work import Work
    from .worker import Worker

    names = ["minipaged", *(p for p in peers or [] if _is_installed(p))]
    config = load_model(model).config
    work = Work(config.vocab_size, min(config.max_position_embeddings, 1024))
    workers = []
    try:
        for name in names:
            _err.print(f"loading {name} ...", style="dim")
            workers.append(Worker(name, model, dtype))
        figures = measure(workers, work, tests or list(TESTS), rounds, _say)
    finally:
        for worker in workers:
            worker.close()
    _out.print(_machine())
    loads = ", ".join(f"{w.version} (loaded in {w.load_seconds:.1f} s)" for w in workers)
    _out.print(f"{model}, {dtype}, {len(CPUS)} threads, {rounds} rounds: {loads}")
    table = Table("test", "engine", "median", "min", "max", "CPU")
    for f in figures:
        row = (f"{x:,.1f}" for x in (f.median, min(f.values), max(f.values)))
        table.add_row(f.test, f.engine, *(f"{x} {f.unit}" for x in row), f"{f.share:.2f}")
    _out.print(table)
    for test, peer, ratio in ratios(figures):
        words = f"{ratio:.2f}x of {peer}" if ratio else f"not told apart from {peer}: too noisy"
        _out.print(f"{test}: {words}")
    disturbed = [f for f in figures if f.share < 0.9]
    if disturbed:
        _out.print("Some rounds got less than 0.9 of the CPU: do not quote them.", style="bold")
    if json is not None:
        rows = [
            {"test": f.test, "engine": f.engine, "unit": f.unit, "values": f.values}
            for f in figures
        ]
        json.write_text(json_format.dumps({"machine": _machine(), "figures": rows}, indent=1))


@app.command()
def blocks(
    num_seqs: Annotated[int, typer.Option(help="running sequences")] = 256,
) -> None:
    """Bookkeeping alone: a decode step, and single operations in small and large pools."""
    from .blocks import decode_step_ms, operation_us

    _out.print(_machine())
    for size in (8192, 1_000_000):
        ms = decode_step_ms(num_seqs, size)
        _out.print(f"decode step of {num_seqs} sequences, {size:,} blocks: {ms:.2f} ms")
    sizes = (10_000, 100_000, 1_000_000)
    table = Table("operation, µs", *(f"{size:,} blocks" for size in sizes))
    columns = [operation_us(size) for size in sizes]
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:.2f}" for column in columns))
    _out.print(table)


@app.command()
def gpu(
    on_trial: Annotated[
        bool, typer.Option("--try", help="On the CPU, at tiny sizes, to see it run.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
) -> None:
    """Rates, tokens and launches on a GPU, beside the rate at which it copies."""
    import torch

    from . import gpu_report

    if not on_trial and not torch.cuda.is_available():
        typer.echo(f"minipaged bench gpu: {gpu_report.NO_GPU}", err=True)
        raise typer.Exit(2)
    heads, sections = gpu_report.measure(on_trial=on_trial, say=_say)
    for head in heads:
        _out.print(head)
    for section in sections:
        table = Table(*section.columns, title=section.title, title_justify="left")
        for row in section.rows:
            table.add_row(*row)
        _out.print(table)
    if markdown is not None:
        markdown.write_text(gpu_report.markdown(heads, sections), encoding="utf-8")


@app.command()
def startup(rounds: Annotated[int, typer.Option(help="fresh processes of each")] = 5) -> None:
    """Fresh processes: import, --help, and the first token of the bundled model."""
    one_token = ["generate", "In the beginning", "--max-tokens", "1", "--quiet"]
    commands = {
        "import minipaged": ["-c", "import minipaged"],
        "minipaged --help": ["-m", "minipaged", "--help"],
        "first token, bundled model": ["-m", "minipaged", *one_token],
    }
    baseline = _process_seconds(["-c", "pass"], rounds)
    _out.print(_machine())
    _out.print(f"python itself: {baseline:.3f} s")
    for name, arguments in commands.items():
        seconds = _process_seconds(arguments, rounds)
        _out.print(f"{name}: {seconds:.3f} s, of that {seconds - baseline:.3f} s ours")


def _process_seconds(arguments: list[str], rounds: int) -> float:
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def _is_installed(peer: str) -> bool:
    if find_spec(peer) is not None:
        return True
    _err.print(f"{peer} is not installed, so it is left out: pip install {peer}", style="bold")
    return False


def _machine() -> str:
    cpu, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        pairs = (line.partition(":") for line in info.read_text().splitlines())
        cpu = next((value.strip() for key, _, value in pairs if key.strip() == "model name"), cpu)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numba"))
    python = platform.python_version()
    return f"{cpu}, {len(CPUS)} processors; Python {python}, {packages}"


def _say(text: str) -> None:
    _err.print(text, style="dim")
