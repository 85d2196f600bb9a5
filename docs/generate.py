"""Writes the pages of the reference that the code itself can tell, and the recorded runs.

    python docs/generate.py             write what is stale
    python docs/generate.py --check     write nothing; exit with 1 if something is stale

A plain script: the pages it writes are ordinary files, whatever builds the site.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "pages"
sys.path.insert(0, str(ROOT))

NOTE = "<!-- Written by docs/generate.py: change the code instead. -->"
SPEECH = "And the LORD said unto Moses, Speak unto the children of Israel"
RUNS: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "samples": (
        ("To be, or not to be", "To be, or not to do"),
        {"n": 2, "seed": 0, "temperature": 0.8, "max_tokens": 10},
        {"num_blocks": 24},
    ),
    "beams": ((SPEECH,), {"beam_width": 4, "max_tokens": 12}, {"num_blocks": 24}),
    "preemption": (
        (SPEECH, "To be", "In the beginning"),
        {"seed": 0, "temperature": 0.8, "max_tokens": 24},
        {"num_blocks": 13, "max_num_batched_tokens": 8},
    ),
}


# --- recorded runs -----------------------------------------------------------------------------


def recorded(name: str) -> str:
    """One of ``RUNS``, run by the engine; in float64, so that no machine rounds a token away."""
    from minipaged.attention import paged_attention
    from minipaged.cli.recorder import Recorder
    from minipaged.engine.llm import LLM
    from minipaged.engine.params import BeamSearchParams, SamplingParams
    from minipaged.view import stepper

    prompts, wishes, sizes = RUNS[name]
    params = (BeamSearchParams if "beam_width" in wishes else SamplingParams)(**wishes)
    llm = LLM("bundled", paged_attention, dtype="float64", device="cpu", block_size=4, **sizes)
    for prompt in prompts:
        llm.add(prompt, params)
    with Recorder(llm) as recorder:
        while llm.has_unfinished:
            recorder.show(llm.step())
    title = " · ".join(f"“{prompt}”" for prompt in prompts)
    return stepper(recorder.moments, title=title).page()


# --- the command line --------------------------------------------------------------------------


def command_line() -> str:
    """Every command with its arguments and options, as its ``--help`` has them."""
    import typer.main

    from minipaged.bench.app import app as bench
    from minipaged.cli import app

    root, measures = typer.main.get_command(app), typer.main.get_command(bench)
    lines = ["# The command line", "", NOTE, ""]
    lines += [
        "0 done · 1 it failed · 2 it was asked wrongly · 130 interrupted. Text goes to standard"
    ]
    lines += ["output, everything about it to standard error.", ""]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if name == "bench":
            lines += [f"## minipaged {name}", "", _told(measures.help), ""]
            for part, inner in measures.commands.items():  # type: ignore[attr-defined]
                lines += _command(f"minipaged bench {part}", inner, level=3)
        else:
            lines += _command(f"minipaged {name}", command, level=2)
    return "\n".join(lines).rstrip() + "\n"


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([name, *["[OPTIONS]"] * bool(options), *map(_argument, arguments)])
    yield from (f"{'#' * level} {name}", "", _told(command.help), "", f"```text\n{usage}\n```", "")
    rows = [f"| `{_argument(p)}` | {_cell(p.help or '')} |" for p in arguments]
    rows += [f"| `{_option(p)}` | {_cell(p.help or '')}{_default(p)} |" for p in options]
    if rows:
        yield from ("| argument or option | |", "|---|---|", *rows, "")


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name += "..." if parameter.nargs == -1 and not name.endswith("...") else ""
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _option(parameter: Any) -> str:
    """Its names, and what it takes; not in Typer's words, which change with its versions."""
    names = ", ".join(parameter.opts)
    if parameter.is_flag:
        return f"{names} / {parameter.secondary_opts[0]}" if parameter.secondary_opts else names
    return f"{names} {parameter.metavar or parameter.name.rpartition('_')[2].upper()}"


def _default(parameter: Any) -> str:
    default = parameter.default
    is_told = isinstance(default, str | int | float) and default not in (False, "")
    return f" Default: {_cell(str(default))}." if is_told and not parameter.is_flag else ""


def _told(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").replace("\b", "").split()).replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# --- conventions of other libraries ------------------------------------------------------------

EXTRAS = ("causal", "window", "softcap", "alibi", "sinks", "lse", "decode only")


def conventions() -> str:
    """How every library that the judge knows is called, from the classes that call it."""
    from minipaged.oracle.conventions import CONVENTIONS

    lines = ["# Conventions of other libraries", "", NOTE, ""]
    lines += [
        "The ways in which `minipaged check --convention NAME` can call a kernel. A tick: the"
    ]
    lines += [
        "library's arguments can express it. `minipaged conventions NAME` tells all about one;"
    ]
    lines += ["the [glossary](../glossary.md) sets their words beside ours, and [Write a"]
    lines += ["convention](../how-to/write-a-convention.md) adds another.", ""]
    lines += [
        f"| name | what is called | {' | '.join(EXTRAS)} |",
        f"|---|---|{':-:|' * len(EXTRAS)}",
    ]
    for name, convention in CONVENTIONS.items():
        first = inspect.cleandoc(convention.__doc__ or "").split("\n\n")[0]
        ticks = " | ".join("✓" if has else "" for has in _extras(convention.features))
        lines.append(f"| [`{name}`](#{name}) | {_cell(first)} | {ticks} |")
    for name, convention in CONVENTIONS.items():
        names = list(inspect.signature(convention.read).parameters)[1:]
        lines += ["", f"## {name}", "", f"`{', '.join(names)}`", ""]
        lines += [inspect.cleandoc(convention.__doc__ or "").replace("<", "&lt;"), ""]
        lines += [f"Laid down in `{convention.source}`."]
    return "\n".join(lines) + "\n"


def _extras(features: Any) -> list[bool]:
    """In the order of ``EXTRAS``."""
    has = [getattr(features, name) for name in ("softcap", "alibi", "sinks", "lse")]
    return [True in features.causal, features.left_window, *has, features.query_len == (1, 1)]


# --- all of them -------------------------------------------------------------------------------

GENERATED: dict[Path, Callable[[], str]] = {
    PAGES / "reference" / "cli.md": command_line,
    PAGES / "reference" / "conventions.md": conventions,
    **{PAGES / "recorded" / f"{name}.html": lambda name=name: recorded(name) for name in RUNS},
}


def stale() -> dict[Path, str]:
    """What should stand in the files that do not say so."""
    made = {path: make() for path, make in GENERATED.items()}
    return {
        path: text
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(words: list[str]) -> int:
    """Write, or check; the exit code."""
    found, only_check = stale(), words == ["--check"]
    for path, text in found.items():
        print(f"{'stale' if only_check else 'written'}: {path.relative_to(ROOT)}")
        if not only_check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(only_check and bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
