"""A small line chart with its names at the lines; knows names and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rich.console import ConsoleOptions
from rich.text import Text

from .figure import Drawing, Lines, headed, new_sheet, number
from .svg import PALETTE, WIDTH, Sheet
from .svg_text import fit, short, spread, text_width

Points = Sequence[tuple[float, float]]
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2", "1 5")
_LETTERS = "abcdefg"
_HEIGHT, _ROWS = 190, 12  # of the chart itself: in units of a sheet, in lines of a terminal


def lines(
    series: Mapping[str, Sequence[float] | Points],
    x_label: str,
    y_label: str,
    *,
    caption: str = "",
    log_x: bool = False,
) -> Drawing:
    """One line for each name, which stands at its end with its last value.

    Args:
        series: name -> the values at 0, 1, 2, ..., or pairs (x, y) with ascending x; seven at most.
        x_label: what runs to the right.
        y_label: what is measured. Its axis includes 0 unless the values lie far from it.
        caption: a line above.
        log_x: equal steps to the right are equal factors, as of block sizes 1, 2, 4, 8.

    Raises:
        ValueError: there is nothing to draw, a number is not finite, or x does not ascend.
    """
    known = {name: _points(name, values, log_x) for name, values in series.items()}
    if not 0 < len(known) <= len(_DASHES):
        raise ValueError(f"lines draws 1 to {len(_DASHES)} series, got {len(known)}")
    chart = _Chart(known, log_x)
    sheet = new_sheet(caption)
    sheet.paragraph(y_label, size=11, dim=True)
    _axes(sheet, chart, top := sheet.y + 10)
    _curves(sheet, chart, top)
    sheet.text(chart.right, top + _HEIGHT + 31, x_label, size=11, dim=True, anchor="end")
    told = " ".join(_told(name, points, x_label) for name, points in known.items())
    svg = sheet.render(caption or f"{y_label} by {x_label}", f"{y_label}. {told}")
    return Drawing(
        svg, headed(caption, Lines(lambda options: _text(chart, x_label, y_label, options)))
    )


def _points(name: str, values: Sequence[float] | Points, log_x: bool) -> list[tuple[float, float]]:
    pairs = [v if isinstance(v, Sequence) else (i, v) for i, v in enumerate(values)]
    what = f"a value of {name}"
    points = [(number(x, what), number(y, what)) for x, y in pairs]
    if not points:
        raise ValueError(f"{name} has no values")
    if any(b[0] <= a[0] for a, b in pairwise(points)):
        raise ValueError(f"{name}: x must ascend, got {[x for x, _ in points]}")
    if log_x and points[0][0] <= 0:
        raise ValueError(f"{name}: x = {points[0][0]:g} has no place on a logarithmic axis")
    return points


class _Chart:
    """Where a point lies: ``places`` maps numbers to the range 0..1."""

    def __init__(self, series: Mapping[str, Points], log_x: bool):
        self.series, self.log_x = series, log_x
        xs = [x for points in series.values() for x, _ in points]
        ys = [y for points in series.values() for _, y in points]
        self.y_ticks = _ticks(min(ys), max(ys))
        self.x_ticks = _powers(min(xs), max(xs)) if log_x else _inner_ticks(min(xs), max(xs))
        self.x_range = min(xs), max(xs)
        self.y_range = self.y_ticks[0], self.y_ticks[-1]
        names = (text_width(f"{n} {short(p[-1][1])}", 11) for n, p in series.items())
        self.left = max(text_width(short(t), 11) for t in self.y_ticks) + 8
        self.right = WIDTH - min(max(names) + 20, WIDTH * 0.47)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Shares of the chart's width and height."""
        low, high = self.x_range
        if self.log_x:
            x, low, high = math.log(x), math.log(low), math.log(high)
        across = (x - low) / (high - low) if high > low else 0.5
        low, high = self.y_range
        return across, (y - low) / (high - low)

    def at(self, x: float, y: float, top: float) -> tuple[float, float]:
        """The same on a sheet."""
        across, up = self.place(x, y)
        return self.left + across * (self.right - self.left), top + (1 - up) * _HEIGHT


