"""Runs the pages and writes them into the docs, with what they really printed and showed.

    python tutorials/render.py              write all pages, and their index
    python tutorials/render.py 6 7          write these
    python tutorials/render.py --check      compare instead; exit with 1 if a page is stale

A plain script: the pages it writes are ordinary Markdown, whatever builds the site. Every page
runs in a process of its own. Output of cells tagged ``approx`` is written, and never compared.
"""

from __future__ import annotations

import argparse
import difflib
import linecache
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minipaged.learn import catalog, pages, stage

DOCS = ROOT / "docs" / "pages" / "tutorials"
SETTINGS = {
    "COLUMNS": "88",
    "PYTHONHASHSEED": "0",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
APPROX = re.compile(r"(<!-- approx -->\n).*?(\n<!-- /approx -->)", re.DOTALL)
MAX_DIFF = 14


class PageFailed(Exception):
    """A cell raised; the message says which, and in which line."""


# --- a page, run ------------------------------------------------------------------------------


def run_cell(cell: pages.Cell, path: Path, namespace: dict) -> list[stage.Piece]:
    """What a code cell prints and shows; its lines are numbered as in the file."""
    code = compile("\n" * (cell.line - 1) + cell.text, str(path), "exec", dont_inherit=True)
    with stage.recording() as recorder:
        try:
            exec(code, namespace)
        except Exception as error:
            raise PageFailed(where(error, cell, path)) from error
    return recorder.pieces


def where(error: Exception, cell: pages.Cell, path: Path) -> str:
    """The cell, the line of the page, and what happened."""
    line, trace = cell.line, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    text = linecache.getline(str(path), line).strip()
    return (
        f"{path.name}, cell {cell.number}, line {line}: {text}\n  {type(error).__name__}: {error}"
    )


def render(page: pages.Page) -> list[str]:
    """The page in chunks of Markdown, one a cell."""
    head = f"<!-- Written by tutorials/render.py from tutorials/{page.path.name}: edit that. -->"
    namespace: dict = {"__name__": "__main__", "__file__": str(page.path)}
    chunks = [head]
    for cell in page.cells:
        if cell.kind == "markdown":
            chunks.append(cell.markdown)
            continue
        output = [as_markdown(piece) for piece in run_cell(cell, page.path, namespace)]
        body = "\n\n".join(part for part in output if part)
        if cell.is_approx and body:
            body = f"<!-- approx -->\n\n{body}\n\n<!-- /approx -->"
        code = "" if cell.is_silent else fence(cell.text, "python", "cell")
        chunks.append("\n\n".join(part for part in (code, body) if part))
    return chunks


def as_markdown(piece: stage.Piece) -> str:
    """One piece of output. HTML keeps no blank line: Markdown would end it there."""
    text = piece.text.rstrip()
    if piece.kind == "html":
        lines = (line.rstrip() for line in text.splitlines() if line.strip())
        return '<div class="shown">\n' + "\n".join(lines) + "\n</div>"
    if piece.kind == "markdown":
        return text
    if piece.kind == "python":
        return fence(text, "python", "source")
    kind = "output" if piece.kind == "text" else piece.kind
    return fence("\n".join(map(str.rstrip, text.splitlines())), "text", kind) if text else ""


def fence(text: str, language: str, kind: str) -> str:
    """A block of code; the braces keep it from being taken for an example to run by itself."""
    ticks = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text) or [""]))
    return f"{ticks} {{ .{language} .{kind} }}\n{text}\n{ticks}"


# --- the index --------------------------------------------------------------------------------


