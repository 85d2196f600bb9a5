"""The renderer of the course: what it writes, and that it notices what is no longer so."""

from __future__ import annotations

import importlib.util
import sys

import markdown
import pytest

from minipaged.learn import stage
from minipaged.learn.pages import Page, cells
from support.markdown import ROOT

SCRIPT = """# %% [markdown]
# # 99. A page
#
# **Question.** Does
# it run?
#
# ## Picture

# %%
from minipaged.learn import exercise, fails, show, source

x = 40
print("before", x)


class Picture:
    def _repr_html_(self):
        return "<svg viewBox='0 0 2 2'>\\n\\n  <text>in the *picture*</text>\\n</svg>"


show(Picture())

# %%
x += 2
with fails(ValueError):
    int("no number")
print(x)

# %% tags=["approx"]
import time

print(time.perf_counter_ns())

# %%
exercise("fork")
"""


@pytest.fixture
def render(monkeypatch, tmp_path):
    """The script as a module, writing somewhere else."""
    spec = importlib.util.spec_from_file_location("render", ROOT / "tutorials" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCS", tmp_path / "site")
    return module


@pytest.fixture
def page(tmp_path):
    """A page that is not in the course, with this text."""

    def make(text: str = SCRIPT) -> Page:
        path = tmp_path / "99_page.py"
        path.write_text(text)
        return Page(path)

    return make


def html(text: str) -> str:
    """What a reader of the site gets."""
    names = ["md_in_html", "attr_list", "tables", "pymdownx.highlight", "pymdownx.superfences"]
    return markdown.markdown(text, extensions=names)


# --- cells --------------------------------------------------------------------------------------


def test_cells_know_their_lines_and_tags(page):
    found = page().cells
    assert [(c.number, c.kind) for c in found] == [
        (1, "markdown"),
        (2, "code"),
        (3, "code"),
        (4, "code"),
        (5, "code"),
    ]
    lines = SCRIPT.splitlines()
    assert all(lines[cell.line - 1] == cell.text.splitlines()[0] for cell in found)
    assert [cell.is_approx for cell in found] == [False, False, False, True, False]
    assert [cell.is_silent for cell in found[1:]] == [False, False, False, True]


def test_title_and_question_are_read_from_the_prose(page):
    assert (page().title, page().question) == ("A page", "Does it run?")


def test_a_comment_like_a_mark_is_no_mark():
    assert [cell.text for cell in cells("# %%\nx = 1\n# %%s is a format\n")] == [
        "x = 1\n# %%s is a format"
    ]


# --- writing ------------------------------------------------------------------------------------


def test_a_page_has_its_code_and_what_it_really_did(render, page):
    _, _, first, second, approx, last = render.render(page())
    assert "``` { .text .output }\nbefore 40\n```" in first
    assert "ValueError: invalid literal for int() with base 10: 'no number'" in second
    assert "``` { .text .output }\n42\n```" in second, "one namespace for all cells"
    assert approx.count("approx -->") == 2
    assert 'exercise("fork")' not in last
    assert "minipaged learn 6" in last


def test_pictures_and_folds_survive_markdown(render, page):
    made = html("\n\n".join(render.render(page())))
    shown = "\n".join(render.render(page())).partition('<div class="shown">')[2]
    assert "\n\n" not in shown.partition("</div>")[0], "elsewhere HTML ends at an empty line"
    assert "<text>in the *picture*</text>" in made, "nothing inside a picture is Markdown"
    assert "<svg viewBox='0 0 2 2'>" in made
    assert made.count("<details>") == made.count("</details>") >= 2
    assert "<summary>Hint 1 of" in made
    assert "```" not in made


def test_the_output_of_a_fence_may_hold_a_fence(render):
    text = render.fence("a\n```\nb", "text", "output")
    assert text.startswith("```` {")


def test_pieces_follow_each_other_as_they_came(render):
    pieces = [stage.Piece("text", "a  \nb\n"), stage.Piece("text", "\n")]
    assert render.as_markdown(pieces[0]) == "``` { .text .output }\na\nb\n```"
    assert render.as_markdown(pieces[1]) == ""


# --- checking -----------------------------------------------------------------------------------


def test_a_page_that_was_just_written_is_fresh(render, page):
    assert render.one(page(), check=False)[0] == ""
    assert render.one(page(), check=True)[0] == "", "the approximate cell differs, and may"


def test_a_stale_page_is_seen_and_its_cell_named(render, page):
    render.one(page(), check=False)
    complaint, _ = render.one(page(SCRIPT.replace("x += 2", "x += 3")), check=True)
    assert "99_page.py, cell 3 is stale" in complaint
    assert "-42" in complaint
    assert "+43" in complaint


def test_changed_prose_is_stale_too(render, page):
    render.one(page(), check=False)
    complaint, _ = render.one(page(SCRIPT.replace("## Picture", "## Pictures")), check=True)
    assert "cell 1 is stale" in complaint


def test_a_page_that_was_never_written_is_stale(render, page):
    assert "is stale" in render.one(page(), check=True)[0]


def test_text_behind_the_end_is_stale(render, page):
    render.one(page(), check=False)
    path = render.DOCS / "99_page.md"
    path.write_text(path.read_text() + "\nmore\n")
    assert "is stale" in render.one(page(), check=True)[0]


def test_a_cell_that_raises_is_named_with_its_line(render, page):
    line = SCRIPT.splitlines().index('    int("no number")') + 1
    with pytest.raises(render.PageFailed) as caught:
        render.render(page(SCRIPT.replace('int("no number")', "x += nothing")))
    assert str(caught.value).splitlines() == [
        f"99_page.py, cell 3, line {line}: x += nothing",
        "  NameError: name 'nothing' is not defined",
    ]


def test_a_page_that_expects_a_failure_and_gets_none_fails(render, page):
    with pytest.raises(render.PageFailed, match="should raise ValueError"):
        render.render(page(SCRIPT.replace("no number", "7")))


def test_the_index_tells_every_step_and_its_exercises(render):
    text = render.index({6: 3})
    assert "- runs in about 3 s" in text
    assert "`minipaged learn 6`" in text
    assert render.comparable(text) == render.comparable(render.index({6: 7}))


def test_running_times_are_kept_for_pages_that_do_not_run_now(render):
    render.write(render.DOCS / "index.md", render.index({1: 4, 6: 3}))
    known = render.known_seconds()
    assert (known[1], known[6], known[2]) == (4, 3, 1)
