"""Every page of the course: it has the form, it runs, and the site shows what it did."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from minipaged.learn import catalog, notebook, pages, reading
from support.markdown import ROOT

PAGES = pages.pages()
DOCS = ROOT / "docs" / "pages" / "tutorials"
LEARN = ROOT / "minipaged" / "learn"
RENDER = ROOT / "tutorials" / "render.py"
FORM = ["Picture", "Predict", "Run", "What goes wrong without it", "What must hold"]
FORM += ["Your turn", "In the wild", "You can now"]
MAX_WIDTH = 88

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.stem)


def written(page: pages.Page) -> str:
    """The page as the site has it."""
    return (DOCS / f"{page.path.stem}.md").read_text(encoding="utf-8")


@every_page
def test_the_site_shows_what_the_page_does_now(page):
    """Runs every cell in one namespace, in order, as a notebook does; every text it quotes is."""
    command = [sys.executable, str(RENDER), "--check", str(page.number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("index.md")]
    assert f"{page.path.name}: ok" in done.stdout, "\n".join(lines) + done.stderr


@every_page
def test_it_has_the_form_of_a_page(page):
    prose = re.sub(r"^```.*?^```", "", page.prose, flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^## (.+)$", prose, re.MULTILINE)
    assert heads == FORM
    assert re.search(rf"^# {page.number}\. ", prose, re.MULTILINE), "the title has its number"
    assert page.question.endswith("?")


@every_page
def test_its_folds_are_closed_and_stay_markdown(page):
    opened = re.findall(r"<details.*?</summary>\n(.?)", page.prose)
    assert len(opened) == page.prose.count("<details") == page.prose.count("</details>") > 0
    assert set(opened) == {""}, "a fold needs an empty line after its summary"
    assert page.prose.count('<details markdown="1"><summary>') == len(opened)


@every_page
def test_its_output_fits_a_page(page):
    outputs = re.findall(r"^```+ \{ \.text \.\w+ \}\n(.*?)^```", written(page), re.M | re.S)
    long = [line for text in outputs for line in text.splitlines() if len(line) > MAX_WIDTH]
    assert long == []


@every_page
def test_commands_it_names_exist(page):
    steps = {str(p.number) for p in PAGES} | {task.key for task in catalog.tasks()}
    steps |= {task.name for task in catalog.tasks()} | {p.name for p in PAGES}
    words = re.findall(r"minipaged learn (?:notebook )?(\w+)", page.path.read_text("utf-8"))
    assert [word for word in words if word not in steps] == []


@every_page
def test_what_it_tells_to_type_works_wherever_the_package_is_installed(page):
    assert only_here(page.path.read_text(encoding="utf-8")) == []


def test_so_does_what_the_index_and_the_exercises_tell():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    texts = [index, *(path.read_text(encoding="utf-8") for path in LEARN.rglob("*.py"))]
    assert [found for text in texts for found in only_here(text)] == []


def only_here(text: str) -> list[str]:
    """Scripts that no wheel has under that name; and an extra of the folder that one stands in.

    An installed minipaged knows what its extras need, so `minipaged[learn]` is right everywhere.
    """
    return re.findall(r"python tutorials/\S*|pip install \S*\.\[\S*", text)


@every_page
def test_in_a_terminal_its_pictures_are_text(page, capsys):
    """Reads it as far as the last thing that it shows; behind that is nothing to draw."""
    shows = [i for i, cell in enumerate(page.cells) if cell.kind == "code" and "show(" in cell.text]
    cells = page.cells[: max(shows, default=-1) + 1]
    read_by = SimpleNamespace(cells=cells, path=page.path)
    prose = Console(file=io.StringIO(), width=80)
    reading.read(read_by, prose, lambda question: None)  # type: ignore[arg-type]
    told = capsys.readouterr().out
    assert told or not shows
    assert not re.search(r"<(svg|div|figure|table)\b", told)


@every_page
def test_it_asks_for_the_exercises_of_its_step(page):
    asked = set(re.findall(r"^exercise\(\"(\w+)\"\)", page.path.read_text("utf-8"), re.M))
    assert asked == {task.name for task in catalog.tasks() if task.step == page.number}


@every_page
def test_it_becomes_a_notebook_of_the_same_cells(page, tmp_path):
    made = json.loads(notebook.write(page, tmp_path).read_text(encoding="utf-8"))
    code = ["".join(c["source"]) for c in made["cells"] if c["cell_type"] == "code"]
    assert code == [cell.text for cell in page.cells if cell.kind == "code"]
    for cell in page.cells:  # a cell that is cut in the middle of a statement is none
        if cell.kind == "code":
            compile(cell.text, page.path.name, "exec")


@every_page
def test_a_notebook_of_it_is_valid(page):
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat to judge notebooks")
    nbformat.validate(notebook.notebook(page))


def test_the_steps_are_numbered_without_a_gap():
    assert [page.number for page in PAGES] == list(range(1, len(PAGES) + 1))


def test_the_index_is_fresh():
    done = subprocess.run(
        [sys.executable, str(RENDER), "--check", "--index"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_site_has_no_page_without_a_script():
    names = {path.stem for path in DOCS.glob("*.md")}
    assert names == {"index", *(page.path.stem for page in PAGES)}


def test_nothing_before_the_first_cell_is_lost():
    for page in PAGES:
        first = Path(page.path).read_text(encoding="utf-8").partition("# %%")[0]
        assert first.strip() == "", f"{page.path.name}: text before the first cell"
