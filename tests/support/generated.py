"""The parts of the README and the docs that are computed, and how to put them there.

A computed part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``. To add one, write
the markers into the page and a line into ``GENERATED``; the test and the refresher follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from minipaged.core import Snapshot

from .invariants import PAGE, tests_table
from .sizes import ROOT, sizes_table

README = ROOT / "README.md"

INDEX = ROOT / "docs" / "pages" / "index.md"
KERNELS = ROOT / "docs" / "pages" / "explanation" / "kernels.md"


def ladder() -> str:
    """What each rung of the kernels' ladder moves, as the simulator counts it."""
    from .cuda_ladder import ladder_table

    return ladder_table()


def forked() -> str:
    """A pool after a fork and two writes, drawn by the pool itself, as text."""
    from minipaged.view import picture

    return f"```text\n{picture(_forked())}\n```"


def forked_drawing() -> str:
    """The same as SVG."""
    from minipaged.view import drawing

    return drawing(_forked())._repr_html_()


def _forked() -> Snapshot:
    from minipaged.core import BlockPool, BlockTable

    pool, tokens = BlockPool(num_blocks=6), [3, 1, 4, 1, 5, 9, 2, 6, 5]
    a = BlockTable(pool, block_size=4)
    a.reserve(9)
    a.commit(tokens)
    b = a.fork()
    a.reserve(1)
    b.reserve(1)
    a.commit([*tokens, 3])
    b.commit([*tokens, 7])
    return Snapshot.take(pool, {"A": a, "B": b}, block_size=4)


GENERATED: dict[Path, dict[str, Callable[[], str]]] = {
    README: {"picture": forked, "sizes": sizes_table},
    INDEX: {"picture": forked_drawing},
    PAGE: {"tests": tests_table},
    KERNELS: {"ladder": ladder},
}


def refreshed(text: str, parts: dict[str, Callable[[], str]]) -> str:
    """``text`` with its computed parts computed anew."""
    for name, compute in parts.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        body = f"{begin}\n{compute()}\n{end}"
        text, num_found = re.subn(pattern, lambda _, body=body: body, text, flags=re.DOTALL)
        if num_found != 1:
            raise LookupError(f"{begin} ... {end} stands {num_found} times on the page, not once")
    return text


def refresh() -> list[str]:
    """Rewrite every stale page; returns their names."""
    stale = []
    for path, parts in GENERATED.items():
        old = path.read_text(encoding="utf-8")
        new = refreshed(old, parts)
        if new != old:
            path.write_text(new, encoding="utf-8")
            stale.append(path.relative_to(ROOT).as_posix())
    return stale
