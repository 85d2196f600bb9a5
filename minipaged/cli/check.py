"""``minipaged check``: a kernel, a writer or a block manager before the judge."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import to_stderr
from .errors import fail

if TYPE_CHECKING:
    from minipaged.oracle import Contract, Features, Report
    from minipaged.oracle.conventions import Convention, Kernel

Words = list[str]


def check(
    targets: Annotated[
        Words,
        typer.Argument(
            metavar="TARGET...",
            help="package.module:function or path/to/file.py:function; "
            "two for a quantizer (there and back) and a replay (plan, run).",
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(help="kernel, writer, copy, merge, quantizer, replay or block-manager."),
    ] = "kernel",
    convention: Annotated[
        str, typer.Option("-c", "--convention", help="See: minipaged conventions.")
    ] = "native",
    level: Annotated[
        int,
        typer.Option(
            "-l",
            "--level",
            min=0,
            max=6,
            help="0 form, 1 truth, 2 isolation, 3 edges, 4 numerics, 5 algebra, 6 address space.",
        ),
    ] = 3,
    contract: Annotated[
        Words | None,
        typer.Option(help="What it promises: poison=finite, padding=valid, ... Again and again."),
    ] = None,
    features: Annotated[
        Words | None,
        typer.Option(help="What it takes: softcap=false, head_dims=64,128, kv_len=1-100, ..."),
    ] = None,
    dtype: Annotated[
        Words | None,
        typer.Option("--dtype", "--dtypes", help="float32, bfloat16, float16; commas, or again."),
    ] = None,
    lse_base: Annotated[str | None, typer.Option(help="Base of the returned lse: e or 2.")] = None,
    device: Annotated[str, typer.Option(help="Where its tensors shall be.")] = "cpu",
    max_examples: Annotated[int, typer.Option(min=0, help="Random cases.")] = 200,
    max_failures: Annotated[
        int, typer.Option(min=0, help="Stop after so many broken checks; 0 for all there are.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="Of the random cases.")] = 0,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="Begin no new case after that.")
    ] = 120.0,
    call_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="A call that takes longer hangs.")
    ] = 20.0,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="In a child process: crashes become verdicts.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep failing cases there; try those there first."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Write a card in Markdown.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE.json", help="Write it in JSON.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE.xml", help="Write it for a CI server.")
    ] = None,
) -> None:
    """Judge a kernel; exit with 1 if it is wrong."""
    need_testing()
    _make(save, *(path and path.parent for path in (report, json, junit)))
    from minipaged.oracle.settings import SettingError

    options: dict[str, Any] = {
        "max_examples": max_examples,
        "seed": seed,
        "device": device,
        "deadline_s": deadline,
        "call_limit_s": call_limit,
        "max_failures": max_failures or 1000,
        "name": ", ".join(targets),
    }
    promises = [*(contract or ()), *([f"lse_base={lse_base}"] if lse_base else ())]
    takes = [*(features or ()), *([f"dtypes={','.join(dtype)}"] if dtype else ())]
    try:
        if kind == "kernel":
            options |= {"level": level, "save": save, "isolate": isolate}
            verdict = _kernel(targets, convention, promises, takes, options)
        elif takes or isolate or save or convention != "native":
            only = "--convention, --features, --dtype, --isolate and --save"
            raise SettingError(f"{only} are for kernels, not a {kind}")
        else:
            verdict = _part(kind, targets, promises, options)
    except (LookupError, ValueError) as error:
        fail(str(error.args[0]), code=2)
    _show(verdict)
    _write(verdict, [report, json, junit], {"device": device, "seed": seed})
    raise typer.Exit(0 if verdict.passed else 1)


def _make(*folders: Path | None) -> None:
    """Better to hear now than after a minute that nothing can be written there."""
    for folder in folders:
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(f"cannot write to {folder}: {error.strerror}", code=2)


def need_testing() -> None:
    """Without Hypothesis there is no judge: say how to get it, and exit."""
    if importlib.util.find_spec("hypothesis") is None:
        fail("this needs Hypothesis: pip install 'minipaged[testing]'", code=2)


def _kernel(
    targets: Words, convention: str, promises: Words, takes: Words, options: dict[str, Any]
) -> Report:
    from minipaged.oracle import check_kernel
    from minipaged.oracle.conventions import find_convention
    from minipaged.oracle.settings import SettingError
    from minipaged.oracle.targets import resolve_function

    if len(targets) != 1:
        raise SettingError(f"a kernel is one function, not {len(targets)}")
    how = find_convention(convention)
    if options["isolate"]:
        # Importing it here may be what kills us, so only what must be known of it is asked.
        contract, features = _claims(None if not takes else targets[0], how, promises, takes)
        with _working(f"judging {targets[0]} in a child process"):
            return check_kernel(targets[0], how, contract=contract, features=features, **options)
    kernel = resolve_function(targets[0])
    contract, features = _claims(kernel, how, promises, takes)
    with _progress(how, options) as told:
        return check_kernel(kernel, told, contract=contract, features=features, **options)


def _claims(
    kernel: Kernel | str | None, how: Convention, promises: Words, takes: Words
) -> tuple[Contract, Features | None]:
    """What the words on the command line make of the convention's promises."""
    from minipaged.oracle.settings import changed
    from minipaged.oracle.targets import resolve_function

    contract = changed(how.contract, promises)
    if not takes or kernel is None:
        return contract, None
    possible = how.fit(resolve_function(kernel) if isinstance(kernel, str) else kernel)[1]
    return contract, changed(possible, takes)


def _part(kind: str, targets: Words, promises: Words, options: dict[str, Any]) -> Report:
    from minipaged.oracle.judging import find_check, judge
    from minipaged.oracle.targets import resolve_function

    find_check(kind)
    subjects = [resolve_function(target) for target in targets]
    with _working(f"judging {', '.join(targets)}"):
        return judge(kind, subjects, promises, options)


def _working(text: str) -> Any:
    console = to_stderr()
    return console.status(text) if console.is_terminal else nullcontext()


@contextmanager
def _progress(how: Convention, options: dict[str, Any]) -> Iterator[Convention]:
    """The convention; on a terminal one that says how far the judge is."""
    console = to_stderr()
    if not console.is_terminal:
        yield how
        return
    from minipaged.oracle.journal import watched

    begin, calls, cases = time.monotonic(), 0, set()
    with console.status(f"judging {options['name']}") as status:

        def called(case: Any) -> None:
            nonlocal calls
            calls += 1
            cases.add(case.recipe)
            took = time.monotonic() - begin
            status.update(
                f"judging {options['name']}: {len(cases)} cases, {calls} calls, "
                f"{took:.0f} of at most {options['deadline_s']:.0f} s"
            )

        yield watched(how, called)


def _show(report: Report) -> None:
    typer.echo(str(report))
    for line in report.not_judged:
        typer.echo(f"  not judged: {line}")
    for path in report.figures.get("counterexamples fixed", ()):
        typer.echo(f"  fixed: {path}")


def _write(report: Report, paths: Sequence[Path | None], made_with: dict[str, Any]) -> None:
    from minipaged.oracle import card

    forms = card.to_markdown, card.to_json, lambda found, **_: card.to_junit(found)
    for path, form in zip(paths, forms):
        if path is not None:
            try:
                path.write_text(form(report, **made_with), encoding="utf-8")
            except OSError as error:
                fail(f"cannot write {path}: {error.strerror}", code=2)
