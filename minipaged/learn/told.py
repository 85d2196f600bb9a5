"""The lines that ``minipaged learn`` prints: the list, a verdict, a hint, what comes next.

Rich texts, made from what is known; nothing is judged or written here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from .catalog import Task, command
from .pages import Page
from .statement import size
from .verdict import Verdict
from .workbook import BEGUN, DONE, Workbook

WIDTH = 76
STYLES = {DONE: "green", BEGUN: "yellow"}


def drawn(line: str, style: str = "") -> Text:
    """A line that must keep its form, such as one of a picture; indented."""
    return Text(f"  {line}" if line else "", style=style)


def story_line(line: str) -> Iterator[Text]:
    """A line of a story: a sentence is wrapped, and a picture or a table is not."""
    is_sentence = "  " not in line and line.isascii()
    yield from prose(line, hang=4) if is_sentence and line else [drawn(line)]


def prose(text: str, style: str = "", margin: str = "  ", hang: int = 0) -> Iterator[Text]:
    """A sentence or two, wrapped and indented; ``margin`` may begin with a mark."""
    rest = " " * (len(margin) + hang)
    lines = textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=rest)
    yield from (Text(line, style=style) for line in lines)


def overview(pages: list[Page], tasks: list[Task], book: Workbook) -> Iterator[RenderableType]:
    """Every step with its exercises and how far they are; then what to do next."""
    states = {task.name: book.state(task) for task in tasks}
    counts = [list(states.values()).count(state) for state in (DONE, BEGUN)]
    yield Text(
        f"The course: {len(pages)} steps, {len(tasks)} exercises; "
        f"{counts[0]} done, {counts[1]} begun"
    )
    yield ""
    titles = {page.number: page.title for page in pages}
    for step in sorted(titles.keys() | {task.step for task in tasks}):
        yield Text(f"{step:>3}  {titles.get(step, '')}", style="bold")
        for task in tasks:
            if task.step == step:
                yield _line(task, states[task.name])
    yield ""
    yield from after(tasks, book)


def _line(task: Task, state: str) -> Text:
    return Text.assemble(
        f"     {task.key:<4}", (f"{state:<11}", STYLES.get(state, "dim")), f"{task.title}"
    )


def after(tasks: list[Task], book: Workbook, but: Task | None = None) -> Iterator[RenderableType]:
    """The next command; at the end, what was learnt and where to go on."""
    todo = [t for t in tasks if book.state(t) != DONE and t != but]
    if not todo and tasks:
        yield from farewell(tasks)
        return
    begun = [t for t in todo if book.state(t) == BEGUN]
    later = [t for t in todo if but is None or (t.step, t.letter) > (but.step, but.letter)]
    chosen = (later if but else begun) or later or todo
    if chosen:
        task = chosen[0]
        yield Text.assemble("Next: ", (command(task), "bold"), f"   {task.title}")
        yield Text(f"      {command(task)} --read    the page that leads there", style="dim")
    if book.folder.is_dir():
        yield Text(f"Your files: {nearest(book.folder)}", style="dim")


def farewell(tasks: list[Task]) -> Iterator[RenderableType]:
    """All is done: one sentence for each exercise, and the way on."""
    yield Text("All exercises are solved. What you have learnt:", style="bold")
    yield ""
    for task in tasks:
        yield from prose(task.facts.get("learnt", task.title), margin=f"{task.key:>4}  ")
    yield ""
    yield Text("Where to go on:")
    yield Text("  minipaged check your.module:kernel    the judge of attention kernels")
    yield Text("  minipaged reproduce                   the claims of the paper, measured here")


def begun(task: Task, book: Workbook) -> Iterator[RenderableType]:
    """A starter was copied, or is still as it was: what to do with it."""
    names = task.facts.get("function", task.name)
    names = _enumerated([names] if isinstance(names, str) else names)
    yield Text.assemble((f"{task.key}  {task.title}", "bold"))
    yield ""
    yield Text.assemble("Your file: ", (str(shown(book, task)), "bold"))
    what = f"{'Write' if task.has_hole else 'Mend'} {names} there: the text at its top says what "
    what += f"it must do. {size(task)}"
    yield from prose(what, margin="")
    yield ""
    call = command(task)
    yield Text(f"  {call:<28} judge it, as often as you like")
    yield Text(f"  {call + ' --watch':<28} judge it at every save")
    yield Text(f"  {call + ' --hint':<28} a hint; there are {len(task.hints)}")
    yield Text(f"  {call + ' --read':<28} the page of the course")


def _enumerated(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def shown(book: Workbook, task: Task) -> str:
    """The path of a learner's file, from here if that is shorter."""
    return nearest(book.path(task))


def nearest(path: Path) -> str:
    """A path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def refusal(task: Task, verdict: Verdict, book: Workbook) -> Iterator[RenderableType]:
    """What is wrong, the story, and what helps."""
    yield Text.assemble((f"{task.key}  {task.title}", "bold"), "   not yet")
    yield ""
    yield from prose(verdict.headline, "red")
    if verdict.story:
        yield ""
    for line in verdict.story:
        yield from story_line(line)
    if verdict.printed:
        yield ""
        yield Text("Your code printed in this program:")
        yield from (drawn(line, "dim") for line in verdict.printed.splitlines())
    yield ""
    seen = book.hints_seen(task)
    hint = f"hint {seen + 1} of {len(task.hints)}" if seen < len(task.hints) else "the hints again"
    yield Text(f"{command(task)} --hint    {hint}", style="dim")


def praise(
    task: Task, verdict: Verdict, tasks: list[Task], book: Workbook, is_news: bool = True
) -> Iterator[RenderableType]:
    """It is right: the figures, what was learnt, another solution, the next step."""
    yield Text.assemble((f"{task.key}  {task.title}", "bold"), ("   accepted", "green"))
    yield ""
    if verdict.figures:
        yield drawn(f"{verdict.figures} ({verdict.seconds:.1f} s)")
    yield from prose(task.facts.get("learnt", ""))
    yield ""
    yield Text(f"{command(task)} --solution    how we wrote it", style="dim")
    if is_news or any(book.state(other) != DONE for other in tasks):
        yield from after(tasks, book, but=task)
    else:
        yield Text("minipaged learn    all you have learnt", style="dim")


def hints(task: Task, seen: int) -> Iterator[RenderableType]:
    """The hints so far, the newest last."""
    for number, hint in enumerate(task.hints[:seen], start=1):
        yield Text(f"Hint {number} of {len(task.hints)}", style="bold")
        yield from prose(hint)
        yield ""
    if seen == len(task.hints):
        yield Text(f"That is the last one. {command(task)} --solution shows how we wrote it.")
    else:
        yield Text(f"{command(task)} --hint    the next one", style="dim")
