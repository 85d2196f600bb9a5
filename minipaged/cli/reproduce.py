"""``minipaged reproduce``: every claim beside the number measured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import W_OK, access
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minipaged.claims.roster import CLAIMS, find, nearest, takes

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
        list[str] | None,
        typer.Argument(metavar="[CLAIM...]", help=f"Of {', '.join(CLAIMS)}; or C1 to C8. All."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write claims.json, claims.md and figures there."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A look, not a measurement: few requests, biased numbers."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own requests, CSV or JSONL, for waste, throughput and, if they name their "
            "prefixes, hit_rate.",
        ),
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
    keys = list(dict.fromkeys(map(_key, claims or CLAIMS)))
    if seed < 0:
        fail(f"--seed {seed}: a whole number from 0 on is needed", code=2)
    if trace is None and (columns or skip_bad_lines):
        fail("--column and --skip-bad-lines are about a trace: name it, --trace FILE", code=2)
    from minipaged.claims.claim import Context
    from minipaged.claims.report import Reproduction

    _check(out)
    own = _read(trace, columns or [], skip_bad_lines) if trace else None
    if own is not None:
        _say_who_takes(own, keys)
    done: list[Claim] = []
    try:
        _measure(keys, Context(seed, quick, own), done)
    finally:  # interrupted or not, what is known by then is shown and kept
        _conclude(Reproduction(tuple(done), seed, quick, own.source if own else ""), out)


def _key(name: str) -> str:
    key = find(name)
    if key is None:
        there = ", ".join(CLAIMS)
        fail(f"there is no claim {name!r}{nearest(name)}; there are {there}, C1 to C8", code=2)
    return key


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


def _say_who_takes(own: Workload, keys: list[str]) -> None:
    """Nobody shall think that a claim looked at a trace that it ignored."""
    taking = [key for key in keys if takes(key, own.piece_len)]
    if not taking:
        fail(
            f"--trace: {', '.join(keys)} cannot use it; waste and throughput can, and hit_rate if "
            "a column names prefixes, --column prefix=COLUMN",
            code=2,
        )
    if others := [key for key in keys if key not in taking]:
        typer.echo(
            f"minipaged: {own.name} is used by {', '.join(taking)}, not by {', '.join(others)}",
            err=True,
        )


def _measure(keys: list[str], context: Context, done: list[Claim]) -> None:
    """Measure claim by claim, and print each as soon as it is known."""
    from minipaged.claims.roster import measure_of
    from minipaged.claims.terminal import banner, table_of

    console = _screen()
    if context.quick:
        console.print(banner())
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


def _check(out: Path | None) -> None:
    """Better to hear now than after a minute that nothing can be written there; makes nothing."""
    if out is None:
        return
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        fail(f"--out {out}: {there} is a file; a directory is needed, new or not", code=2)
    if not access(there, W_OK):
        fail(f"--out {out}: cannot write to {there}", code=2)


def _conclude(found: Reproduction, out: Path | None) -> None:
    from minipaged.claims.terminal import closing

    if not found.claims:
        return
    _screen().print(closing(found))
    if out is not None:
        _write(found, out)


def _write(found: Reproduction, out: Path) -> None:
    from minipaged.claims import figures

    try:
        out.mkdir(parents=True, exist_ok=True)
        drawn = figures.draw(found, out) if figures.can_draw() else []
        names = [*_write_texts(found, out, drawn), *(path.name for path in drawn)]
    except OSError as error:
        fail(f"cannot write to {out}: {error.strerror}", code=2)
    typer.echo(f"written to {out}: {', '.join(names)}", err=True)
    if not drawn and not figures.can_draw():
        typer.echo(NO_FIGURES, err=True)


def _write_texts(found: Reproduction, out: Path, drawn: list[Path]) -> list[str]:
    from minipaged.claims.report import to_json, to_markdown

    light = [path.name for path in drawn if not path.stem.endswith("-dark")]
    texts = {"claims.json": to_json(found), "claims.md": to_markdown(found, light)}
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return list(texts)
