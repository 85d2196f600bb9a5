"""show, source, fails, exercise: the same call in a terminal, in a notebook, and on the site."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from minipaged.core import BlockPool, BlockTable, OutOfBlocks, Snapshot
from minipaged.learn import exercise, fails, show, source, stage


class Picture:
    """Something that can draw itself."""

    def _repr_html_(self) -> str:
        return "<svg>drawn</svg>"

    def __rich__(self) -> str:
        return "drawn in signs"


@pytest.fixture
def notebook(monkeypatch):
    """What a notebook would display, in order: a stand-in for IPython."""
    shown: list[tuple[str, str]] = []
    display = types.ModuleType("IPython.display")
    display.HTML = lambda text: ("html", text)  # type: ignore[attr-defined]
    display.Markdown = lambda text: ("markdown", text)  # type: ignore[attr-defined]
    display.display = shown.append  # type: ignore[attr-defined]
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def recorded(action) -> list[tuple[str, str]]:
    """What the renderer of the site gets."""
    with stage.recording() as recorder:
        action()
    return [(piece.kind, piece.text) for piece in recorder.pieces]


def snapshot() -> Snapshot:
    pool = BlockPool(num_blocks=2)
    table = BlockTable(pool, block_size=2)
    table.reserve(3)
    table.commit([1, 2, 3])
    return Snapshot.take(pool, {"A": table}, block_size=2)


# --- show ---------------------------------------------------------------------------------------


def test_a_terminal_gets_signs(capsys):
    show(Picture(), "text")
    assert capsys.readouterr().out == "drawn in signs\ntext\n"


def test_the_site_gets_html_between_what_is_printed():
    def cell():
        print("before")
        show(Picture())
        print("after")

    assert recorded(cell) == [
        ("text", "before\n"),
        ("html", "<svg>drawn</svg>"),
        ("text", "after\n"),
    ]


def test_a_notebook_gets_html(notebook):
    show(Picture(), caption="so it is")
    ((kind, text),) = notebook
    assert kind == "html"
    assert "<svg>drawn</svg>" in text
    assert "so it is" in text


def test_ipython_in_a_terminal_is_a_terminal(notebook, monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: object())
    show(Picture())
    assert capsys.readouterr().out == "drawn in signs\n"
    assert notebook == []


def test_a_snapshot_is_drawn_everywhere(capsys):
    show(snapshot())
    assert "A" in capsys.readouterr().out
    ((kind, text),) = recorded(lambda: show(snapshot(), caption="three tokens"))
    assert kind == "html"
    assert "<svg" in text
    assert "three tokens" in text


def test_a_class_is_not_taken_for_a_picture(capsys):
    show(Picture)
    assert "Picture" in capsys.readouterr().out


def test_recording_ends_where_it_ends(capsys):
    with pytest.raises(ZeroDivisionError), stage.recording():
        _ = 1 / 0
    show(Picture())
    assert capsys.readouterr().out == "drawn in signs\n"


# --- source -------------------------------------------------------------------------------------


def test_source_is_the_packages_own_text(capsys):
    source(BlockTable.fork)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("# minipaged/core/block_table.py:")
    line = int(first.rpartition(":")[2])
    with open(sys.modules[BlockTable.__module__].__file__ or "") as file:
        text = file.read().splitlines()
    assert [row.strip() for row in text[line - 1 : line - 1 + len(rest)]] == [
        row.strip() for row in rest
    ]


def test_source_from_a_text_to_another():
    ((kind, text),) = recorded(lambda: source(BlockTable.fork, "child = ", "pool.share"))
    assert kind == "python"
    head, *lines = text.splitlines()
    assert head == "# minipaged/core/block_table.py: BlockTable.fork"
    assert lines[0].startswith("child = BlockTable(")
    assert lines[-1] == "    self.pool.share(block_id)"


def test_a_quotation_that_no_longer_fits_is_an_error():
    with pytest.raises(LookupError, match="'no such line' does not occur"):
        source(BlockTable.fork, "no such line")


def test_source_sees_through_wrappers():
    ((_, text),) = recorded(lambda: source(BlockPool.__dict__["num_free"]))
    assert "BlockPool.num_free" in text


# --- fails --------------------------------------------------------------------------------------


def test_fails_shows_the_last_line_and_goes_on(capsys):
    with fails(OutOfBlocks) as failure:
        BlockPool(num_blocks=1).allocate(2)
    assert capsys.readouterr().out == "OutOfBlocks: 2 blocks needed, 1 of 1 are free\n"
    assert isinstance(failure.error, OutOfBlocks)


def test_an_error_is_marked_as_one_on_the_site():
    def cell():
        with fails(OutOfBlocks):
            BlockPool(num_blocks=1).allocate(2)

    assert recorded(cell) == [("error", "OutOfBlocks: 2 blocks needed, 1 of 1 are free")]


def test_nothing_raised_is_an_error():
    with pytest.raises(AssertionError, match="should raise OutOfBlocks"), fails(OutOfBlocks):
        pass


def test_another_error_passes():
    with pytest.raises(KeyError), fails(OutOfBlocks):
        raise KeyError


# --- exercise -----------------------------------------------------------------------------------


def test_an_exercise_says_what_to_type(capsys):
    exercise("fork")
    out = capsys.readouterr().out
    assert "$ minipaged learn 6" in out
    assert ">>> append(pool" in out


def test_on_the_site_its_hints_are_folded():
    ((kind, text),) = recorded(lambda: exercise("fork"))
    assert kind == "markdown"
    assert "``` { .console }\n$ minipaged learn 6" in text
    assert text.count('<details markdown="1"><summary>Hint') >= 2
    assert "    >>>" not in text, "examples are code, not an indented quotation"


def test_an_unknown_exercise_names_the_known_ones():
    with pytest.raises(LookupError, match="6 fork"):
        exercise("frok")


def test_the_function_is_not_hidden_by_the_module_of_its_name():
    code = "from minipaged.learn import exercise as first; import minipaged.learn.exercise\n"
    code += "from minipaged.learn import exercise as then; assert callable(then) and then is first"
    subprocess.run([sys.executable, "-c", code], check=True)
