"""Pools to be drawn, and pictures read back: the texts with the room they take, and the blocks."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree

from minipaged.core import BlockPool, BlockTable, OutOfBlocks, Snapshot, root_hash
from minipaged.view import Drawing
from minipaged.view.svg import PALETTE, Box, Sheet
from minipaged.view.svg_text import text_width

_TAG = "{http://www.w3.org/2000/svg}"


class Written(NamedTuple):
    """A piece of text and the box in which it lies."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


class Drawn(NamedTuple):
    """What stands in one block of a pool."""

    block_id: int
    is_changed: bool
    texts: list[str]
    num_written: int
    num_promised: int
    fills: tuple[str, ...] = ()  # of the bands of a written slot, from above


def pool(num_blocks: int, block_size: int, num_tables: int, name: str = "r{}") -> Snapshot:
    """Sequences of random length; some begin alike, hence share."""
    books, rng = BlockPool(num_blocks), random.Random(num_blocks + block_size)
    tables: dict[str, BlockTable] = {}
    for i in range(num_tables):
        table = BlockTable(books, block_size, root_hash())
        ids = [rng.randrange(2) for _ in range(rng.randrange(1, 3 * block_size))]
        try:
            table.match_prefix(ids)
            table.reserve(len(ids) - table.num_tokens)
        except OutOfBlocks:
            table.release()
            continue
        table.commit(ids)
        tables[name.format(i)] = table
    return Snapshot.take(books, tables, block_size)


def in_one_colour(box: Box) -> str:
    """How a box looks to someone who tells no two colours apart."""
    sheet = Sheet()
    sheet.rect(0, 0, 18, 12, box)
    svg = sheet.render("", "")
    for colour in PALETTE:
        svg = svg.replace(colour, "currentColor")
    return svg


def parse(drawing: Drawing) -> ElementTree.Element:
    """The tree of the picture; fails if it is not well-formed."""
    return ElementTree.fromstring(drawing.svg)


def texts(drawing: Drawing) -> list[Written]:
    """Everything that is written, in the picture's own coordinates."""
    return list(_texts(parse(drawing), 0, 0))


def words(drawing: Drawing) -> str:
    """All text of the picture, without the spaces that only lay it out."""
    return " ".join(piece.text for piece in texts(drawing))


def plain_words(drawing: Drawing) -> str:
    """The same of the terminal's form."""
    return " ".join(str(drawing).split())


def size(drawing: Drawing) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the picture."""
    left, top, width, height = map(float, parse(drawing).attrib["viewBox"].split())
    return left, top, left + width, top + height


def clipped(drawing: Drawing) -> list[Written]:
    """Texts that lie outside the picture, in part or whole."""
    left, top, right, bottom = size(drawing)
    return [
        t
        for t in texts(drawing)
        if t.left < left or t.right > right or t.top < top or t.bottom > bottom
    ]


def overlapping(drawing: Drawing) -> list[tuple[str, str]]:
    """Pairs of texts one of which covers the other."""
    return [
        (a.text, b.text)
        for a, b in combinations(texts(drawing), 2)
        if a.left < b.right - 0.5
        and b.left < a.right - 0.5
        and a.top < b.bottom - 0.5
        and b.top < a.bottom - 0.5
    ]


def blocks(drawing: Drawing) -> list[Drawn]:
    """The blocks of a pool in the order in which they are drawn."""
    found: list[Drawn] = []
    bottom = 0.0
    for element in parse(drawing):
        block_id = element.get("data-block")
        if block_id is not None:
            is_changed = element.get("stroke-width") == "2.5"
            bottom = float(element.attrib["y"]) + float(element.attrib["height"])
            found.append(Drawn(int(block_id), is_changed, [], 0, 0))
        elif element.tag == _TAG + "g":
            return found  # the tables begin
        elif found and element.tag == _TAG + "text":
            if float(element.attrib["y"]) < bottom:
                found[-1].texts.append(element.text or "")
        elif found and element.tag == _TAG + "path":
            found[-1] = _count(found[-1], element)
    return found


def _count(block: Drawn, path: ElementTree.Element) -> Drawn:
    num = path.attrib["d"].count("M")
    if path.get("stroke-dasharray"):
        return block._replace(num_promised=block.num_promised + num)
    if path.get("stroke") is None:  # a band: all that share a slot have one each
        return block._replace(num_written=num, fills=(*block.fills, path.attrib["fill"]))
    return block


def _texts(element: ElementTree.Element, x: float, y: float) -> Iterator[Written]:
    move = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
    if move:
        x, y = x + float(move[1]), y + float(move[2])
    if element.tag == _TAG + "text":
        yield _place(element, x, y)
    for child in element:
        yield from _texts(child, x, y)


def _place(element: ElementTree.Element, x: float, y: float) -> Written:
    """Where a piece of text lies: from its capitals' height to the bottom of a ``p``."""
    text, height = element.text or "", float(element.attrib["font-size"])
    width = text_width(text, height)
    x, y = x + float(element.attrib["x"]), y + float(element.attrib["y"])
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[element.get("text-anchor", "start")]
    left = x - before * width
    return Written(text, left, y - 0.72 * height, left + width, y + 0.2 * height)
