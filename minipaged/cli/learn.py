"""``minipaged learn``: the course; its exercises are judged in the learner's own folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import to_stderr, to_stdout
from .errors import fail

if TYPE_CHECKING:
    from rich.console import RenderableType

    from minipaged.learn.catalog import Task
    from minipaged.learn.pages import Page
    from minipaged.learn.workbook import Workbook


def learn(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STEP]...", help="6, 10a or fork; or: notebook 6. None: the list of all."
        ),
    ] = None,
    read: Annotated[bool, typer.Option("--read", help="The page, run in the terminal.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Judge at every save.")] = False,
    hint: Annotated[bool, typer.Option("--hint", help="One hint more, each time.")] = False,
    solution: Annotated[bool, typer.Option("--solution", help="How we wrote it.")] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin again; your file is kept under another name.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Judge all that is begun; exit with 1 if one is wrong.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where notebooks are written.")] = Path(
        "."
    ),
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Of your exercises.")
    ] = None,
) -> None:
    """Learn it, step by step: pages and exercises."""
    from minipaged.learn import workbook

    book = workbook.Workbook(folder or workbook.find_folder())
    names = words or []
    if names[:1] == ["notebook"]:
        _notebooks(names[1:], out)
    elif everything:
        _judge_all(book)
    elif not names and (read or watch or hint or solution or reset):
        fail("which step? for example: minipaged learn 6 --hint", code=2)
    elif not names:
        _overview(book)
    elif len(names) > 1:
        fail(f"one step at a time: {' '.join(names)}", code=2)
    elif read:
        _read(_page(names[0]))
    else:
        _exercise(_task(names[0], book), book, watch, hint, solution, reset)


def _print(lines: Iterable[RenderableType]) -> None:
    console = to_stdout()
    for line in lines:
        console.print(line, crop=False, no_wrap=True, overflow="ignore")  # wrapped already


def _overview(book: Workbook) -> None:
    from minipaged.learn import catalog, pages, told

    _print(told.overview(pages.pages(), catalog.tasks(), book))


def _task(word: str, book: Workbook) -> Task:
    """The exercise that is meant; of a step with several, the first that is not done."""
    from minipaged.learn import catalog, workbook

    try:
        found = catalog.find(word)
    except catalog.UnknownExercise as error:
        fail(str(error), code=2)
    return next((t for t in found if book.state(t) != workbook.DONE), found[-1])


def _page(word: str) -> Page:
    """The page of a step, by number, by its name, or by the name of its exercise."""
    from minipaged.learn import catalog, pages

    known = pages.pages()
    for page in known:
        if word.lower() in (page.name, str(page.number), page.path.stem):
            return page
    try:
        step = catalog.find(word)[0].step
        return next(page for page in known if page.number == step)
    except (catalog.UnknownExercise, StopIteration):
        names = ", ".join(f"{page.number} {page.name}" for page in known)
        fail(f"there is no page {word!r}; there are: {names or 'none'}", code=2)


def _exercise(
    task: Task, book: Workbook, watch: bool, hint: bool, solution: bool, reset: bool
) -> None:
    from minipaged.learn import told

    if hint:
        _print(told.hints(task, book.see_hint(task)))
    elif solution:
        typer.echo(task.solution.rstrip("\n"))
    elif reset:
        kept = book.reset(task)
        typer.echo(
            f"Your old file is now {told.nearest(kept)}" if kept else "There was nothing to keep."
        )
        _print(told.begun(task, book))
    elif watch:
        _watch(task, book)
    elif book.begin(task) or (task.has_hole and book.is_untouched(task)):
        _print(told.begun(task, book))
    elif not _judge(task, book):
        raise typer.Exit(1)


def _judge(task: Task, book: Workbook) -> bool:
    """Judge, remember, show."""
    from minipaged.learn import catalog, judging, told, workbook

    is_news = book.state(task) != workbook.DONE
    with to_stderr().status("judging ..."):  # shows only on a terminal
        verdict = judging.judge_apart(task, book.path(task))
    book.record(task, verdict.is_accepted)
    if verdict.is_accepted:
        _print(told.praise(task, verdict, catalog.tasks(), book, is_news))
    else:
        _print(told.refusal(task, verdict, book))
    return verdict.is_accepted


def _watch(task: Task, book: Workbook) -> None:
    from minipaged.learn import told, watching

    book.begin(task)

    def judge() -> bool:
        to_stdout().clear()  # does nothing where there is no terminal
        if task.has_hole and book.is_untouched(task):
            _print(told.begun(task, book))
            accepted = False
        else:
            accepted = _judge(task, book)
        if not accepted:
            typer.echo(f"\nwatching {told.shown(book, task)}; h Enter: a hint   q Enter: the end")
        return accepted

    watching.watch(book.path(task), judge, lambda: _print(told.hints(task, book.see_hint(task))))


def _judge_all(book: Workbook) -> None:
    """One line for each exercise that has a file."""
    from minipaged.learn import catalog, judging, told

    known, wrong = catalog.tasks(), 0
    begun = [t for t in known if book.path(t).exists() and not book.is_untouched(t)]
    for task in begun:
        verdict = judging.judge_apart(task, book.path(task))
        book.record(task, verdict.is_accepted)
        wrong += not verdict.is_accepted
        said = "accepted" if verdict.is_accepted else f"not yet: {verdict.headline}"
        _print([f"{task.key:<4}{task.name:<14}{said}"])
    if not begun:
        typer.echo("No exercise is begun.")
    if wrong:
        raise typer.Exit(1)
    _print(["", *told.after(known, book)])


def _read(page: Page) -> None:
    from minipaged.learn import reading

    def wait(question: str) -> None:
        typer.secho(question, bold=True)
        if sys.stdin.isatty() and sys.stdout.isatty():
            print("-- Enter: the answer --", end="", file=sys.stderr, flush=True)
            sys.stdin.readline()

    reading.read(page, to_stdout(), wait)


def _notebooks(words: list[str], out: Path) -> None:
    """Write the named pages as notebooks; none named: all."""
    from minipaged.learn import notebook, pages

    chosen = [_page(word) for word in words] if words else pages.pages()
    for page in chosen:
        try:
            typer.echo(f"wrote {notebook.write(page, out)}")
        except FileExistsError as error:
            fail(f"{error.filename} exists and may hold your work: give another --out", code=1)
