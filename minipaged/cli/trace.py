"""``minipaged trace``: a run of the engine, step by step; as a page, JSON, or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .generate import Option, _params, _read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from minipaged.view.moment import Moment

    from .recorder import Recorder


def trace(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help="Texts to continue, computed together; '-' reads one from standard input.",
        ),
    ] = None,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Write one HTML file that needs no other.")
    ] = None,
    json: Annotated[
        Path | None, Option(metavar="FILE", help="Write the steps for a program.")
    ] = None,
    model: Annotated[
        str, Option("--model", "-m", help="'bundled', a pulled name, a directory or a .gguf file.")
    ] = "bundled",
    max_tokens: Annotated[int, Option(help="Most tokens to generate.")] = 16,
    n: Annotated[int, Option("--n", "-n", help="Texts for each prompt.")] = 1,
    beam: Annotated[int | None, Option(metavar="K", help="Search with K beams.")] = None,
    temperature: Annotated[
        float | None, Option(help="0 takes the likeliest token.  [default: 0.8]")
    ] = None,
    seed: Annotated[int, Option(help="Equal seeds record equal runs.")] = 0,
    block_size: Annotated[int, Option(help="Tokens per block.")] = 4,
    num_blocks: Annotated[int, Option(help="Blocks of the pool.")] = 24,
    max_batched_tokens: Annotated[int, Option(help="Tokens per step; prompts are cut.")] = 512,
    preemption: Annotated[
        str, Option(help="'recompute' or 'swap', if the pool is too small.")
    ] = "recompute",
    prefix_caching: Annotated[
        bool, Option("--prefix-caching/--no-prefix-caching", help="Share equal beginnings.")
    ] = True,
    plain: Annotated[bool, Option("--plain", help="No colours.")] = False,
) -> None:
    """Record what the scheduler and the pool do, step by step."""
    sampling: dict[str, Any] = {"temperature": temperature}
    params = _params(sampling if beam else {**sampling, "seed": seed}, max_tokens, n, beam)
    texts = _read(prompts or [], chat=False)
    for file in (html, json):
        _require_a_place(file)
    engine = {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "max_num_batched_tokens": max_batched_tokens,
        "preemption": preemption,
        "prefix_caching": prefix_caching,
        "device": None,
    }
    from . import run as running
    from .figures import Meter
    from .recorder import Recorder

    llm = running.load(model, None, engine)
    with Recorder(llm) as recorder:
        screen = cast("Any", recorder)
        results, was_interrupted = running.run(llm, texts, params, screen, Meter(llm))
    if html is not None:
        _write(html, _page(recorder, texts), len(recorder.moments))
    if json is not None:
        _write(json, _as_json(recorder), len(recorder.moments))
    if html is None and json is None:
        _tell(recorder, plain)
    if was_interrupted:
        raise typer.Exit(130)
    if any(result.error for result in results):
        raise typer.Exit(1)


def _require_a_place(file: Path | None) -> None:
    """Before a model is loaded: the folder is there."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise typer.BadParameter(f"{file}: name a file in a folder that exists")


def _page(recorder: Recorder, texts: list[str]) -> str:
    from minipaged.view.stepper import stepper

    quoted = " · ".join(f"“{text}”" for text in texts)
    return stepper(recorder.moments, title=quoted).page()


def _write(file: Path, text: str, num_moments: int) -> None:
    """A file, and what it is; a disk that is full, or a folder that may not be written, is told."""
    from .console import to_stderr
    from .errors import fail
    from .figures import _size

    try:
        num_bytes = file.write_bytes(text.encode())
    except OSError as error:
        fail(f"{file}: {error.strerror}", code=1)
    line = f"{file}: {num_moments - 1} steps, {_size(num_bytes)}"
    to_stderr().print(line, style="dim", markup=False, soft_wrap=True)


def _as_json(recorder: Recorder) -> str:
    from dataclasses import asdict
    from json import dumps

    steps = [{"step": i, **asdict(moment)} for i, moment in enumerate(recorder.moments)]
    return dumps({"steps": steps}, ensure_ascii=False) + "\n"


# --- in the terminal ---------------------------------------------------------------------------


def _tell(recorder: Recorder, plain: bool) -> None:
    """The same in the terminal, one picture under another; blocks never used are left out."""
    from minipaged.view import Letters
    from minipaged.view.moment import num_used

    from .console import to_stdout

    console, letters, told = to_stdout(plain), Letters(), recorder.moments
    num_blocks = told[0].snapshot.num_blocks
    num_shown = min(num_used(told), num_blocks)
    for number, moment in enumerate(told):
        lines = _show(moment, f"{number}/{len(told) - 1}", letters, num_shown)
        console.print(*lines, sep="\n")
    if num_shown < num_blocks:
        console.print(f"{num_blocks - num_shown:,} more are never used", style="dim")


def _show(moment: Moment, number: str, letters: Any, num_shown: int) -> Iterator[RenderableType]:
    from rich.rule import Rule
    from rich.text import Text

    from .busy import busy

    kept = letters.of(table.name for table in moment.snapshot.tables)
    yield Rule(Text(f"{number}  {moment.title}"), align="left")
    for change in moment.changes:
        yield Text.assemble("  ", (f"{change.kind:<10}", "bold"), change.text)
    yield busy(moment, kept, num_shown)
    for line in moment.lines:
        text = line.text.replace("\n", "⏎")
        yield Text.assemble((f"{line.name:<2} ", "bold"), f"{line.state}: ", (text, "italic"))
    yield ""
