"""Turns what went wrong into one sentence and an exit code; knows no command."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from minipaged.core import MinipagedError


class Commands(TyperGroup):
    """All commands, in the order in which they were added, with one way to fail."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help, not of the alphabet."""
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; errors made on purpose and interrupts show no traceback."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except MinipagedError as error:
            fail(str(error), code=2 if isinstance(error, ValueError) else 1)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            silence_stdout()
            raise typer.Exit(1) from None


def fail(message: str, code: int) -> NoReturn:
    """Print one sentence to stderr and exit."""
    typer.echo(f"minipaged: {message}", err=True)
    raise typer.Exit(code)


def leave(code: Any) -> None:
    """Exit as ``sys.exit(code)`` does, but do not take torch apart first: that takes 0.6 s.

    Whatever was registered for the end is run. A profiler that watches wants the usual way out.
    """
    if isinstance(code, str) or "torch" not in sys.modules or sys.getprofile() or sys.gettrace():
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # who reads may have left
            stream.flush()
    os._exit(code or 0)


def silence_stdout() -> None:
    """The reader has left; nothing may complain about it when the interpreter closes stdout."""
    with suppress(OSError, ValueError):  # not a real file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
