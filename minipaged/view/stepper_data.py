"""A recorded run as the data of a page: every frame as what differs from the one before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from .moment import Moment, Told, mentioned


def compact(
    told: list[Moment], pictures: list[list[str]], words: Mapping[str, str]
) -> dict[str, Any]:
    """Everything the script needs; equal parts and pieces are kept once.

    Args:
        told: the moments.
        pictures: of each, its SVG in parts; the first part is the same for all.
        words: why a kind of change happens.
    """
    parts, pieces = _Once(), _Once()
    steps, picture, texts, tables, prefixes = [], [], {}, {}, {}
    for moment, (_, *body) in zip(told, pictures):
        before, picture = picture, [parts.place(part) for part in body[:-1]]
        step: dict[str, Any] = {"title": moment.title, "picture": edits(before, picture)}
        step["changes"] = [
            [c.kind, c.text, mentioned(c.text), c.names if isinstance(c, Told) else ()]
            for c in moment.changes
        ]
        step["lines"] = []
        for line in moment.lines:
            known = texts.get(line.name, [])
            texts[line.name] = [pieces.place(tuple(piece)) for piece in line.pieces]
            step["lines"].append([line.name, line.state, edits(known, texts[line.name])])
        step["tables"] = {}
        for table in moment.snapshot.tables:
            known = tables.get(table.name, [])
            tables[table.name] = list(table.block_ids)
            step["tables"][table.name] = edits(known, tables[table.name])
        published = dict(enumerate(moment.snapshot.prefixes))
        known, prefixes = prefixes, published
        step["prefixes"] = [[b, p] for b, p in published.items() if p != known.get(b)]
        steps.append(step)
    kinds = {change.kind for moment in told for change in moment.changes}
    why = {kind: text for kind, text in words.items() if kind in kinds}
    head = pictures[0][0]
    return {
        "head": head,
        "parts": parts.things,
        "pieces": pieces.things,
        "why": why,
        "steps": steps,
        "num_blocks": max(moment.snapshot.num_blocks for moment in told),
    }


class _Once:
    """A list in which equal things share a place."""

    def __init__(self):
        self.things: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, thing: Any) -> int:
        """Where it stands."""
        if thing not in self._places:
            self._places[thing] = len(self.things)
            self.things.append(thing)
        return self._places[thing]


def edits(before: list[int], after: list[int]) -> list[int | list[int]]:
    """``after`` as a list in which ``[from, to]`` stands for what was there in ``before``.

    Examples:
        >>> edits([5, 6, 7, 8], [5, 6, 9, 8])
        [[0, 2], 9, [3, 4]]
    """
    made: list[int | list[int]] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for verb, start, stop, new_start, new_stop in matcher.get_opcodes():
        if verb == "equal":
            made.append([start, stop])
        else:
            made += after[new_start:new_stop]
    return made


def embeddable(data: Mapping[str, Any]) -> str:
    """JSON that no browser takes for the end, or the inside, of an element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!", "\\u003c!")
