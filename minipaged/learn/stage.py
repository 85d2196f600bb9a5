"""Where the output of a page goes: a terminal, a notebook, or the renderer of the site."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any


@dataclass
class Piece:
    """Some output of a cell; ``kind`` is text, error, html, markdown or python."""

    kind: str
    text: str


class Recorder(io.TextIOBase):
    """Keeps what a cell prints and what it shows, in the order in which it happened."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def write(self, text: str) -> int:
        """Printed text; what follows at once belongs to the same piece."""
        if self.pieces and self.pieces[-1].kind == "text":
            self.pieces[-1].text += text
        else:
            self.add("text", text)
        return len(text)

    def writable(self) -> bool:
        """It takes text."""
        return True

    def add(self, kind: str, text: str) -> None:
        """Something that was shown."""
        self.pieces.append(Piece(kind, text))


_recorder: Recorder | None = None


@contextmanager
def recording() -> Iterator[Recorder]:
    """Everything printed and shown inside goes into the recorder."""
    global _recorder
    before, _recorder = _recorder, Recorder()
    try:
        with redirect_stdout(_recorder):
            yield _recorder
    finally:
        _recorder = before


def recorder() -> Recorder | None:
    """The recorder at work, if any."""
    return _recorder


def in_notebook() -> bool:
    """True inside Jupyter and its relatives; IPython in a terminal is a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def to_notebook(kind: str, text: str) -> None:
    """Display a piece in the cell that runs."""
    from IPython.display import HTML, Markdown, display  # type: ignore[import-not-found]

    if kind == "html":
        display(HTML(text))
    elif kind == "markdown":
        display(Markdown(text))
    elif kind == "python":
        display(Markdown(f"```python\n{text}\n```"))
    else:
        print(text)


def to_terminal(thing: Any) -> None:
    """Print, through Rich where that gives more than ``print`` would."""
    if isinstance(thing, str):
        print(thing)
        return
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, emoji=False).print(thing)
