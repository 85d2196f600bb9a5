"""Loads an engine and drives it for a terminal: step, look, show; knows no options."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from minipaged.core import InvalidRequest
from minipaged.engine.llm import LLM
from minipaged.engine.outputs import RequestOutput

from .console import to_stderr, to_stdout
from .figures import Meter
from .kernels import find_kernels
from .screens import JSONScreen, MapScreen, TextScreen

if TYPE_CHECKING:
    from minipaged.engine.params import BeamSearchParams, SamplingParams

    Params = SamplingParams | BeamSearchParams
    Screen = TextScreen | JSONScreen | MapScreen


def load(model: str, attention: str | None, options: dict[str, Any]) -> LLM:
    """The engine; says what takes long before it takes long."""
    kernel = _import_kernel(attention) if attention else None
    console = to_stderr()
    if kernel is None and options["device"] in (None, "cpu") and not find_kernels():
        console.print("The first run compiles kernels, once.", style="dim")
    with console.status(f"loading {model}"):
        return LLM(model, kernel, **options)


def write_texts(
    llm: LLM,
    texts: Sequence[str],
    params: Params,
    *,
    chat: bool,
    system: str | None,
    show_map: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Continue ``texts`` together and show it; exit with 130 if interrupted, 1 if one failed."""
    meter = Meter(llm, with_picture=show_map)
    stream = not show_map and not hasattr(params, "beam_width")  # beams change places until the end
    echo = not chat and to_stdout().is_terminal
    screen: Screen = JSONScreen() if json else TextScreen(texts, params.n or 1, stream, echo)
    if show_map:
        screen = MapScreen(llm, meter, screen)
    prompts = [_chat_ids(llm, text, system) for text in texts] if chat else texts
    results, was_interrupted = run(llm, prompts, params, screen, meter)
    _close(meter, quiet)
    if was_interrupted:
        raise typer.Exit(130)
    if any(result.error for result in results):
        raise typer.Exit(1)


def run(
    llm: LLM,
    prompts: Sequence[str | list[int]],
    params: Params,
    screen: Screen,
    meter: Meter,
) -> tuple[list[RequestOutput], bool]:
    """Step until all are done; after Ctrl-C, what there is by then, and True."""
    requests = [llm.add(p, params, request_id=str(i)) for i, p in enumerate(prompts)]
    was_interrupted = False
    try:
        while llm.has_unfinished:
            deltas = llm.step()
            meter.look()
            screen.show(deltas)
    except KeyboardInterrupt:
        was_interrupted = True
    finally:
        screen.stop()
        for request in requests:
            if request.unfinished:
                llm.abort(request.request_id)
    results = [RequestOutput.of(request) for request in requests]
    screen.finish(results)
    return results, was_interrupted


def talk(llm: LLM, params: Params, system: str | None, *, quiet: bool) -> None:
    """A conversation at the terminal; its history is a prefix that is found, not computed again."""
    llm.tokenizer.chat([{"role": "user", "content": "?"}])  # fails now, if it can only fail
    to_stderr().print("Ctrl-D ends, Ctrl-C stops an answer.", style="dim")
    messages = [{"role": "system", "content": system}] if system else []
    while (text := _ask()) is not None:
        messages.append({"role": "user", "content": text})
        prompt = _shortened(llm, messages, params)
        meter = Meter(llm)
        (result,), _ = run(llm, [prompt], params, TextScreen([text], 1), meter)
        messages.append({"role": "assistant", "content": result.text.strip()})
        _close(meter, quiet)


def _import_kernel(name: str) -> Callable[..., Any]:
    """A function by ``MODULE:NAME``; modules in the present folder are found too."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise InvalidRequest(f"--attention {name}: it must be MODULE:NAME")
    sys.path.insert(0, os.getcwd())
    try:
        kernel = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"--attention {name}: {error}") from error
    if not callable(kernel):
        raise InvalidRequest(f"--attention {name}: it must be a function, not {kernel!r}")
    return kernel


def _chat_ids(llm: LLM, text: str, system: str | None) -> list[int]:
    first = [{"role": "system", "content": system}] if system else []
    return llm.tokenizer.chat([*first, {"role": "user", "content": text}])


def _shortened(llm: LLM, messages: list[dict[str, str]], params: Params) -> list[int]:
    """The conversation as token ids; its oldest turns are dropped until an answer fits behind."""
    room = min(params.max_tokens or llm.max_model_len, llm.max_model_len // 4)
    while True:
        prompt = llm.tokenizer.chat(messages)
        oldest = messages[0]["role"] == "system"
        if len(prompt) + room <= llm.max_model_len or len(messages) - oldest < 3:
            return prompt
        del messages[oldest : oldest + 2]
        to_stderr().print("the oldest question and answer no longer fit", style="dim")


def _ask() -> str | None:
    """The next line that is not empty; None at the end."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives the prompt its history and editing keys
    try:
        while not (text := input("> ").strip()):
            pass
    except EOFError:
        print()
        return None
    return text


def _close(meter: Meter, quiet: bool) -> None:
    if not quiet:
        to_stderr().print(meter.line(), style="dim", markup=False, soft_wrap=True)
