"""``minipaged reproduce``: every claim beside the number measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minipaged.claims.roster import CLAIMS

from .console import to_stderr, to_stdout
from .errors import fail

if TYPE_CHECKING:
    from rich.console import Console

    from minipaged.claims.claim import Claim, Context
    from minipaged.claims.report import Reproduction
    from minipaged.claims.workload import Workload

WIDTH = 120
NO_FIGURES = "no figures were drawn: they need Matplotlib, pip install 'minipaged[claims]'"


def reproduce(
    claims: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM...]", help=f"Of {', '.join(CLAIMS)}.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write claims.json, claims.md and figures there."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer requests: a look, not a measurement.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own requests beside the others: CSV or JSONL."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="ROLE=NAME",
            help="Which column is prompt, output, time, time_ms, prefix. Again and again.",
        ),
    ] = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Go on without them, and count them.")
    ] = False,
) -> None:
    """Print every claim made for paged attention beside the number measured here.

    Exits with 0 whether they agree or not: what differs is said, and why.
    """
    keys = list(dict.fromkeys(claims or CLAIMS))
    if unknown := [key for key in keys if key not in CLAIMS]:
        fail(f"there is no claim {unknown[0]!r}; there are {', '.join(CLAIMS)}", code=2)
    if trace is None and (columns or skip_bad_lines):
        fail("--column and --skip-bad-lines are about a trace: name it, --trace FILE", code=2)
    from minipaged.claims.claim import Context
    from minipaged.claims.report import Reproduction

    own = _read(trace, columns or [], skip_bad_lines) if trace else None
    _make(out)
    done: list[Claim] = []
    try:
        _measure(keys, Context(seed, quick, own), done)
    finally:  # interrupted or not, what is known by then is shown and kept
        _conclude(Reproduction(tuple(done), seed, quick, own.source if own else ""), out)


def _read(path: Path, columns: list[str], skip_bad_lines: bool) -> Workload:
    from minipaged.claims.traces import read_trace

    for text in columns:
        if "=" not in text:
            fail(f"--column {text}: write ROLE=NAME, as prompt=ContextTokens", code=2)
    chosen = dict(text.split("=", 1) for text in columns)
    recording = read_trace(path, chosen, skip_bad_lines=skip_bad_lines)
    if recording.num_skipped:
        typer.echo(
            f"{path.name}: lines skipped: {recording.num_skipped:,}; the first was "
            f"{recording.first_skipped}",
            err=True,
        )
    return recording.workload


def _measure(keys: list[str], context: Context, done: list[Claim]) -> None:
    """Measure claim by claim, and print each as soon as it is known."""
    from minipaged.claims.roster import measure_of
    from minipaged.claims.terminal import table_of

    console = _screen()
    for key in keys:
        with _progress(key, len(done), len(keys)) as tell:
            done.append(measure_of(key)(replace(context, tell=tell)))
        console.print(table_of(done[-1]))


def _screen() -> Console:
    console = to_stdout()
    if not console.is_terminal:
        console.width = WIDTH  # a file is not narrow
    return console


@contextmanager
def _progress(key: str, num_done: int, num_all: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal while one claim is measured; gives what tells it how far that is."""
    console = to_stderr()
    if not console.is_terminal:
        yield lambda doing: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    words = TextColumn("{task.description}")
    with Progress(*columns, words, console=console, transient=True) as bar:
        task = bar.add_task(key, completed=num_done, total=num_all)
        yield lambda doing: bar.update(task, description=f"{key}: {doing}")


def _make(out: Path | None) -> None:
    """Better to hear now than after a minute that nothing can be written there."""
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror}", code=2)


def _conclude(found: Reproduction, out: Path | None) -> None:
    from minipaged.claims.terminal import closing

    if not found.claims:
        return
    _screen().print(closing(found))
    if out is not None:
        _write(found, out)


def _write(found: Reproduction, out: Path) -> None:
    from minipaged.claims import figures
    from minipaged.claims.report import to_json, to_markdown

    drawn = figures.draw(found, out) if figures.can_draw() else []
    names = [path.name for path in drawn if not path.stem.endswith("-dark")]
    texts = {"claims.json": to_json(found), "claims.md": to_markdown(found, names)}
    try:
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror}", code=2)
    typer.echo(f"written to {out}: {', '.join([*texts, *(path.name for path in drawn)])}", err=True)
    if not drawn:
        typer.echo(NO_FIGURES, err=True)