def index(seconds: dict[int, int]) -> str:
    """The list of steps: what each asks, how long it runs, what is to be written."""
    known = pages.pages()
    parts = [
        "<!-- Written by tutorials/render.py: edit that. -->",
        "# The course",
        INTRODUCTION,
    ]
    for page in known:
        parts.append(f"## [{page.number}. {page.title}]({page.path.stem}.md)")
        parts.append(page.question)
        own = [task for task in catalog.tasks() if task.step == page.number]
        todo = [f"- `minipaged learn {task.key}`: {task.title}" for task in own]
        parts.append("\n".join([*todo, f"- runs in about {seconds.get(page.number, 1)} s"]))
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """Each step has one idea and one order: a question, a picture, a guess, a run,
what goes wrong without it, what must hold, an exercise, and the same thing in other people's
code. The code on the pages is the package's own, and every output was printed by it.

`minipaged learn 6 --read` shows a page in a terminal and runs it, `minipaged learn notebook 6`
makes a notebook of it. Progress and exercises:

```console
$ minipaged learn
```

An exercise is judged on small programs, the smallest first, so that what goes wrong is told as a
short story. There are hints, and a solution at the end of them. Everything runs on a CPU; steps 10
to 12 need two small packages more, which `pip install 'minipaged[learn]'` brings."""


def known_seconds() -> dict[int, int]:
    """The running times that the index tells now."""
    path = DOCS / "index.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = re.findall(r"^## \[(\d+)\..*?^- runs in about (\d+) s$", text, re.M | re.S)
    return {int(number): int(seconds) for number, seconds in rows}


# --- writing and comparing --------------------------------------------------------------------


def comparable(text: str) -> str:
    """Without what differs from machine to machine."""
    return re.sub(r"^- runs in .* s$", "- runs", APPROX.sub(r"\1\2", text), flags=re.M)


def compare(name: str, chunks: list[str], path: Path) -> str:
    """Why the written page is stale, or an empty string: the cell, and a short diff."""
    new = comparable("\n\n".join(chunks) + "\n")
    old = comparable(path.read_text(encoding="utf-8")) if path.exists() else ""
    if new == old:
        return ""
    pairs = zip(new.splitlines(), old.splitlines())
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(old.splitlines()))
    seen = [comparable("\n\n".join(chunks[: n + 1])).count("\n") for n in range(len(chunks))]
    cell = next((n for n, end in enumerate(seen) if end >= same), len(chunks) - 1)
    diff = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "page", "now", "", "", 1))
    short = [line[:100] for line in diff[2 : 2 + MAX_DIFF]]
    return f"{name}, cell {cell} is stale: python tutorials/render.py\n" + "\n".join(short)


def one(page: pages.Page, check: bool) -> tuple[str, int]:
    """Run a page in this process; write it, or say why the written one is stale."""
    chunks = render(page)
    seconds = max(1, round(sum(os.times()[:4])))  # of processors, so a busy machine adds nothing
    path = DOCS / f"{page.path.stem}.md"
    if check:
        return compare(page.path.name, chunks, path), seconds
    write(path, "\n\n".join(chunks) + "\n")
    return "", seconds


def write(path: Path, text: str) -> None:
    """Replace a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def in_a_process(page: pages.Page, check: bool) -> tuple[int, int, str]:
    """(exit status, seconds, what it said) of a page that is run by itself."""
    command = [sys.executable, __file__, "--alone", str(page.number), *["--check"] * check]
    environment = os.environ | SETTINGS
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    said, _, seconds = done.stdout.rpartition("seconds ")
    return done.returncode, int(seconds or 0), said + done.stderr


def alone(number: int, check: bool) -> int:
    """What the process of a page does."""
    (page,) = (page for page in pages.pages() if page.number == number)
    try:
        complaint, seconds = one(page, check)
    except PageFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(complaint)
    print(f"seconds {seconds}")
    return bool(complaint)


def main() -> int:
    """Render or check the pages that the command line names; 1 if one failed or is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="*", type=int, help="numbers of pages; none: all")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--index", action="store_true", help="only the list of steps")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone is not None:
        return alone(options.alone, options.check)
    chosen = [p for p in pages.pages() if not options.steps or p.number in options.steps]
    chosen, seconds, status = [] if options.index else chosen, known_seconds(), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for page, done in zip(chosen, pool.map(lambda p: in_a_process(p, options.check), chosen)):
            code, seconds[page.number], said = done
            status |= code != 0
            print(f"{page.path.name}: {said.strip() or 'ok'} ({seconds[page.number]} s)")
    text, path = index(seconds), DOCS / "index.md"
    if not options.check:
        write(path, text)
    elif not path.exists() or comparable(path.read_text(encoding="utf-8")) != comparable(text):
        print("index.md is stale: python tutorials/render.py")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
