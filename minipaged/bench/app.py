"""The commands of the benchmarks: their options, and who does the work; measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Json,
    ModelName,
    OnTrial,
    Peer,
    PeerList,
    PeerPython,
    Rounds,
    conclude,
    out,
    say,
    warn,
)
from .report import Report
from .roster import ENGINES, MANAGERS, Unknown, parse_peers, parse_pythons, present

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure speed on this machine, beside its limits and beside peers.\n\n"
    "Ends with 1 if a round got less than 0.9 of the CPU time it asked for.",
)


def _peers(
    table: dict, peers: list[str] | None, each: list[str] | None, pythons: list[str] | None
) -> tuple[list[str], dict[str, str]]:
    """Names of the peers that are there, and interpreters; the others are named on the way."""
    try:
        names = parse_peers([*(peers or []), *(each or [])], table)
        known = parse_pythons(pythons or [])
    except Unknown as error:
        raise typer.BadParameter(str(error)) from None
    return present(names, table, known, warn), known


@app.command()
def limits(rounds: Rounds = 5, on_trial: OnTrial = False, json: Json = None) -> None:
    """What this machine reads, copies and multiplies, on one thread and on all."""
    from .limits import measure_limits

    report = Report("limits", {"rounds": rounds, "trial": on_trial})
    sizes = (2**22, 128) if on_trial else ()
    report.figures = measure_limits(rounds, *sizes)
    conclude(report, json)


@app.command()
def engine(
    model: ModelName = "bundled",
    peers: PeerList = None,
    peer: Peer = None,
    peer_python: PeerPython = None,
    test: Annotated[
        list[str] | None,
        typer.Option(help="single, mixed, prefix, parallel, beam, preempt; default: all."),
    ] = None,
    rounds: Rounds = 3,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or int8.")] = "float32",
    on_trial: OnTrial = False,
    json: Json = None,
) -> None:
    """Generate with this engine and its peers, in turns, on the same token ids."""
    from .measures import TESTS
    from .run_engine import run

    tests = [name for text in test or TESTS for name in text.split(",")]
    for name in tests:
        if name not in TESTS:
            raise typer.BadParameter(f"no test {name!r}; there are {', '.join(TESTS)}")
    names, pythons = _peers(ENGINES, peers, peer, peer_python)
    conclude(run(model, names, pythons, tests, rounds, dtype, on_trial, say), json)


@app.command()
def attention(rounds: Rounds = 5, on_trial: OnTrial = False, json: Json = None) -> None:
    """Our compiled paged attention beside torch's on contiguous K and V."""
    from .attention import SHAPES, TRIAL, measure_attention
    from .limits import limits_of, measure_limits

    report = Report("attention", {"rounds": rounds, "trial": on_trial, "dtype": "float32"})
    found = measure_limits(3, *((2**22, 128) if on_trial else ()))
    report.figures = found + measure_attention(
        TRIAL if on_trial else SHAPES, limits_of(found), rounds, say, flush=not on_trial
    )
    conclude(report, json)


@app.command()
def blocks(
    peers: PeerList = None,
    peer: Peer = None,
    peer_python: PeerPython = None,
    nano_vllm: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A checkout of nano-vllm.")
    ] = None,
    rounds: Rounds = 3,
    on_trial: OnTrial = False,
    json: Json = None,
) -> None:
    """Bookkeeping alone: a recorded trace, beside other block managers, and how it scales."""
    from .blocks import measure_scale
    from .managers import replay

    more = ["nano-vllm"] if nano_vllm else []
    names, pythons = _peers(MANAGERS, peers, [*(peer or []), *more], peer_python)
    num_requests = 20 if on_trial else 1000
    report = Report("blocks", {"rounds": rounds, "trial": on_trial, "block size": 16})
    figures, report.notes = replay(names, pythons, nano_vllm, num_requests, rounds, say)
    report.figures = figures + measure_scale(rounds, say, on_trial)
    conclude(report, json)


@app.command()
def oracle(
    rounds: Rounds = 1,
    max_examples: Annotated[int, typer.Option(min=0, help="Random cases.")] = 200,
    on_trial: OnTrial = False,
    json: Json = None,
) -> None:
    """How long the judge takes over our own compiled kernel, level by level."""
    from .oracle import measure_oracle

    levels = (0, 1) if on_trial else tuple(range(7))
    examples = 2 if on_trial else max_examples
    report = Report("oracle", {"rounds": rounds, "random cases": examples})
    report.figures = measure_oracle(levels, examples, rounds, say)
    conclude(report, json)


@app.command()
def quality(
    model: ModelName = "bundled",
    dtypes: Annotated[
        str, typer.Option(help="The first is what the others are compared with.")
    ] = "float32,int8",
    on_trial: OnTrial = False,
    json: Json = None,
) -> None:
    """What fewer bits cost: the perplexity of a text that the bundled model has not seen."""
    from .quality import measure_quality

    num_tokens = 100 if on_trial else None
    figures, notes = measure_quality(model, dtypes.split(","), say, num_tokens)
    conclude(Report("quality", {"model": model, "trial": on_trial}, figures, notes), json)


@app.command()
def startup(rounds: Rounds = 5, on_trial: OnTrial = False, json: Json = None) -> None:
    """Fresh processes: import, --help, and a first token, compiled before and not."""
    from .startup import measure_startup

    report = Report("startup", {"rounds": rounds, "trial": on_trial})
    report.figures = measure_startup(rounds, say, on_trial)
    conclude(report, json)


@app.command()
def gpu(
    on_trial: Annotated[
        bool, typer.Option("--try", help="On the CPU, at tiny sizes, to see it run.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    json: Json = None,
) -> None:
    """Rates, tokens and launches on a GPU, beside the rate at which it copies."""
    import torch

    from . import gpu_report

    if not on_trial and not torch.cuda.is_available():
        typer.echo(f"minipaged bench gpu: {gpu_report.NO_GPU}", err=True)
        raise typer.Exit(2)
    heads, sections = gpu_report.measure(on_trial=on_trial, say=say)
    gpu_report.show(out, heads, sections)
    if markdown is not None:
        markdown.write_text(gpu_report.markdown(heads, sections), encoding="utf-8")
    if json is not None:
        json.write_text(gpu_report.to_json(heads, sections), encoding="utf-8")
