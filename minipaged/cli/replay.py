"""``minipaged replay`` and what it shares with ``explain``: saved counterexamples, once more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .check import need_testing
from .errors import fail

if TYPE_CHECKING:
    from minipaged.oracle.conventions import Kernel
    from minipaged.oracle.counterexample import Counterexample


def replay(
    files: Annotated[list[Path], typer.Argument(help="Saved counterexamples, .npz.")],
    target: Annotated[
        str | None, typer.Option(help="Another kernel: package.module:function.")
    ] = None,
) -> None:
    """Try saved failures again; exit with 1 if one still fails."""
    fails = 0
    for file in files:
        found, kernel = open_counterexample(file, target)
        deadly = found.check in ("died", "hung")
        wrong = _in_a_child(file, target) if deadly else found.replay(kernel)
        typer.echo(told(file, found, wrong))
        fails += bool(wrong)
    raise typer.Exit(1 if fails else 0)


def _in_a_child(file: Path, target: str | None) -> str | None:
    """What a kernel that ends or stops its process does now; None if it is right."""
    words = [sys.executable, str(file.with_suffix(".py")), *([target] if target else [])]
    try:
        end = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "still running after 120 s"
    if "now: right" in end.stdout:
        return None
    last = (end.stdout + end.stderr).strip().splitlines()[-1:]
    return f"its process ended with {end.returncode}" + (f": {last[0]}" if last else "")


def told(file: Path, found: Counterexample, wrong: str | None) -> str:
    """What was wrong and what is, in three lines."""
    return (
        f"{file}: {found.kernel or found.name}, {found.convention}\n"
        f"  then: {found.check}: {found.message}\n  now:  {wrong or 'right'}"
    )


def open_counterexample(file: Path, target: str | None) -> tuple[Counterexample, Kernel]:
    """The file and the kernel that it is about; says what is wrong with either, and exits."""
    need_testing()
    from minipaged.oracle.conventions import find_convention
    from minipaged.oracle.counterexample import load
    from minipaged.oracle.targets import resolve_function

    try:
        found = load(file)
        if not (target or found.kernel):
            fail(f"{file} does not know where {found.name} is: give --target", code=2)
        find_convention(found.convention)
        return found, resolve_function(target or found.kernel)
    except (ValueError, LookupError) as error:
        fail(str(error.args[0]), code=2)
