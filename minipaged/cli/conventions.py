"""``minipaged conventions``: in which ways the judge can call a kernel."""

from __future__ import annotations

import textwrap

import typer

from .check import need_testing


def conventions() -> None:
    """List the ways in which a kernel can be called."""
    need_testing()
    from minipaged.oracle.conventions import CONVENTIONS

    width = max(map(len, CONVENTIONS))
    for name, convention in CONVENTIONS.items():
        # The first sentence of the docstring says what the kernel gets.
        told = " ".join((convention.__doc__ or "").split("\n\n")[0].split()).replace("`", "")
        lines = textwrap.wrap(told, 98 - width) or [""]
        typer.echo(f"{name:<{width}}  {lines[0]}")
        for line in lines[1:]:
            typer.echo(f"{'':<{width}}  {line}")
