"""One picture in two forms: SVG for a page or a notebook, text for a terminal; draws nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from .svg import Sheet
from .terminal import plain


@dataclass(frozen=True)
class Drawing:
    """A picture that shows itself wherever it is the last word of a cell, or printed by Rich.

    ``svg`` is one line of text, to be put into HTML as it is. Printing it gives the terminal's form
    without colours.
    """

    svg: str
    text: RenderableType

    def _repr_html_(self) -> str:
        # A block element: Markdown leaves its inside alone.
        return f'<div class="minipaged-drawing">{self.svg}</div>'

    def __rich__(self) -> RenderableType:
        return self.text

    def __str__(self) -> str:
        return plain(self.text)

    def __repr__(self) -> str:
        return f"<Drawing, {len(self.svg):,} characters of SVG>"


@dataclass(frozen=True)
class Lines:
    """A Rich renderable made by a function of the console's options.

    A ``Text`` is a line of a picture, cut off where the console ends; a ``str`` is prose, broken
    there.
    """

    make: Callable[[ConsoleOptions], Iterable[Text | str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        """The lines, one after the other."""
        for line in self.make(options):
            if isinstance(line, str):
                yield Text(line)
            else:
                line.no_wrap, line.overflow = True, "crop"
                yield line


def headed(caption: str, *parts: RenderableType) -> RenderableType:
    """The terminal's form below its caption, if there is one."""
    return Group(*([Text(caption, style="bold")] if caption else []), *parts)


def new_sheet(caption: str) -> Sheet:
    """An empty sheet but for the caption."""
    sheet = Sheet()
    if caption:
        sheet.paragraph(caption, size=13, bold=True)
    return sheet


def number(value: float, what: str) -> float:
    """The value itself, if it can be drawn.

    Raises:
        ValueError: it is infinite or not a number.
    """
    if not math.isfinite(value):
        raise ValueError(f"{what} is {value}: only finite numbers can be drawn")
    return float(value)
