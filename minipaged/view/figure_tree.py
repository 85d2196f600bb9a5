"""A forest of labelled nodes, of which some are dead; knows names only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from rich.console import ConsoleOptions
from rich.text import Text

from .figure import Drawing, Lines, headed, new_sheet
from .marks import marks_for
from .svg import PALETTE, WIDTH, Box, Sheet
from .svg_text import fit, text_width

_ALIVE, _DEAD = Box(PALETTE[0]), Box(dashed=True)
_HIGH, _STEP, _INDENT = 22, 46, 16


class Node(NamedTuple):
    """A node as `tree` takes it; ``parent`` is the id of another, or None."""

    id: Hashable
    parent: Hashable | None
    label: str
    dead: bool = False


def tree(
    nodes: Iterable[Node | tuple[Hashable, Hashable | None, str, bool]], caption: str = ""
) -> Drawing:
    """Parents above their children; a dead node is dashed, grey and marked with a cross.

    If the leaves do not fit side by side, each node gets a line of its own, indented.

    Args:
        nodes: (id, id of the parent or None, label, dead), in any order; children keep theirs.
        caption: a line above.

    Raises:
        ValueError: no node, an id twice, a parent that is not there, or a circle.

    Examples:
        >>> print(tree([(0, None, "the cat", False), (1, 0, "sat", False), (2, 0, "ran", True)]))
        the cat
        ├─ sat
        └─ × ran
        × dead
    """
    forest = _Forest([Node(*node) for node in nodes])
    sheet = new_sheet(caption)
    sheet.y += 6
    width = max(text_width(_shown(node), 11) for node in forest.order) + 10
    num_leaves = sum(not forest.children[node.id] for node in forest.order)
    (_side_by_side if num_leaves * (width + 8) - 8 <= WIDTH else _indented)(sheet, forest, width)
    entries = [(_ALIVE, "alive")] * any(not node.dead for node in forest.order)
    entries += [(_DEAD, "× dead")] * any(node.dead for node in forest.order)
    sheet.y += 4
    sheet.legend(entries)
    svg = sheet.render(caption or f"A tree of {len(forest.order)} nodes", forest.told())
    terminal = Lines(lambda options: _text(forest, options))
    return Drawing(svg, headed(caption, terminal))


class _Forest:
    """Who is whose child; ``order`` has every node after its parent, depth first."""

    def __init__(self, nodes: list[Node]):
        self.by_id = {node.id: node for node in nodes}
        if not nodes or len(self.by_id) < len(nodes):
            raise ValueError(f"tree needs nodes with different ids, got {[n.id for n in nodes]}")
        self.children: dict[Hashable, list[Node]] = {node.id: [] for node in nodes}
        for node in nodes:
            if node.parent is not None:
                if node.parent not in self.by_id:
                    raise ValueError(f"node {node.id!r} has the unknown parent {node.parent!r}")
                self.children[node.parent].append(node)
        self.depth: dict[Hashable, int] = {}
        self.order: list[Node] = []
        waiting = [node for node in reversed(nodes) if node.parent is None]
        while waiting:
            node = waiting.pop()
            self.depth[node.id] = 0 if node.parent is None else self.depth[node.parent] + 1
            self.order.append(node)
            waiting += reversed(self.children[node.id])
        if missing := [node.id for node in nodes if node.id not in self.depth]:
            raise ValueError(f"nodes {missing} are each other's ancestors")

    def told(self) -> str:
        """The tree in sentences."""
        lines = (
            f"{node.label}{', dead' if node.dead else ''}"
            + (f", child of {self.by_id[node.parent].label}" if node.parent is not None else "")
            for node in self.order
        )
        return "; ".join(lines) + "."


def _shown(node: Node) -> str:
    return f"× {node.label}" if node.dead else node.label


def _box(sheet: Sheet, node: Node, x: float, y: float, width: float) -> None:
    sheet.rect(x, y, width, _HIGH, _DEAD if node.dead else _ALIVE)
    text = fit(_shown(node), width - 6, 11)
    sheet.text(x + width / 2, y + 15, text, size=11, dim=node.dead, anchor="middle")


def _side_by_side(sheet: Sheet, forest: _Forest, width: float) -> None:
    """Leaves in a row, each parent above the middle of its children."""
    middle: dict[Hashable, float] = {}
    num_leaves = 0
    for node in reversed(forest.order):  # children before their parents, the last leaf first
        below = [middle[child.id] for child in forest.children[node.id]]
        if not below:
            below = [-num_leaves * (width + 8)]
            num_leaves += 1
        middle[node.id] = (min(below) + max(below)) / 2
    left, top = (num_leaves - 1) * (width + 8) + width / 2, sheet.y
    for node in forest.order:
        x, y = left + middle[node.id], top + forest.depth[node.id] * _STEP
        if node.parent is not None:
            start = (left + middle[node.parent], y - _STEP + _HIGH)
            sheet.line([start, (x, y)], dash="3 2" if node.dead else "", weight=1.3, opacity=0.8)
        _box(sheet, node, x - width / 2, y, width)


def _indented(sheet: Sheet, forest: _Forest, width: float) -> None:
    """A node a line, further to the right the deeper it lies."""
    step = _HIGH + 5
    deepest = max(forest.depth.values())
    indent = min(_INDENT, (WIDTH - min(width, WIDTH / 2)) / max(deepest, 1))
    top, rows = sheet.y, dict[Hashable, float]()
    for i, node in enumerate(forest.order):
        x, y = forest.depth[node.id] * indent, top + i * step
        if node.parent is not None:
            corner = x - indent / 2
            points = [(corner, rows[node.parent] + _HIGH), (corner, y + 11), (x, y + 11)]
            sheet.line(points, dash="3 2" if node.dead else "", opacity=0.8)
        own = text_width(_shown(node), 11) + 10
        _box(sheet, node, x, y, min(own, WIDTH - x))
        rows[node.id] = y


def _text(forest: _Forest, options: ConsoleOptions) -> Iterator[Text]:
    """The terminal's form, indented."""
    ascii_only = not marks_for(options).box.startswith("┌")
    tee, corner, bar = ("+- ", "+- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    cross = "x" if ascii_only else "×"
    heads: dict[Hashable, str] = {}  # what stands before the children of a node
    for node in forest.order:
        head = own = ""
        if node.parent is not None:
            is_last = forest.children[node.parent][-1].id == node.id
            own = heads[node.parent] + (corner if is_last else tee)
            head = heads[node.parent] + ("   " if is_last else bar)
        heads[node.id] = head
        label = f"{cross} {node.label}" if node.dead else node.label
        yield Text(own).append(label, style="dim" if node.dead else "")
    if any(node.dead for node in forest.order):
        yield Text(f"{cross} dead", style="dim")
