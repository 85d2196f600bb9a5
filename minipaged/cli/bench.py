"""Hands ``minipaged bench ...`` on to the benchmarks, which are loaded only then."""

from __future__ import annotations

import typer


def bench(context: typer.Context) -> None:
    """Measure speed and memory on this machine."""
    from minipaged.bench.app import app

    code = app(args=context.args, prog_name="minipaged bench", standalone_mode=False)
    raise typer.Exit(code if isinstance(code, int) else 0)
