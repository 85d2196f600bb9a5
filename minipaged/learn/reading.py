"""A page in the terminal: its prose through Rich, its code, and the code's live output."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax

from .pages import Cell, Page

FOLD = re.compile(
    r"<details[^>]*>\s*<summary>(?P<head>.*?)</summary>(?P<body>.*?)</details>", re.DOTALL
)


def read(page: Page, console: Console, wait: Callable[[str], None]) -> None:
    """Show a page from top to bottom, running it on the way.

    Args:
        page: which.
        console: where the prose and the code go; output goes to stdout.
        wait: called at every fold, with what is asked, before the answer is shown.
    """
    namespace: dict = {"__name__": "__main__", "__file__": str(page.path)}
    for cell in page.cells:
        if cell.kind == "markdown":
            _prose(cell.markdown, console, wait)
        else:
            _run(cell, page, console, namespace)


def _prose(text: str, console: Console, wait: Callable[[str], None]) -> None:
    end = 0
    for match in FOLD.finditer(text):
        _markdown(text[end : match.start()], console)
        head = re.sub(r"<[^>]+>", "", match["head"])
        wait(head)
        _markdown(match["body"], console)
        end = match.end()
    _markdown(text[end:], console)


def _markdown(text: str, console: Console) -> None:
    if text.strip():
        console.print(Markdown(text.strip(), hyperlinks=False))
        console.print()


def _run(cell: Cell, page: Page, console: Console, namespace: dict) -> None:
    if not cell.is_silent:
        look = "ansi_dark" if console.is_terminal else "bw"
        code = Syntax(cell.text, "python", theme=look, background_color="default", word_wrap=True)
        console.print(Padding(code, (0, 0, 0, 2)))
        console.print(Rule(style="dim"))
    padding = "\n" * (cell.line - 1)  # so that the lines of a traceback are the page's
    exec(compile(padding + cell.text, str(page.path), "exec", dont_inherit=True), namespace)
    sys.stdout.flush()
    console.print()
