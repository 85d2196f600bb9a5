"""Whatever the README and the docs show, works: code runs, commands exist, links lead somewhere.

Per page, ``python`` blocks are run in order in one namespace, and ``pycon`` blocks are checked
as doctests in it; one under ``<!-- file: name -->`` is a file of that name, too, for what follows.
A ``console`` or ``bash`` block is run if ``<!-- run -->`` stands before it, and what it shows must
be what is printed, ``...`` aside. ``<!-- skip: reason -->`` excuses any block. Whether run or not,
every ``minipaged`` command must name a subcommand and options that exist.

The course (``docs/pages/tutorials``) is written by ``tutorials/render.py``, which runs it.
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from support.markdown import ROOT, Block, anchors, blocks, links, pages
from support.sessions import WrongSession, commands_of, exit_codes, run_session

RUN = ("python", "pycon")
SESSIONS = ("console", "bash")
KNOWN = {*RUN, *SESSIONS, "text", "toml", "json", "yaml", ""}
COURSE = ROOT / "docs" / "pages" / "tutorials"
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_block(block: Block, namespace: dict) -> None:
    """Run one block in the present folder; a failure names the page and line."""
    if block.language in SESSIONS:
        run_session(block, Path.cwd())
        return
    if block.note.startswith("file:"):
        Path(block.note.removeprefix("file:").strip()).write_text(block.body, encoding="utf-8")
    if block.language == "python":
        padding = "\n" * (block.line - 1)  # so that the traceback's line is the page's
        exec(compile(padding + block.body, str(block.path), "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(
        block.body, namespace, block.where, str(block.path), block.line - 1
    )
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    failed, _ = runner.run(test, out=said.append, clear_globs=False)
    namespace.update(test.globs)
    if failed:
        pytest.fail("".join(said), pytrace=False)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    todo = [b for b in blocks(page) if b.language in RUN and not b.skip_reason]
    todo += [b for b in blocks(page) if b.language in SESSIONS and exit_codes(b)]
    todo.sort(key=lambda block: block.line)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"docs:{name_of(page)}"}
    for block in todo:
        run_block(block, namespace)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_blocks_say_what_they_are(page):
    for block in blocks(page):
        assert block.language in KNOWN, f"{block.where}: nobody checks a {block.language!r} block"
        if block.note.startswith("skip"):
            assert len(block.skip_reason) > 10, f"{block.where}: skipped without a reason"


@pytest.mark.parametrize("page", [p for p in pages() if p.parent != COURSE], ids=name_of)
def test_every_session_is_run_or_excused(page):
    for block in blocks(page):
        marked = page.name == "README.md" and block.note in ("run-command", "test-command")
        if block.language in SESSIONS and not marked:  # those two are what .ci/run runs
            excused = block.skip_reason or exit_codes(block)
            assert excused, (
                f"{block.where}: neither <!-- run --> nor <!-- skip: reason --> before it"
            )


@cache
def help_of(command: tuple[str, ...]) -> str:
    """What ``minipaged COMMAND --help`` prints."""
    code = f"import sys; sys.argv = ['minipaged', *{command!r}, '--help']\n"
    code += "from minipaged.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"minipaged {' '.join(command)} --help:\n{done.stderr}"
    return done.stdout


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """(where, words) of every call of ``minipaged`` in the page's console and bash blocks."""
    found = []
    for block in blocks(page):
        if block.language not in SESSIONS:
            continue
        for line in block.body.replace("\\\n", " ").splitlines():
            for part in line.removeprefix("$ ").split("&&"):
                words = shlex.split(part, comments=True)
                if words[:1] == ["minipaged"] and (block.language == "bash" or line[:2] == "$ "):
                    found.append((block.where, words[1:]))
    return found


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_commands_exist(page):
    for where, words in commands(page):
        most = 2 if words[:1] == ["bench"] else 1  # the benchmarks have commands of their own
        subcommand = tuple(w for w in words[:most] if not w.startswith("-"))
        text = help_of(subcommand)
        options = [w.split("=")[0] for w in words if w.startswith("-") and w != "--help"]
        for option in options:
            assert option in text, f"{where}: minipaged {' '.join(subcommand)} has no {option}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{name_of(page)} links to {link}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)}: no heading for {link}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_files_and_modules_it_names_exist(page):
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:minipaged|minipaged_cuda|docs|tests|tutorials)/[\w/.-]*)`", text))
    paths |= {m.replace(".", "/") for m in re.findall(r"`(minipaged(?:\.[a-z_]+)+)`", text)}
    if page.parent.name == "tests":  # its map names rooms that appear with their first test
        paths = {p for p in paths if not p.endswith("/")}
    missing = [p for p in sorted(paths) if not ((ROOT / p).exists() or (ROOT / f"{p}.py").exists())]
    assert missing == [], f"{name_of(page)} names what is not there"


# ---- the test is itself tested


def page_with(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_blocks_are_found_with_their_notes(tmp_path):
    text = "# A\n\n```python\nx = 1\n```\n\n<!-- skip: needs a GPU -->\n```python\ny\n```\n"
    text += "\n=== tab\n\n    ```pycon\n    >>> x\n    1\n    ```\n"
    first, second, third = blocks(page_with(tmp_path, text))
    assert (first.line, first.body, first.skip_reason) == (4, "x = 1\n", "")
    assert second.skip_reason == "needs a GPU"
    assert (third.language, third.body) == ("pycon", ">>> x\n1\n")


def test_a_wrong_output_is_seen(tmp_path):
    (block,) = blocks(page_with(tmp_path, "```pycon\n>>> 1 + 1\n3\n```\n"))
    with pytest.raises(pytest.fail.Exception, match="Expected"):
        run_block(block, {})


def test_an_error_points_at_the_page(tmp_path):
    (block,) = blocks(page_with(tmp_path, "# Title\n\n```python\nx = 1\n1 / 0\n```\n"))
    with pytest.raises(ZeroDivisionError) as caught:
        run_block(block, {})
    assert caught.traceback[-1].lineno == 4  # counted from 0: line 5 of the page
    assert str(caught.traceback[-1].path).endswith("page.md")


def test_blocks_of_a_page_share_names(tmp_path):
    page = page_with(tmp_path, "```python\nx = 1\n```\n```pycon\n>>> x\n1\n>>> y = x + 1\n```\n")
    namespace: dict = {}
    for block in blocks(page):
        run_block(block, namespace)
    assert namespace["y"] == 2


def session(tmp_path: Path, note: str, body: str) -> Block:
    (block,) = blocks(page_with(tmp_path, f"<!-- {note} -->\n```console\n{body}```\n"))
    return block


def test_a_session_is_compared(tmp_path):
    run_session(session(tmp_path, "run", "$ python -c 'print(1, 2)'\n1 ...\n"), tmp_path)
    with pytest.raises(WrongSession, match="should print"):
        run_session(session(tmp_path, "run", "$ python -c 'print(1)'\n2\n"), tmp_path)
    with pytest.raises(WrongSession, match="ended with 1, not"):
        run_session(session(tmp_path, "run", "$ python -c 'exit(1)'\n"), tmp_path)
    with pytest.raises(WrongSession, match="ended with 0, not"):
        run_session(session(tmp_path, "run: exits with 1", "$ python -c ''\n"), tmp_path)
    with pytest.raises(WrongSession, match="only minipaged, python can be run"):
        run_session(session(tmp_path, "run", "$ rm file\n"), tmp_path)


def test_what_a_session_says_of_itself(tmp_path):
    assert exit_codes(session(tmp_path, "run", "$ minipaged\n")) == {0}
    assert exit_codes(session(tmp_path, "run: may exit with 1", "$ minipaged\n")) == {0, 1}
    assert exit_codes(session(tmp_path, "running", "$ minipaged\n")) is None
    two = session(tmp_path, "run", "$ python a \\\n    b\nx\ny\n$ python c\n")
    assert commands_of(two) == [("python a      b", "x\ny\n"), ("python c", "")]


def test_a_file_of_the_page_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "<!-- file: one.py -->\n```python\nx = 1\n```\n\n<!-- run -->\n"
    text += "```console\n$ python -c 'import one; print(one.x)'\n1\n```\n"
    for block in blocks(page_with(tmp_path, text)):
        run_block(block, {})


def test_anchors_and_links(tmp_path):
    page = page_with(tmp_path, "# Copy-on-write, told\n[a](#copy-on-write-told) `[b](no)`\n")
    assert anchors(page) == {"copy-on-write-told"}
    assert links(page) == ["#copy-on-write-told"]
