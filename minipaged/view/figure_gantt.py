"""Who was in which state at which step, one row for each; knows names only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from string import ascii_lowercase

from rich.console import ConsoleOptions
from rich.text import Text

from .figure import Drawing, Lines, headed, new_sheet
from .svg import CLASSES, WIDTH, Sheet
from .svg_text import fit, text_width
from .terminal import flow

_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
_ROW = 19


def gantt(
    rows: Mapping[str, Sequence[str | None]], caption: str = "", unit: str = "step"
) -> Drawing:
    """A row of coloured, hatched and lettered states for each label; time runs to the right.

    Args:
        rows: label -> its state at step 0, 1, 2, ...; None or "" is no state. Seven different
            states at most, in the order in which they are first seen.
        caption: a line above.
        unit: what is counted to the right.

    Raises:
        ValueError: there is no row, no state in any, or there are more than seven states.

    Examples:
        >>> print(gantt({"A": ["prefill", "decode", "decode"], "B": [None, "prefill", "decode"]}))
        A |pdd
        B |.pd
        step 0 to 2
        p prefill   d decode   . nothing
    """
    names = list(dict.fromkeys(state for row in rows.values() for state in row if state))
    if not 0 < len(names) <= len(CLASSES):
        raise ValueError(f"gantt draws 1 to {len(CLASSES)} states, got {len(names)}: {names[:9]}")
    letters, num_steps = _letters(names), max(map(len, rows.values()))
    sheet = new_sheet(caption)
    _rows(sheet, rows, letters, num_steps, unit)
    sheet.legend((CLASSES[i], f"{letters[name]} {name}") for i, name in enumerate(names))
    told = " ".join(f"{label}: {_told(row, unit)}." for label, row in rows.items())
    svg = sheet.render(caption or f"{len(rows)} rows over {num_steps} {unit}s", told)
    terminal = Lines(lambda options: _text(rows, letters, unit, options))
    return Drawing(svg, headed(caption, terminal))


def _letters(names: Sequence[str]) -> dict[str, str]:
    """One letter for each state: of its own name, if it is not taken."""
    found: dict[str, str] = {}
    for name in names:
        wanted = [c for c in name.lower() if c.isalnum()] + list(ascii_lowercase)
        found[name] = next(c for c in wanted if c not in found.values())
    return found


def _runs(row: Sequence[str | None]) -> Iterator[tuple[str | None, int, int]]:
    """State, first step, and the step behind the last, of each run of equal states."""
    for state, run in groupby(enumerate(row), key=lambda item: item[1] or None):
        steps = [i for i, _ in run]
        yield state, steps[0], steps[-1] + 1


def _told(row: Sequence[str | None], unit: str) -> str:
    runs = [(s, a, b) for s, a, b in _runs(row) if s]
    spans = (f"{s} at {unit} {a}" if b - a == 1 else f"{s} {a} to {b - 1}" for s, a, b in runs)
    return ", ".join(spans) or "nothing"


def _rows(
    sheet: Sheet,
    rows: Mapping[str, Sequence[str | None]],
    letters: Mapping[str, str],
    num_steps: int,
    unit: str,
) -> None:
    left = min(max(text_width(label, 11) for label in rows) + 8, WIDTH * 0.3)
    step, top = (WIDTH - left) / num_steps, sheet.y + 8
    boxes = dict(zip(letters, CLASSES))
    bottom = top + _ROW * len(rows)
    for i in _ticks(num_steps):
        sheet.line([(left + i * step, top), (left + i * step, bottom + 3)], opacity=0.25)
        sheet.text(left + (i + 0.5) * step, bottom + 14, str(i), size=10, anchor="middle")
    for i, (label, row) in enumerate(rows.items()):
        y = top + i * _ROW
        sheet.text(left - 6, y + 13, fit(label, left - 6, 11), size=11, anchor="end")
        for state, start, stop in _runs(row):
            if state:
                width = (stop - start) * step
                letter = letters[state] if width >= 10 else ""
                place = (left + start * step, y + 1, width, _ROW - 2)
                sheet.rect(*place, boxes[state], label=letter)
    sheet.text(left - 6, bottom + 14, unit, size=10, dim=True, anchor="end")


def _ticks(num_steps: int) -> range:
    """At most nine steps whose number is written."""
    every = next(n for p in range(9) for n in (10**p, 2 * 10**p, 5 * 10**p) if num_steps <= 9 * n)
    return range(0, num_steps, every)


def _text(
    rows: Mapping[str, Sequence[str | None]],
    letters: Mapping[str, str],
    unit: str,
    options: ConsoleOptions,
) -> Iterator[Text]:
    """The terminal's form: a letter for each step, or for every so many if the line is short."""
    margin, num_steps = max(map(len, rows)), max(map(len, rows.values()))
    every = -(-num_steps // max(options.max_width - margin - 2, 1))
    styles = dict(zip(letters, _STYLES))
    for label, row in rows.items():
        line = Text(f"{label:>{margin}} |")
        for state in row[::every]:
            line.append(letters[state] if state else ".", style=styles[state] if state else "dim")
        yield line
    yield Text(f"{unit} 0 to {num_steps - 1}" + (f", every {every}th" if every > 1 else ""))
    entries = [f"{letter} {name}" for name, letter in letters.items()]
    if any(not state for row in rows.values() for state in row):
        entries.append(". nothing")
    yield from flow(entries, options.max_width)
