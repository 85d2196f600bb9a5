"""Bars of shares that sum to 1, one under another; knows names and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import ConsoleOptions
from rich.text import Text

from .bar import shares
from .figure import Drawing, Lines, headed, new_sheet, number
from .marks import marks_for
from .svg import CLASSES, WIDTH, Sheet
from .svg_text import fit, spread, text_width
from .terminal import flow

_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]], parts: Sequence[str], caption: str = ""
) -> Drawing:
    """A bar for each row, cut into its parts, with every share in per cent.

    Args:
        rows: label -> part -> share; a part that is left out has none.
        parts: the order in which they are drawn; seven at most.
        caption: a line above.

    Raises:
        ValueError: shares do not sum to 1, one is negative or not a number, or a part is unknown.

    Examples:
        >>> print(stacked_bars({"paged": {"tokens": 0.75, "empty": 0.25}}, ["tokens", "empty"]))
        paged
        ████████████████████████████████████████████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
        █ 75.0 % tokens   ▓ 25.0 % empty
    """
    table = {label: _shares(label, row, parts) for label, row in rows.items()}
    if not table:
        raise ValueError("stacked_bars needs one row at least")
    sheet = new_sheet(caption)
    for label, row in table.items():
        _bar(sheet, label, row)
    occurs = [part for i, part in enumerate(parts) if any(row[i] for row in table.values())]
    sheet.y += 4
    sheet.legend((CLASSES[list(parts).index(part)], part) for part in occurs)
    told = (
        f"{label}: " + ", ".join(f"{per_cent(s)} {p}" for p, s in zip(parts, row) if s) + "."
        for label, row in table.items()
    )
    svg = sheet.render(caption or f"Shares of {', '.join(occurs)}", " ".join(told))
    terminal = Lines(lambda options: _text(table, parts, options))
    return Drawing(svg, headed(caption, terminal))


def per_cent(share: float) -> str:
    """``12.3 %``; what is more than nothing, or less than all, never looks like it.

    Examples:
        >>> per_cent(0.5), per_cent(1), per_cent(0.0001), per_cent(0.99999)
        ('50.0 %', '100.0 %', '<0.1 %', '>99.9 %')
    """
    if 0 < share < 0.0005:
        return "<0.1 %"
    if 0.9995 <= share < 1:
        return ">99.9 %"
    return f"{100 * share:.1f} %"


def _shares(label: str, row: Mapping[str, float], parts: Sequence[str]) -> list[float]:
    """The shares of one row in the order of ``parts``, if they are such."""
    if len(set(parts)) != len(parts) or len(parts) > len(CLASSES):
        raise ValueError(f"parts must be {len(CLASSES)} different names at most, got {parts}")
    if unknown := [part for part in row if part not in parts]:
        raise ValueError(f"{label}: {unknown} is not among the parts {list(parts)}")
    found = [number(row.get(part, 0), f"{label}: {part}") for part in parts]
    if min(found, default=0) < 0:
        raise ValueError(f"{label}: a share is negative: {dict(row)}")
    if not math.isclose(sum(found), 1, abs_tol=1e-6):
        raise ValueError(f"{label}: the shares sum to {sum(found):.6g}, not to 1: {dict(row)}")
    return found


def _bar(sheet: Sheet, label: str, row: Sequence[float]) -> None:
    """A label, the bar, and the numbers: inside where they fit, or else below with a line."""
    y = sheet.y + 18
    sheet.text(0, y, fit(label, WIDTH, 12), size=12, bold=True)
    start, height, outside = 0.0, 24, list[tuple[float, str]]()
    for box, share in zip(CLASSES, row):
        width, text = share * WIDTH, per_cent(share)
        if share:
            fits = text_width(text, 11) + 24 <= width  # some of the hatch must be seen
            sheet.rect(start, y + 6, width, height, box, label=text if fits else "")
            if not fits:
                outside.append((start + width / 2, text))
        start += width
    sizes = [text_width(text, 11) + 8 for _, text in outside]
    below = y + 6 + height
    for (middle, text), place in zip(outside, spread([m for m, _ in outside], sizes, WIDTH)):
        sheet.line([(middle, below), (place, below + 7)], opacity=0.7)
        sheet.text(place, below + 17, text, size=11, anchor="middle")


def _text(
    table: Mapping[str, Sequence[float]],
    parts: Sequence[str],
    options: ConsoleOptions,
) -> Iterator[Text]:
    """The terminal's form: the numbers stand below each bar."""
    signs = marks_for(options).bar
    for label, row in table.items():
        yield Text(label, style="bold")
        lengths = shares([round(share * 1_000_000) for share in row], options.max_width)
        line = Text()
        for sign, style, length in zip(signs, _STYLES, lengths):
            line.append(sign * length, style=style)
        yield line
        numbers = zip(signs, row, parts)
        yield from flow(
            (f"{s} {per_cent(n)} {part}" for s, n, part in numbers if n), options.max_width
        )
