"""What a page calls to put something before its reader: an object, a text, a failure, a task."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from . import stage
from .catalog import command, find
from .statement import as_markdown, as_text

ROOT = Path(__file__).parents[2]


def show(*things: Any, caption: str = "") -> None:
    """Show each thing in the richest form that the place has; a picture may have a caption.

    A terminal gets text, a notebook and the site get the thing's HTML or SVG. A snapshot is drawn.
    Anything that has no picture is printed.
    """
    for thing in things:
        _show(_drawn(thing, caption), caption)


def _drawn(thing: Any, caption: str) -> Any:
    from minipaged.core import Snapshot

    if not isinstance(thing, Snapshot):
        return thing
    from minipaged import view

    if hasattr(view, "drawing"):
        return view.drawing(thing, caption=caption)
    return view.PoolMap(thing)


def _show(thing: Any, caption: str) -> None:
    html = _html(thing)
    recorder = stage.recorder()
    if html and caption and caption not in html:
        html = f"<figure>\n{html}\n<figcaption>{caption}</figcaption>\n</figure>"
    if html and recorder:
        recorder.add("html", html)
    elif html and stage.in_notebook():
        stage.to_notebook("html", html)
    else:
        stage.to_terminal(thing if _is_rich(thing) else str(thing))
        if caption and not html:
            print(caption)


def _html(thing: Any) -> str:
    for name in ("_repr_html_", "_repr_svg_"):
        if not isinstance(thing, type) and hasattr(thing, name):
            return getattr(thing, name)() or ""
    return ""


def _is_rich(thing: Any) -> bool:
    return hasattr(type(thing), "__rich__") or hasattr(type(thing), "__rich_console__")


def source(thing: Any, begin: str = "", end: str = "") -> None:
    """Show the package's own text of a function, method, property or class.

    Args:
        thing: what to show; a compiled function is unwrapped.
        begin: show only from the first line that contains this;
        end: to the first line from there that contains this. Alone, ``begin`` shows to the end.

    Raises:
        LookupError: ``begin`` or ``end`` does not occur, so the page is out of date.
    """
    thing = _unwrap(thing)
    lines, first = inspect.getsourcelines(thing)
    start = _index(lines, begin, 0, thing) if begin else 0
    stop = _index(lines, end, start, thing) + 1 if end else len(lines)
    path = Path(inspect.getsourcefile(thing) or "")
    where = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    text = inspect.cleandoc("\n" + "".join(lines[start:stop]).rstrip())
    recorder = stage.recorder()
    if recorder:  # without a line number: it would be stale with every edit above
        recorder.add("python", f"# {where}: {thing.__qualname__}\n{text}")
        return
    text = f"# {where}:{first + start}\n{text}"
    if stage.in_notebook():
        stage.to_notebook("python", text)
    else:
        stage.to_terminal(_highlighted(text) if sys.stdout.isatty() else text)


def _unwrap(thing: Any) -> Any:
    for name in ("fget", "py_func", "func", "__wrapped__"):
        thing = getattr(thing, name, None) or thing
    return thing


def _index(lines: list[str], text: str, start: int, thing: Any) -> int:
    for i in range(start, len(lines)):
        if text in lines[i]:
            return i
    raise LookupError(f"{text!r} does not occur in {thing.__qualname__}, or not in that order")


def _highlighted(text: str) -> Any:
    from rich.syntax import Syntax

    return Syntax(text, "python", theme="ansi_dark", background_color="default", word_wrap=True)


class fails:  # noqa: N801  # reads as a statement: `with fails(OutOfBlocks):`
    """A block that must raise: shows the last line of its traceback, and goes on.

    The exception is kept as ``error``.

    Raises:
        AssertionError: nothing was raised, so the page claims something that is not so.
    """

    def __init__(self, *kinds: type[BaseException]):
        self.kinds = kinds or (Exception,)
        self.error: BaseException | None = None

    def __enter__(self) -> fails:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Swallow the expected error; others pass."""
        if error is None:
            names = " or ".join(kind.__name__ for kind in self.kinds)
            raise AssertionError(f"this block should raise {names}, and nothing was raised")
        if not isinstance(error, self.kinds):
            return False
        self.error = error
        line = f"{type(error).__name__}: {error}"
        recorder = stage.recorder()
        if recorder:
            recorder.add("error", line)
        else:
            print(line)
        return True


def exercise(name: str) -> None:
    """Show what is to be written, the command that judges it, and the hints, folded."""
    (task,) = find(name)
    recorder = stage.recorder()
    put: Callable[[str, str], None] | None = recorder.add if recorder else None
    if put is None and stage.in_notebook():
        put = stage.to_notebook
    if put:
        put("markdown", as_markdown(task, command(task)))
    else:
        print(as_text(task, command(task)))
