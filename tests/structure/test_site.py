"""The site's own files: generated pages are fresh, raw HTML and docstrings lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.markdown import FENCE, ROOT, anchors, pages

DOCS = ROOT / "docs" / "pages"
PAGES = [page for page in pages() if page.is_relative_to(DOCS)]
PAGE_PATH = re.compile(r"\bdocs/pages/[\w/-]+\.md(?:#[\w-]+)?")


def generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh():
    stale = [str(path.relative_to(ROOT)) for path in generator().stale()]
    assert stale == [], "stale: run python docs/generate.py"


def test_a_stale_page_is_seen(tmp_path, monkeypatch, capsys):
    module = generator()
    page = tmp_path / "made" / "page.md"
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "GENERATED", {page: lambda: "new"})
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert page.read_text() == "new"
    assert module.main(["--check"]) == 0
    assert capsys.readouterr().out.splitlines() == ["stale: made/page.md", "written: made/page.md"]


class Links(HTMLParser):
    """What the raw HTML of a page loads or leads to."""

    def __init__(self, text: str):
        super().__init__()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        wanted = ("src", "data", "poster", "srcset") + (("href",) if tag != "a" else ())
        self.loaded += [value or "" for name, value in attrs if name in wanted]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_raw_html_loads_only_what_is_here(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    images = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text)
    for link in [*Links(re.sub(r"`[^`\n]*`", "", text)).loaded, *images]:
        assert not re.match(r"(\w+:)?//", link), f"{page.name} loads {link}"
        file = (page.parent / link.partition("#")[0]).resolve()
        assert file.exists(), f"{page.name} loads {link}, which is not there"


def test_a_page_that_loads_from_elsewhere_is_seen():
    text = '<img src="https://x.test/a.png"> <link href="//y.test/b.css"> <a href="https://z.test">'
    assert Links(text).loaded == ["https://x.test/a.png", "//y.test/b.css"]


def sources() -> list[Path]:
    """Every file that may name a page: code, tests, the course, the command of the CI."""
    folders = ("minipaged", "minipaged_cuda", "tests", "tutorials", "docs")
    found = [p for folder in folders for p in (ROOT / folder).rglob("*.py")]
    return [*found, ROOT / "pyproject.toml", ROOT / ".ci" / "run", ROOT / "CHANGELOG.md"]


def test_pages_that_the_code_names_exist():
    missing = []
    for file in sources():
        for name in PAGE_PATH.findall(file.read_text(encoding="utf-8")):
            page, _, anchor = name.partition("#")
            there = (ROOT / page).exists() and (not anchor or anchor in anchors(ROOT / page))
            missing += [] if there else [f"{file.relative_to(ROOT)}: {name}"]
    assert missing == []


def test_every_page_is_in_the_menu_once():
    menu = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:\n")[2]
    entries = re.findall(r"^ *- [^#\n]*?: ([\w/.-]+\.md)$", menu, re.MULTILINE)
    assert len(set(entries)) == len(entries)
    assert set(entries) == {page.relative_to(DOCS).as_posix() for page in PAGES}
