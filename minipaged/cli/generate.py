"""``minipaged generate``: its options, and how they become a request; the loop is in ``run``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from minipaged.engine.params import BeamSearchParams, SamplingParams

Option = typer.Option


def generate(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help="Texts to continue, computed together; '-' reads one from standard input.",
        ),
    ] = None,
    model: Annotated[
        str, Option("--model", "-m", help="'bundled', a pulled name, a directory or a .gguf file.")
    ] = "bundled",
    max_tokens: Annotated[int, Option(help="Most tokens to generate.")] = 128,
    temperature: Annotated[
        float | None, Option(help="0 takes the likeliest token.  [default: 0.8]")
    ] = None,
    top_p: Annotated[float | None, Option(help="Keep the likeliest up to this mass.")] = None,
    top_k: Annotated[int | None, Option(help="Keep the K likeliest.")] = None,
    min_p: Annotated[float | None, Option(help="Keep those this likely, of the best.")] = None,
    seed: Annotated[int | None, Option(help="The same seed draws the same text.")] = None,
    n: Annotated[int, Option("--n", "-n", help="Texts for each prompt.")] = 1,
    beam: Annotated[int | None, Option(metavar="K", help="Search with K beams.")] = None,
    stop: Annotated[list[str] | None, Option(help="End before this text; repeatable.")] = None,
    chat: Annotated[
        bool, Option("--chat", help="Talk in the model's chat form; without PROMPT, turn by turn.")
    ] = False,
    system: Annotated[str | None, Option(help="The system message of a chat.")] = None,
    show_map: Annotated[bool, Option("--map", help="Show the blocks of the pool, live.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object per prompt.")] = False,
    logprobs: Annotated[
        int | None, Option(help="With --json: log-probabilities, and of the K best.")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No closing line.")] = False,
    block_size: Annotated[int, Option(help="Tokens per block.")] = 16,
    num_blocks: Annotated[int | None, Option(help="Blocks of the pool.")] = None,
    memory: Annotated[str | None, Option(help="Bytes of the pool, such as 512MiB.")] = None,
    max_batched_tokens: Annotated[int, Option(help="Tokens per step; prompts are cut.")] = 512,
    preemption: Annotated[
        str, Option(help="'recompute' or 'swap', if the pool is too small.")
    ] = "recompute",
    prefix_caching: Annotated[
        bool, Option("--prefix-caching/--no-prefix-caching", help="Share equal beginnings.")
    ] = True,
    attention: Annotated[
        str | None, Option(metavar="MODULE:NAME", help="A kernel of your own.")
    ] = None,
    sanitize: Annotated[
        bool, Option("--sanitize", help="Judge every read and write of the cache; slower.")
    ] = False,
    dtype: Annotated[
        str | None, Option(help="Of weights and cache, such as bfloat16; int8: of weights alone.")
    ] = None,
    device: Annotated[str | None, Option(help="'cpu' or 'cuda'; the default looks.")] = None,
) -> None:
    """Continue one or more texts with a language model."""
    sampling = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": tuple(stop) if stop else None,
        "logprobs": logprobs,
    }
    params = _params(sampling, max_tokens, n, beam)
    texts = _read(prompts or [], chat)
    engine = {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "memory": memory,
        "max_num_batched_tokens": max_batched_tokens,
        "preemption": preemption,
        "prefix_caching": prefix_caching,
        "dtype": dtype,
        "device": device,
        "sanitize": sanitize,
    }
    from .run import load, talk, write_texts

    llm = load(model, attention, engine)
    if device is None and llm.device.type == "cpu":
        _mention_an_idle_gpu()
    if chat and not texts:
        talk(llm, params, system, quiet=quiet)
    else:
        write_texts(
            llm,
            texts,
            params,
            chat=chat,
            system=system,
            show_map=show_map,
            json=as_json,
            quiet=quiet,
        )


def _mention_an_idle_gpu() -> None:
    """Whoever has one would wonder."""
    import torch

    from .console import to_stderr

    if torch.cuda.is_available():
        text = "There is a GPU, which is not used: minipaged doctor says what it needs."
        to_stderr().print(text, style="dim")


def _params(
    sampling: dict[str, Any], max_tokens: int, n: int, beam: int | None
) -> SamplingParams | BeamSearchParams:
    from minipaged.core import InvalidRequest
    from minipaged.engine.params import BeamSearchParams, SamplingParams

    given = {name: value for name, value in sampling.items() if value is not None}
    if beam is None:
        given.setdefault("temperature", 0.8)
        return SamplingParams(max_tokens=max_tokens, n=n, **given)
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidRequest(f"--beam chooses by probability alone: {options} cannot go with it")
    return BeamSearchParams(beam_width=beam, max_tokens=max_tokens, n=n)


def _read(prompts: list[str], chat: bool) -> list[str]:
    """The prompts; from standard input where one is "-", or where none is given and it is a pipe.

    No prompt is only right for a chat at a terminal.
    """
    if not prompts and not sys.stdin.isatty():
        prompts = ["-"]
    if not prompts and not chat:
        raise typer.BadParameter('give a text to continue, such as "In the beginning"')
    if prompts.count("-") > 1:
        raise typer.BadParameter("standard input can be read once, '-' stands there twice")
    return [sys.stdin.read().removesuffix("\n") if text == "-" else text for text in prompts]
