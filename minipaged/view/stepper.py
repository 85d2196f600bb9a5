"""A recorded run as one HTML page, to be stepped through; the pictures are made here, in Python.

The page fetches nothing and needs nothing beside it. A frame is stored as what differs from the
frame before it, so two hundred steps of a full pool are a few hundred kilobytes.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from minipaged.core import Snapshot

from .blocks import block_views
from .figure_block import Cells, legend
from .marks import Letters
from .moment import Moment, mentioned, moments, num_used
from .stepper_data import compact, embeddable
from .svg import WIDTH, Sheet
from .svg_text import text_width

MOST_BLOCKS, PER_ROW = 256, 8
WHY = {
    "admitted": "room for all of its tokens was there",
    "adopted": "equal prefixes are kept once",
    "allocated": "its next tokens have no slot yet",
    "copied": "whoever writes into a block that others read, or may find, gets a copy first",
    "evicted": "no blank block was left, so the longest unused cached one gives its room",
    "forked": "a fork copies a list of block numbers, and no block",
    "found": "the same tokens were computed before: they are not computed again",
    "preempted": "the oldest must go on, so the newest gives its blocks back",
    "published": "full and written: whoever begins with the same tokens may use it",
    "released": "a block without a holder is free; if it is published it can still be found",
    "shared": "one more holder, nothing copied",
}
_RANK = ("copied", "adopted", "found", "evicted", "allocated", "shared", "published", "released")
_ELEMENT = re.compile(r"(?=<(?:rect|text|path|polyline|polygon|circle|g)\b)|(?=</svg>)")


class Html:
    """A page that shows itself where it is the last word of a notebook's cell."""

    def __init__(self, text: str, summary: str):
        self._page, self._summary = text, summary

    def page(self) -> str:
        """The whole document, to be written to a file."""
        return self._page

    def _repr_html_(self) -> str:
        # A frame of its own: neither its style nor its keys meet those of the page around it.
        look = "width:100%;height:46rem;border:1px solid #8888"
        # No line breaks, since Markdown would take a blank line for the end of it.
        page = escape(self._page).replace("\n", "&#10;")
        return f'<iframe title="A recorded run" style="{look}" srcdoc="{page}"></iframe>'

    def __str__(self) -> str:
        return self._summary

    def __repr__(self) -> str:
        return f"<Html, {len(self._page):,} characters: {self._summary.splitlines()[0]}>"


def stepper(frames: Iterable[Any], *, title: str = "A recorded run") -> Html:
    """A page that goes back and forth through ``frames``.

    Args:
        frames: ``Snapshot``s, frames of the story, or moments of a recording, in their order.
        title: what stands above.

    Raises:
        ValueError: there are none.
        TypeError: something else is among them.

    Examples:
        >>> from minipaged.core import BlockPool
        >>> shot = Snapshot.take(BlockPool(num_blocks=2), {}, block_size=4)
        >>> "<script" in stepper([shot, shot]).page()
        True
    """
    told = list(moments(frames))
    if not told:
        raise ValueError("no frames: a run has at least the state before its first step")
    num_shown, omitted = _extent(told)
    pictures = _pictures(told, num_shown)
    first = f"<p>{escape(told[0].title)}</p>{''.join(pictures[0])}"
    script = _read("js")
    fields = {
        "title": escape(title),
        "style": _read("css"),
        "first": first,
        "legend": _legend(told, num_shown),
        "omitted": f"<p>{escape(omitted)}</p>" if omitted else "",
        "data": embeddable(compact(told, pictures, WHY)),
        "hash": "sha256-" + b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "script": script,
    }
    page = re.sub(r"@@(\w+)@@", lambda match: fields[match[1]], _read("html"))
    summary = "\n".join(f"{i}  {moment.title}" for i, moment in enumerate(told))
    return Html(page, f"{title}\n{summary}")


def _read(kind: str) -> str:
    text = (files("minipaged.view") / f"stepper.{kind}").read_text(encoding="utf-8")
    return text if kind == "html" else text.strip()


# --- pictures ----------------------------------------------------------------------------------


def _extent(told: list[Moment]) -> tuple[int, str]:
    """How many blocks are drawn, counted from 0, and what is said of the others."""
    num_all, last = max(moment.snapshot.num_blocks for moment in told), num_used(told)
    whole_rows = -(-last // PER_ROW) * PER_ROW
    num_shown = min(whole_rows, num_all, MOST_BLOCKS)
    said = []
    if last > num_shown:
        said.append(f"{last - num_shown:,} more blocks are used, too many to be drawn.")
    if num_all > max(last, num_shown):
        said.append(f"{num_all - max(last, num_shown):,} more blocks are never used.")
    return num_shown, " ".join(said)


def _pictures(told: list[Moment], num_shown: int) -> list[list[str]]:
    """The pool at every moment as SVG, in parts; all of one size, so that nothing jumps."""
    letters, sheets = Letters(), []
    for moment in told:
        shot = moment.snapshot
        known = letters.of(table.name for table in shot.tables)
        cells = Cells(shot.block_size, num_shown, known, {-1: "", **_marks(moment)})
        sheet = Sheet()
        for i, block in enumerate(block_views(shot)[:num_shown]):
            cells.draw(sheet, i, block, 0)
        sheet.text(0, sheet.y + 18, _free(shot, num_shown), size=11, dim=True)
        sheets.append(sheet)
    lowest = max(sheet.y for sheet in sheets)
    for sheet in sheets:
        sheet.y = lowest
    return [
        _ELEMENT.split(sheet.render("The pool of blocks", "told beside it")) for sheet in sheets
    ]


def _free(shot: Snapshot, num_shown: int) -> str:
    """The free order, of blocks that are drawn; of the others, how many they are."""
    ids = [str(b) for b in shot.free_order if b < num_shown][:60]
    while True:
        num_more = len(shot.free_order) - len(ids)
        tail = f"{'and ' * bool(ids)}{num_more:,} more" if num_more else "none" * (not ids)
        text = " ".join(filter(None, ["free, next first:", *ids, tail]))
        if not ids or text_width(text, 11) <= WIDTH:
            return text
        ids.pop()


def _marks(moment: Moment) -> dict[int, str]:
    """The most telling thing that happened to each block."""
    marks: dict[int, str] = {}
    for kind in reversed(_RANK):
        for change in moment.changes:
            if change.kind == kind:
                marks.update(dict.fromkeys(change.block_ids or mentioned(change.text), kind))
    return marks


def _legend(told: list[Moment], num_shown: int) -> str:
    """The signs that occur anywhere in the run."""
    entries = {}
    for moment in told:
        blocks = block_views(moment.snapshot)[:num_shown]
        entries.update(dict.fromkeys(legend(blocks, bool(_marks(moment)))))
    sheet = Sheet()
    sheet.y = -6
    sheet.legend(entries)
    return sheet.render("Legend", "what the signs mean")
