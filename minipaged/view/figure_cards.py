"""Cards with a title and named values, in a row with arrows between them; knows names only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from rich.text import Text

from .figure import Drawing, Lines, headed, new_sheet
from .svg import WIDTH, Box, Sheet
from .svg_text import fit, text_width

_GAP, _PAD, _LINE = 20, 7, 16


class Card(TypedDict):
    """What stands on one card; ``values`` are written as they are."""

    title: str
    values: Mapping[str, object]


def cards(cards: Sequence[Card], caption: str = "", arrows: bool = True) -> Drawing:
    """One card after the other, each led to by an arrow from the one before.

    Args:
        cards: in their order: ``{"title": "block 0", "values": {"m": "2.03", "l": "1.39"}}``.
        caption: a line above.
        arrows: draw them; without, the cards only stand side by side.

    Raises:
        ValueError: there is no card.

    Examples:
        >>> state = {"title": "block 0", "values": {"m": 2.03, "l": 1.393}}
        >>> print(cards([state, state | {"title": "block 1"}]))
           block 0: m = 2.03, l = 1.393
        -> block 1: m = 2.03, l = 1.393
    """
    if not cards:
        raise ValueError("cards needs one card at least")
    sheet = new_sheet(caption)
    width, per_row = _measure(cards)
    y = sheet.y + 6
    for start in range(0, len(cards), per_row):
        row = cards[start : start + per_row]
        height = 20 + _LINE * max(len(card["values"]) for card in row) + _PAD
        for i, card in enumerate(row):
            x = _GAP * (per_row < len(cards)) + i * (width + _GAP)
            if arrows and start + i:
                sheet.arrow(x - _GAP + 2, y + height / 2, x - 1, y + height / 2)
            _card(sheet, card, x, y, width, height)
        y += height + 10
    told = " ".join(_told(card) + "." for card in cards)
    svg = sheet.render(caption or f"{len(cards)} cards", told)
    terminal = Lines(lambda _: _text(cards, arrows))
    return Drawing(svg, headed(caption, terminal))


def _measure(cards: Sequence[Card]) -> tuple[float, int]:
    """Width of a card, and how many stand in a row: as many as their text allows, all alike."""
    texts = [text_width(card["title"], 12) for card in cards]
    texts += [text_width(f"{n} {v}", 12) for card in cards for n, v in card["values"].items()]
    needed = min(max(texts) + 2 * _PAD, WIDTH - _GAP)
    per_row = min(int(WIDTH // (needed + _GAP)) or 1, len(cards))
    if per_row == len(cards) - 1 and len(cards) * (needed + _GAP) - _GAP <= WIDTH:
        per_row += 1  # in a single row, no arrow leads to the first
    room = WIDTH + _GAP * (per_row == len(cards))
    return min(room / per_row - _GAP, max(needed, 90)), per_row


def _card(sheet: Sheet, card: Card, x: float, y: float, width: float, height: float) -> None:
    sheet.rect(x, y, width, height, Box())
    room = width - 2 * _PAD
    sheet.text(x + _PAD, y + 16, fit(card["title"], room), bold=True)
    sheet.line([(x, y + 22), (x + width, y + 22)], opacity=0.5)
    for i, (name, value) in enumerate(card["values"].items()):
        line = y + 22 + _LINE * (i + 1) - 2
        sheet.text(x + _PAD, line, fit(name, room), dim=True)
        rest = room - text_width(f"{name} ", 12)
        sheet.text(x + width - _PAD, line, fit(str(value), rest), anchor="end")


def _told(card: Card) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in card["values"].items())
    return f"{card['title']}: {values}"


def _text(cards: Sequence[Card], arrows: bool) -> Iterator[Text | str]:
    for i, card in enumerate(cards):
        yield f"{'-> ' if i and arrows else '   '}{_told(card)}"
