"""Takes fenced blocks, markers and links out of Markdown; knows nothing of what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

FENCE = re.compile(
    r"(?:^[ \t]*<!-- (?P<note>[^>]*?) -->[ \t]*\n)?"
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n"
    r"(?P<body>.*?)"
    r"^(?P=indent)(?P=fence)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(?P<title>.*?)\s*(?:\{#(?P<id>[\w-]+)\})?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block; ``note`` is the HTML comment on the line before it, or empty."""

    path: Path
    line: int  # of its first line of content
    language: str
    note: str
    body: str

    @property
    def skip_reason(self) -> str:
        """Why this block must not be run: ``<!-- skip: reason -->`` before it."""
        return self.note.removeprefix("skip:").strip() if self.note.startswith("skip:") else ""

    @property
    def where(self) -> str:
        """``docs/pages/index.md:12``."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}"


def pages() -> list[Path]:
    """The README, the map of the tests, and every page of the docs."""
    return [
        ROOT / "README.md",
        ROOT / "tests" / "README.md",
        *sorted((ROOT / "docs" / "pages").rglob("*.md")),
    ]


def blocks(path: Path) -> list[Block]:
    """Every fenced block of a page, in order, without its indentation."""
    text, found = path.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        found.append(Block(path, line, match["language"], match["note"] or "", body))
    return found


def links(path: Path) -> list[str]:
    """Targets of all links outside code."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    return [match["target"] for match in LINK.finditer(text)]


def anchors(path: Path) -> set[str]:
    """The ids that headings of a page get, as the docs and the README's readers see them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {match["id"] or _slug(match["title"]) for match in HEADING.finditer(text)}


def _slug(title: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())
