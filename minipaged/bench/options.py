"""Options that several benchmarks share, and what becomes of a finished report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .report import Report

Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write every sample to this file.")
]
ModelName = Annotated[
    str, typer.Option("--model", "-m", metavar="MODEL", help="Name, directory or GGUF file.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count, after one that does not.")]
OnTrial = Annotated[
    bool, typer.Option("--try", help="At tiny sizes, to see it run: nothing to quote.")
]
PeerList = Annotated[
    list[str] | None, typer.Option("--peers", metavar="A,B", help="Whom to stand beside.")
]
Peer = Annotated[list[str] | None, typer.Option("--peer", help="The same, one by one.")]
PeerPython = Annotated[
    list[str] | None,
    typer.Option("--peer-python", metavar="NAME=PATH", help="The Python that has this peer."),
]

err = Console(stderr=True)
out = Console() if Console().is_terminal else Console(width=132)  # a file is not narrow


def say(text: str) -> None:
    """What is going on, beside the results."""
    err.print(text, style="dim", highlight=False, markup=False)


def warn(text: str) -> None:
    """What the reader should know before the results come."""
    err.print(text, style="bold", highlight=False, markup=False, soft_wrap=True)


def conclude(report: Report, json: Path | None, extra: Iterable[Table] = ()) -> None:
    """Print, write, and end with the report's exit code.

    Raises:
        typer.Exit: something was disturbed.
    """
    report.print(out, extra)
    report.write(json)
    if report.exit_code:
        raise typer.Exit(report.exit_code)
