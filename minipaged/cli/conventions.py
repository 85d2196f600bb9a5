"""``minipaged conventions``: in which ways the judge can call a kernel."""

from __future__ import annotations

import inspect
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from .check import need_testing
from .errors import fail

if TYPE_CHECKING:
    from minipaged.oracle.conventions import Convention


def conventions(
    name: Annotated[str | None, typer.Argument(help="One of them, with its arguments.")] = None,
) -> None:
    """List the ways in which a kernel can be called, or tell all about one."""
    need_testing()
    from minipaged.oracle.conventions import CONVENTIONS, find_convention

    if name is not None:
        try:
            return _tell(find_convention(name))
        except LookupError as error:
            fail(str(error.args[0]), code=2)
    width = max(map(len, CONVENTIONS))
    for name, convention in CONVENTIONS.items():
        # The first sentence of the docstring says what the kernel gets.
        told = " ".join((convention.__doc__ or "").split("\n\n")[0].split()).replace("`", "")
        lines = textwrap.wrap(told, 98 - width) or [""]
        typer.echo(f"{name:<{width}}  {lines[0]}")
        for line in lines[1:]:
            typer.echo(f"{'':<{width}}  {line}")


def _tell(convention: Convention) -> None:
    """Its arguments, what differs from the native convention, and where it is laid down."""
    typer.echo(f"{convention.name}: the kernel is called with\n")
    for argument in inspect.signature(convention.read).parameters.values():
        star = "" if argument.kind is argument.POSITIONAL_OR_KEYWORD else "  (keyword)"
        typer.echo(f"    {str(argument).replace('_empty', '')}{star}")
    typer.echo(f"\n{inspect.cleandoc(convention.__doc__ or '')}\n\nSource: {convention.source}")
