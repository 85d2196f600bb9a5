"""``minipaged pull``: fetch a known model, with a bar."""

from __future__ import annotations

from typing import Annotated

import typer

from .console import to_stderr


def pull(
    name: Annotated[str, typer.Argument(help="A known model, such as smollm2-135m.")],
) -> None:
    """Download a model into the cache, once, and verify it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from minipaged.models.download import pull as fetch

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    console = to_stderr()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(name, total=None)
        path = fetch(name, lambda done, total: bar.update(task, completed=done, total=total))
    typer.echo(path)
    typer.echo(f'Try: minipaged generate -m {name} --chat "Tell me a joke."', err=True)
