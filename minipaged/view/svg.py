"""SVG text from a few shapes, drawn in the order asked for, the same bytes each time.

No ids are used, hence none can collide where many pictures stand in one page: hatches are drawn as
lines, arrow heads as triangles. Text takes the colour of the page around it, fills are translucent,
so a picture reads on light and on dark. There are no line breaks in it, since Markdown would take a
blank line for the end of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .svg_hatch import hatch
from .svg_text import clean, fit, text_width, wrap
from .svg_text import fixed as _n

WIDTH = 400  # units of every picture: a letter of 11 reads at 360 pixels, and at 660
MOST_PIXELS = 560  # wider than that, letters would be larger than the text around the picture
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# Okabe and Ito's colours, which colour-blind readers tell apart too.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
HATCHES = ("", "/", ".", "\\", "x", "|", "-")


@dataclass(frozen=True)
class Box:
    """How a rectangle looks; two that mean different things differ in more than the fill."""

    fill: str | None = None
    hatch: str = ""
    dashed: bool = False
    thick: bool = False
    bare: bool = False  # without a border
    opacity: float = 0.38


CLASSES = tuple(Box(colour, hatch) for colour, hatch in zip(PALETTE, HATCHES))
"""The looks of up to seven classes: each its colour and its hatch."""


Place = tuple[float, float, float, float]  # left, top, width, height


class Sheet:
    """A picture under way; ``y`` says how far down it reaches."""

    def __init__(self, width: float = WIDTH):
        self.width, self.y = width, 0.0
        self._elements: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        bold: bool = False,
        dim: bool = False,
        anchor: str = "start",
    ) -> None:
        """One line of text, its baseline at ``y``."""
        look = ' font-weight="bold"' if bold else ""
        look += ' opacity=".75"' if dim else ""
        look += f' text-anchor="{anchor}"' if anchor != "start" else ""
        at = f'x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"'
        self._add(f"<text {at}{look}>{clean(text)}</text>", y + size / 3)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        box: Box,
        *,
        label: str = "",
        data: str = "",
    ) -> None:
        """A rectangle with a label in its middle, where the hatch leaves room for it.

        ``data`` are attributes by which a page's script finds it.
        """
        size = f'width="{_n(width)}" height="{_n(height)}"'
        place = f'x="{_n(x)}" y="{_n(y)}" {size} rx="2"'
        self._add(f"<rect {place} {_paint(box)}{data and ' ' + data}/>", y + height)
        half = text_width(label, 11) / 2 + 3 if label else 0
        for left in (x, x + width / 2 + half) if label else (x,):
            path = hatch(box.hatch, left, y, width / 2 - half if label else width, height)
            if path:
                ends = ' stroke-width="2" stroke-linecap="round"' if box.hatch == "." else ""
                self._add(f'<path d="{path}" stroke="currentColor" stroke-opacity=".55"{ends}/>')
        if label:
            self.text(x + width / 2, y + height / 2 + 4, label, size=11, anchor="middle")

    def rects(self, places: Sequence[Place], box: Box) -> None:
        """Many small rectangles that look alike, as one path."""
        if places:
            path = "".join(
                f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"
                for x, y, width, height in places
            )
            lowest = max(y + height for _, y, _, height in places)
            self._add(f'<path d="{path}" {_paint(box)}/>', lowest)

    def line(
        self, points: Sequence[tuple[float, float]], *, dash: str = "", weight: float = 1, **look
    ) -> None:
        """A line through ``points``; ``look`` may be ``stroke`` and ``opacity``."""
        places = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        stroke = f'fill="none" stroke="{look.get("stroke", "currentColor")}"'
        stroke += f' stroke-width="{_n(weight)}"' if weight != 1 else ""
        stroke += f' stroke-dasharray="{dash}"' if dash else ""
        stroke += f' opacity="{_n(look["opacity"])}"' if "opacity" in look else ""
        lowest = max(y for _, y in points)
        self._add(f'<polyline points="{places}" {stroke}/>', lowest)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, dash: str = "") -> None:
        """A line with a head at its end."""
        length = max(((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5, 1e-9)
        along_x, along_y = 7 * (to_x - x) / length, 7 * (to_y - y) / length
        foot_x, foot_y = to_x - along_x, to_y - along_y
        self.line([(x, y), (foot_x, foot_y)], dash=dash, weight=1.3, opacity=0.8)
        wing_x, wing_y = -along_y / 2, along_x / 2
        head = [
            (to_x, to_y),
            (foot_x + wing_x, foot_y + wing_y),
            (foot_x - wing_x, foot_y - wing_y),
        ]
        places = " ".join(f"{_n(a)},{_n(b)}" for a, b in head)
        self._add(f'<polygon points="{places}"/>')

    def path(self, path: str, *, filled: bool, opacity: float) -> None:
        """Many small shapes at once, inside what is drawn already."""
        paint = "" if filled else ' fill="none" stroke="currentColor"'
        self._add(f'<path d="{path}"{paint} opacity="{_n(opacity)}"/>')

    def circle(self, x: float, y: float, radius: float, fill: str = "currentColor") -> None:
        """A filled dot."""
        self._add(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{fill}"/>')

    def legend(self, entries: Iterable[tuple[Box | str, str]]) -> None:
        """Swatch and meaning, side by side, as many to a line as fit; below all that is drawn."""
        x, y, size = 0.0, self.y + 18, 11.0
        for swatch, meaning in entries:
            head = text_width(swatch, size) if isinstance(swatch, str) else 20
            width = head + 6 + text_width(meaning, size)
            if x and x + width > self.width:
                x, y = 0.0, y + 17
            if isinstance(swatch, str):
                self.text(x, y, swatch, size=size, bold=True)
            else:
                self.rect(x + 1, y - 10, 18, 12, swatch)
            self.text(x + head + 6, y, fit(meaning, self.width - x - head - 6, size), size=size)
            x += width + 16
        self.y = max(self.y, y + 4)

    def paragraph(self, text: str, *, size: float = 11, indent: float = 0, **look) -> None:
        """Text broken into lines, below all that is drawn; further lines are indented."""
        for i, line in enumerate(wrap(text, self.width - indent, size)):
            y = self.y + size + 5
            self.text(indent if i else 0, y, line, size=size, **look)
            self.y = y + 1

    def paste(self, other: Sheet, y: float, x: float = 0) -> None:
        """All of another sheet, its corner at ``x`` and ``y``."""
        inside = "".join(other._elements)
        self._add(f'<g transform="translate({_n(x)} {_n(y)})">{inside}</g>', y + other.y)

    def render(self, title: str, description: str) -> str:
        """The whole picture; a reader who does not see it is told title and description."""
        height = _n(self.y + 5)
        view = f'viewBox="-2 -2 {_n(self.width + 4)} {height}"'
        style = f"width:100%;max-width:{MOST_PIXELS}px;height:auto;font-family:{_FONT}"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img"'
        head += f' aria-label="{clean(title)}" fill="currentColor" style="{style}">'
        told = f"<title>{clean(title)}</title><desc>{clean(description)}</desc>"
        return f"{head}{told}{''.join(self._elements)}</svg>"

    def _add(self, element: str, lowest: float = 0) -> None:
        self._elements.append(element)
        self.y = max(self.y, lowest)


def _paint(box: Box) -> str:
    """The attributes of a shape that looks so."""
    paint = f'fill="{box.fill}" fill-opacity="{_n(box.opacity)}"' if box.fill else 'fill="none"'
    if not box.bare:
        look = 'stroke-width="2.5"' if box.thick else 'stroke-opacity=".6"'
        paint += f' stroke="currentColor" {look}'
    return paint + (' stroke-dasharray="3 2"' if box.dashed else "")
