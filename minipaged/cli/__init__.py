"""The command line: names, options and exit codes. What a command needs is imported when it runs.

0   done
1   it failed: no memory, no download, an internal error; or a kernel did, before the judge
2   it was asked wrongly: an unknown model, a bad option, an impossible request
130 interrupted; what there was by then is printed
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from minipaged.threads import pin_threads

from . import (
    bench,
    check,
    conventions,
    demo,
    doctor,
    explain,
    generate,
    learn,
    mutants,
    pull,
    replay,
    reproduce,
    trace,
    zoo,
)
from .errors import Commands, leave, silence_stdout

HELP = """Paged attention to read, to trust and to run.

\b
minipaged generate "In the beginning"      a small model writes on
minipaged generate "And he said" -n 4      four texts that share their blocks
minipaged trace "To be" --html run.html    its blocks, step by step, as a page
minipaged demo                             how that works, in pictures
minipaged learn                            and step by step, with exercises
minipaged check my.kernels:attention       is your kernel right?
minipaged reproduce                        is what is said of paging true?
"""

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(generate.generate)
app.command()(demo.demo)
app.command()(learn.learn)
app.command()(trace.trace)
app.command()(pull.pull)
app.command()(check.check)
app.command()(replay.replay)
app.command()(explain.explain)
app.command()(conventions.conventions)
app.command()(mutants.mutants)
app.command()(zoo.zoo)
app.command()(reproduce.reproduce)
app.command()(doctor.doctor)
app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(bench.bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"minipaged {version('minipaged')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True, help=HELP)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Show the help if no command is named."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command that ``sys.argv`` asks for, and exit."""
    pin_threads()
    try:
        try:
            app(prog_name="minipaged")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
        sys.exit(1)
    except SystemExit as end:
        leave(end.code)
