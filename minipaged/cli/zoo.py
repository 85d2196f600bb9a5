"""``minipaged zoo``: other people's kernels, as they are shipped, before the judge."""

from __future__ import annotations

from typing import Annotated

import typer

from .check import need_testing
from .console import to_stderr


def zoo(
    slow: Annotated[
        bool, typer.Option("--slow", help="Those that need Triton's interpreter, too; very slow.")
    ] = False,
) -> None:
    """Judge the foreign kernels that are installed; their known faults must show, and no other.

    pip install 'minipaged[zoo]' brings the fast ones. Exit with 1 at a surprise.
    """
    need_testing()
    from minipaged.oracle.zoo import animals, to_markdown, visit

    rows = []
    with to_stderr().status("") as status:
        for animal in animals(None if slow else "fast"):
            status.update(f"{len(rows)} judged, now {animal.name}")
            rows.append(visit(animal))
    typer.echo(to_markdown(rows))
    if any(row.surprises for row in rows):
        raise typer.Exit(1)
