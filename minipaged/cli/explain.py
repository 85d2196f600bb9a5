"""``minipaged explain``: why a saved counterexample fails, as far as the judge can tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .replay import open_counterexample, told

if TYPE_CHECKING:
    from minipaged.oracle.subject import Subject
    from minipaged.oracle.trial import Trial


def explain(
    file: Annotated[Path, typer.Argument(help="A saved counterexample, .npz.")],
    target: Annotated[
        str | None, typer.Option(help="Another kernel: package.module:function.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time to look for known faults.")] = 20.0,
) -> None:
    """Say why a saved failure fails, as far as it shows."""
    found, kernel = open_counterexample(file, target)
    from minipaged.oracle.guard import KernelFault
    from minipaged.oracle.trial import Trial

    wrong = found.replay(kernel)
    typer.echo(told(file, found, wrong))
    if found.diagnosis:
        typer.echo(f"  then the output was that of the known fault: {found.diagnosis}")
    for line in found.picture.splitlines():
        typer.echo(f"    {line}")
    typer.echo(f"  now, in {found.recipe}:")
    if not wrong:
        raise typer.Exit(0)
    subject = found.subject(kernel)
    try:
        _explain(subject, Trial(subject, found.recipe.build()), seconds)
    except KernelFault as fault:
        typer.echo(f"    it {fault.text}, so there is no output to look at")
    raise typer.Exit(1)


def _explain(subject: Subject, trial: Trial, seconds: float) -> None:
    from minipaged.oracle.explain import attention_map, diagnose, numeric_fit, wrong_place

    place = wrong_place(trial)
    if place is None:
        typer.echo("    the answer to this very case is right; what fails is the comparison")
        return
    known = diagnose(trial.case, trial.result, trial.truth, seconds=seconds)
    arithmetic = numeric_fit(trial)
    typer.echo(f"    known faults with the same output: {', '.join(known) or 'none'}")
    typer.echo(f"    arithmetic that explains it: {arithmetic or 'none, so it is no rounding'}")
    for line in attention_map(subject, trial.case, *place, seconds=seconds).splitlines():
        typer.echo(f"    {line}")
