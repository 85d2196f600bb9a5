"""How wide text is and how it is broken, cut and moved apart; draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.cells import cell_len

EM = 0.62  # width of a letter; no common monospaced font is wider


def text_width(text: str, size: float = 12) -> float:
    """How wide this is at most, in units."""
    return cell_len(text) * size * EM


def fit(text: str, room: float, size: float = 12) -> str:
    """The text, or as much of its beginning as there is room for, and an ellipsis.

    Examples:
        >>> fit("request", 100), fit("request", 30)
        ('request', 'req…')
    """
    if text_width(text, size) <= room:
        return text
    text = text[: max(int(room / (size * EM)), 0)]  # a letter is at least one cell wide
    while text and text_width(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, room: float, size: float = 12) -> list[str]:
    """Lines that are no wider than ``room``; a word that is wider is cut."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(fit(word, room, size))
    return lines


def spread(places: Sequence[float], sizes: Sequence[float], stop: float) -> list[float]:
    """Centres near ``places`` (ascending) at which things of these sizes do not overlap.

    Examples:
        >>> spread([10, 12, 95], [10, 10, 20], stop=100)
        [10, 20.0, 90.0]
    """
    found: list[float] = []
    end = 0.0
    for place, size in zip(places, sizes):
        found.append(max(place, end + size / 2))
        end = found[-1] + size / 2
    for i in range(len(found) - 1, -1, -1):
        found[i] = min(found[i], stop - sizes[i] / 2)
        stop = found[i] - sizes[i] / 2
    return found


def short(value: float) -> str:
    """A number as a person would write it.

    Examples:
        >>> short(0.25), short(3.0), short(1234567.0), short(0.00012), short(97.53)
        ('0.25', '3', '1,234,567', '0.00012', '97.53')
    """
    if value == round(value) and abs(value) < 1e15:
        return f"{round(value):,}"
    return f"{value:,.2f}".rstrip("0") if abs(value) >= 100 else f"{value:.4g}"


def clean(text: str) -> str:
    """One line that XML can carry."""
    line = " ".join(str(text).split())
    return escape("".join(c if c.isprintable() else "�" for c in line))


def fixed(value: float) -> str:
    """A number as short as it can be: two places at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
