"""The two streams of a terminal program: text goes to stdout, everything about it to stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def to_stdout(plain: bool = False) -> Console:
    """A console for pictures; colours only on a terminal, and never under ``NO_COLOR``."""
    from rich.console import Console

    _never_fail_to_encode()
    return Console(highlight=False, color_system=None if plain else "auto", emoji=False)


def to_stderr() -> Console:
    """A console for figures, progress and maps."""
    from rich.console import Console

    _never_fail_to_encode()
    return Console(stderr=True, highlight=False, emoji=False)


def write(text: str) -> None:
    """Generated text, at once. On a terminal no control sequence of a model gets through."""
    if sys.stdout.isatty():
        text = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _never_fail_to_encode() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