def _step(low: float, high: float, most: int = 5) -> float:
    """1, 2 or 5 times a power of ten, so that at most ``most`` steps are needed."""
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.9999)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from below ``low`` to above ``high``; 0 too, unless it is far away."""
    if (low > 0 and (high - low) > 0.2 * high) or low == high >= 0:
        low = 0
    if (high < 0 and (high - low) > -0.2 * low) or low == high < 0:
        high = 0
    if low == high:
        high = 1
    step = _step(low, high)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _inner_ticks(low: float, high: float) -> list[float]:
    """Round numbers between ``low`` and ``high``."""
    if low == high:
        return [low]
    step = _step(low, high, 6)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Powers of two from ``low`` to ``high``, nine at most."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    step = max(1, -(-(last - first) // 8))
    return [2.0**i for i in range(first, last + 1, step)] or [low]


def _axes(sheet: Sheet, chart: _Chart, top: float) -> None:
    for tick in chart.y_ticks:
        _, y = chart.at(chart.x_range[0], tick, top)
        faint = 0.8 if tick == chart.y_range[0] else 0.2
        sheet.line([(chart.left, y), (chart.right, y)], opacity=faint)
        sheet.text(chart.left - 5, y + 4, short(tick), size=11, anchor="end")
    for tick in chart.x_ticks:
        x, y = chart.at(tick, chart.y_range[0], top)
        sheet.line([(x, y), (x, y + 4)], opacity=0.8)
        sheet.text(x, y + 16, short(tick), size=11, anchor="middle")


def _curves(sheet: Sheet, chart: _Chart, top: float) -> None:
    """The lines, a dot at each of few points, and the names, moved apart where they would meet."""
    by_height = sorted(chart.series.items(), key=lambda item: -item[1][-1][1])
    ends = [chart.at(*points[-1], top)[1] for _, points in by_height]
    heights = spread([y - top + 8 for y in ends], [15] * len(ends), _HEIGHT + 16)
    looks = dict(zip(chart.series, zip(PALETTE, _DASHES)))
    for (name, points), end, height in zip(by_height, ends, heights):
        colour, dash = looks[name]
        places = [chart.at(x, y, top) for x, y in points]
        sheet.line(places, dash=dash, weight=2.2, stroke=colour)
        for place in places if len(places) <= 20 else places[-1:]:
            sheet.circle(*place, 2.6, colour)
        y = top + height - 8
        sheet.line([(places[-1][0] + 3, end), (chart.right + 12, y)], dash=dash, stroke=colour)
        value = short(points[-1][1])
        room = WIDTH - chart.right - 16 - text_width(f" {value}", 11)
        sheet.text(chart.right + 15, y + 4, f"{fit(name, room, 11)} {value}", size=11)


def _told(name: str, points: Points, x_label: str) -> str:
    (first_x, first), (last_x, last) = points[0], points[-1]
    span = f"from {short(first)} at {x_label} {short(first_x)} to {short(last)} at {short(last_x)}"
    return f"{name}: {span}."


def _text(
    chart: _Chart, x_label: str, y_label: str, options: ConsoleOptions
) -> Iterator[Text | str]:
    """The terminal's form: a letter for each line, and below it what each says."""
    yield Text(y_label, style="dim")
    low, high = short(chart.y_range[0]), short(chart.y_range[1])
    margin = max(len(low), len(high))
    width = max(min(options.max_width, 80) - margin - 2, 10)
    field = [[" "] * width for _ in range(_ROWS)]
    for letter, points in zip(_LETTERS, chart.series.values()):
        for x, y in points:
            across, up = chart.place(x, y)
            field[round((1 - up) * (_ROWS - 1))][round(across * (width - 1))] = letter
    for i, row in enumerate(field):
        tick = high if i == 0 else low if i == _ROWS - 1 else ""
        yield Text(f"{tick:>{margin}} |{''.join(row)}".rstrip())
    ends = short(chart.x_range[0]), short(chart.x_range[1])
    gap = max(width - len(ends[0]) - len(ends[1]), 1)
    yield Text(f"{'':{margin}} +{'-' * width}")
    yield Text(f"{'':{margin}}  {ends[0]}{x_label:^{gap}}{ends[1]}")
    for letter, (name, points) in zip(_LETTERS, chart.series.items()):
        yield f"{letter} {_told(name, points, x_label)}"
