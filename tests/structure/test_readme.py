"""The README says only what is so: its numbers are computed, its commands are there."""

from __future__ import annotations

import re

import pytest

from support.generated import GENERATED, README, refreshed
from support.markdown import ROOT, blocks

TEXT = README.read_text(encoding="utf-8")


def marked_command(name: str) -> str:
    """The one line of the block under ``<!-- NAME -->``; ``.ci/run`` reads it the same way."""
    (block,) = (b for b in blocks(README) if b.note == name)
    return block.body.strip()


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_computed_parts_are_fresh(page):
    text = page.read_text(encoding="utf-8")
    stale = "stale: run python tests/structure/update_readme.py"
    assert refreshed(text, GENERATED[page]) == text, stale


def test_parts_are_replaced_between_their_markers():
    text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb"
    assert refreshed(text, {"x": lambda: r"new \1"}) == text.replace("old", r"new \1")
    with pytest.raises(LookupError, match="0 times"):
        refreshed("nothing here", {"x": str})


def test_the_two_commands():
    assert marked_command("run-command") == (
        'pip install . && minipaged generate "To be, or not to be"'
    )
    assert marked_command("test-command") == "pip install '.[dev]' && pytest"


def test_it_can_be_read_in_one_sitting():
    assert len(TEXT.splitlines()) <= 160


def test_every_room_of_the_package_is_on_the_map():
    rooms = [
        path.name for path in (ROOT / "minipaged").iterdir() if (path / "__init__.py").exists()
    ]
    missing = [room for room in rooms if f"{room}/" not in TEXT]
    assert missing == [], "the map of floors lacks a room"


def test_nothing_is_left_to_fill_in():
    for path in (README, *(ROOT / "docs" / "pages").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bTODO\b", text), f"{path.relative_to(ROOT)} has a TODO"


def test_no_paths_of_one_machine():
    own = re.compile(r"(?<![\w.])/(?:work|root|tmp|home)/\w")
    folders = ("minipaged", "minipaged_cuda", "docs/pages", "tests", "tutorials")
    files = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in (".py", ".md")]
    files += [README, ROOT / "CHANGELOG.md", ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    for path in files:
        found = own.search(path.read_text(encoding="utf-8"))
        assert not found, f"{path.relative_to(ROOT)}: {found and found[0]}"
