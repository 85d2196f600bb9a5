"""A matrix of numbers as shades, or as squares where numbers do not fit; knows no threads.

The numbers of a matrix of counts say more than its shades do; where they do not fit, the area of a
square says what the shade says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import ConsoleOptions
from rich.text import Text

from .figure import Drawing, Lines, headed, new_sheet, number
from .svg import PALETTE, WIDTH, Box, Sheet
from .svg_text import fit, short, text_width

Matrix = Sequence[Sequence[float | None]]
_Rows = list[list[float | None]]
_DIGITS = ".123456789"  # of a terminal with too little room: tenths of the largest value


def heat(
    matrix: Matrix,
    x_label: str,
    y_label: str,
    numbers: bool = True,
    *,
    caption: str = "",
    every: int = 0,
) -> Drawing:
    """Rows downwards, columns to the right, both counted from 0; the larger, the darker.

    Args:
        matrix: rows of equal length, of numbers from 0 up; None is an empty cell.
        x_label: what a column is.
        y_label: what a row is.
        numbers: write the numbers where they fit; else the area of a square tells.
        caption: a line above.
        every: a heavy line before every so many columns, as where a memory sector begins.

    Raises:
        ValueError: the matrix is empty or ragged, a number is negative or not finite.

    Examples:
        >>> print(heat([[1, 0], [0, 12]], "address", "thread"))
        thread down, address across
           0  1
        0  1  0
        1  0 12
    """
    rows = _checked(matrix)
    sheet = new_sheet(caption)
    left = text_width(str(len(rows) - 1), 10) + 10
    cell = min((WIDTH - left) / len(rows[0]), 44)
    widest = max(text_width(short(v), 10) for row in rows for v in row if v is not None)
    shows_numbers = numbers and widest + 2 <= cell
    high = cell if not shows_numbers else max(min(cell, 26), 16)
    most = max(v for row in rows for v in row if v is not None) or 1
    top = sheet.y + 34
    _labels(sheet, rows, left, top, cell, high, (x_label, y_label))
    if shows_numbers:
        _numbers(sheet, rows, left, top, (cell, high), most)
    else:
        _squares(sheet, rows, left, top, cell, most)
    if every:
        for j in range(0, len(rows[0]) + 1, every):
            x = left + j * cell
            sheet.line([(x, top - 3), (x, top + len(rows) * high + 3)], weight=2.2)
    if not shows_numbers:
        told = f"The area of a square is its number; the largest is {short(most)}."
        if any(value is None for row in rows for value in row):
            told += " A stroke: no number."
        sheet.paragraph(told, size=11, dim=True)
    if every:
        sheet.paragraph(f"A heavy line: every {every} columns.", size=11, dim=True)
    svg = sheet.render(caption or f"{y_label} by {x_label}", _told(rows, x_label, y_label))
    return Drawing(
        svg, headed(caption, Lines(lambda options: _text(rows, x_label, y_label, options)))
    )


def _checked(matrix: Matrix) -> _Rows:
    rows = [
        [None if v is None else number(v, f"row {i}, column {j}") for j, v in enumerate(row)]
        for i, row in enumerate(matrix)
    ]
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"heat needs rows of one length, got lengths {sorted(lengths)}")
    if all(v is None for row in rows for v in row):
        raise ValueError("heat needs one number at least")
    if low := [v for row in rows for v in row if v is not None and v < 0]:
        raise ValueError(f"heat shows numbers from 0 up, got {low[0]:g}")
    return rows


def _labels(
    sheet: Sheet,
    rows: _Rows,
    left: float,
    top: float,
    cell: float,
    high: float,
    labels: tuple[str, str],
) -> None:
    """Axis names, and as many of the row and column numbers as there is room for."""
    line = fit(f"{labels[1]} ↓   {labels[0]} →", WIDTH, 11)
    sheet.text(0, top - 20, line, size=11, dim=True)
    wide = text_width(str(len(rows[0]) - 1), 10) + 4
    for j in range(0, len(rows[0]), _every(wide / cell)):
        sheet.text(left + (j + 0.5) * cell, top - 5, str(j), size=10, anchor="middle")
    for i in range(0, len(rows), _every(12 / high)):
        sheet.text(left - 5, top + (i + 0.5) * high + 3.5, str(i), size=10, anchor="end")


def _every(least: float) -> int:
    """The first of 1, 2, 4, 8, ... that is not below ``least``."""
    step = 1
    while step < least:
        step *= 2
    return step


def _numbers(
    sheet: Sheet, rows: _Rows, left: float, top: float, size: tuple[float, float], most: float
) -> None:
    """A shaded box with its number for each cell that is not empty."""
    width, height = size
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if value is None:
                continue
            x, y = left + j * width, top + i * height
            box = Box(PALETTE[0] if value else None, opacity=0.1 + 0.5 * value / most)
            sheet.rect(x, y, width, height, box)
            middle = (x + width / 2, y + height / 2 + 3.5)
            sheet.text(*middle, short(value), size=10, anchor="middle")


def _squares(sheet: Sheet, rows: _Rows, left: float, top: float, cell: float, most: float) -> None:
    """A grid with a square for each number, and a stroke through each empty cell."""
    across, down = cell * len(rows[0]), cell * len(rows)
    grid = [f"M{left:.1f} {top + i * cell:.1f}h{across:.1f}" for i in range(len(rows) + 1)]
    grid += [f"M{left + j * cell:.1f} {top:.1f}v{down:.1f}" for j in range(len(rows[0]) + 1)]
    squares = ""
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            x, y = left + (j + 0.5) * cell, top + (i + 0.5) * cell
            if value is None:
                grid.append(f"M{x - cell / 2:.1f} {y + cell / 2:.1f}l{cell:.1f} {-cell:.1f}")
            elif value:
                side = (cell - 1) * (value / most) ** 0.5
                corner = f"{x - side / 2:.1f} {y - side / 2:.1f}"
                squares += f"M{corner}h{side:.1f}v{side:.1f}h{-side:.1f}z"
    sheet.path("".join(grid), filled=False, opacity=0.25)
    sheet.path(squares, filled=True, opacity=0.8)
    sheet.y = max(sheet.y, top + down)


def _told(rows: _Rows, x_label: str, y_label: str) -> str:
    """Every number, row by row."""
    lines = (
        f"{y_label} {i}: " + " ".join("-" if v is None else short(v) for v in row)
        for i, row in enumerate(rows)
    )
    return f"A row for each {y_label}, a column for each {x_label}. " + "; ".join(lines) + "."


def _text(
    rows: _Rows,
    x_label: str,
    y_label: str,
    options: ConsoleOptions,
) -> Iterator[Text]:
    """The terminal's form: the numbers, or one digit for each where they are too wide."""
    yield Text(f"{y_label} down, {x_label} across", style="dim")
    margin = len(str(len(rows) - 1))
    texts = [["-" if v is None else short(v) for v in row] for row in rows]
    wide = max(len(text) for row in (*texts, [str(len(rows[0]) - 1)]) for text in row)
    if margin + len(rows[0]) * (wide + 1) <= options.max_width:
        yield Text(
            " " * margin + "".join(f" {j:>{wide}}" for j in range(len(rows[0]))), style="dim"
        )
        for i, row in enumerate(texts):
            line = Text(f"{i:>{margin}}", style="dim")
            yield line.append("".join(f" {text:>{wide}}" for text in row), style="not dim")
        return
    most = max(v for row in rows for v in row if v is not None) or 1
    for i, row in enumerate(rows):
        signs = (" " if v is None else _DIGITS[-int(-9 * v // most)] for v in row)
        yield Text(f"{i:>{margin}} " + "".join(signs))
    yield Text(f". is 0, 9 is {short(most)}", style="dim")
