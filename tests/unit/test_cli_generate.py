"""`minipaged generate` with the bundled model: the same text however it is shown."""

from __future__ import annotations

import json
import re

import pytest
import torch
from typer.testing import CliRunner

from minipaged.attention import paged_attention
from minipaged.cli import app
from minipaged.cli import run as running
from minipaged.cli.console import write
from minipaged.engine.llm import LLM
from minipaged.engine.outputs import Delta
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.models import Tokenizer
from minipaged.models.catalog import BUNDLED

PROMPT = "And the LORD said unto Moses, Speak unto the children of Israel, saying, When ye"
NUM_PROMPT = len(Tokenizer.from_directory(BUNDLED).encode(PROMPT))  # more than a block of 16
FEW = ("--max-tokens", "8")


@pytest.fixture(scope="module")
def loaded():
    torch.set_num_threads(1)
    return {}


@pytest.fixture(autouse=True)
def engine(loaded, monkeypatch):
    """One engine for equal options: the model is read once, and nothing is compiled."""
    asked = []

    def load(model, attention, options):
        asked.append((model, attention, options))
        key = repr(sorted(options.items()))
        if key not in loaded:
            loaded[key] = LLM(loaded.setdefault("model", model), paged_attention, **options)
            loaded["model"] = loaded[key].model
        return loaded[key]

    monkeypatch.setattr(running, "load", load)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return asked


def ask(*words: str, stdin: str | None = None):
    return CliRunner().invoke(app, ["generate", *words], input=stdin, prog_name="minipaged")


def texts(*words: str) -> list[list[str]]:
    """Of every prompt, from the JSON."""
    result = ask(*words, "--json", "-q")
    assert result.exit_code == 0, result.output
    requests = [json.loads(line) for line in result.stdout.splitlines()]
    return [[output["text"] for output in request["outputs"]] for request in requests]


def test_only_the_text_goes_to_stdout():
    result = ask(PROMPT, *FEW, "--seed", "3")
    assert result.exit_code == 0, result.output
    assert result.stdout == texts(PROMPT, *FEW, "--seed", "3")[0][0] + "\n"
    assert len(result.stderr.splitlines()) == 1


def test_the_closing_line():
    line = ask(PROMPT, *FEW, "--temperature", "0", "--num-blocks", "30").stderr
    assert re.fullmatch(
        rf"prompt {NUM_PROMPT} computed \+ 0 cached, [\d.,]+ tok/s \| "
        r"generated 8, decode [\d.,]+ tok/s \| "
        r"peak 2 of 30 blocks \(80\.0 KiB\) \| slots 0 shared, \d+ wasted \([\d.]+%\) \| "
        r"load [\d.]+ s, compile 0\.00 s\n",
        line,
    ), line


def test_quiet():
    assert ask(PROMPT, *FEW, "-q").stderr == ""


def test_several_prompts_are_labelled():
    words = (PROMPT, "In the beginning", *FEW, "--temperature", "0")
    (first,), (second,) = texts(*words)
    assert ask(*words).stdout == f"--- prompt 1\n{first}\n--- prompt 2\n{second}\n"


def test_several_texts_of_one_prompt():
    words = (PROMPT, *FEW, "--seed", "1", "-n", "3")
    ((a, b, c),) = texts(*words)
    assert len({a, b, c}) == 3
    result = ask(*words)
    assert result.stdout == f"--- text 1\n{a}\n--- text 2\n{b}\n--- text 3\n{c}\n"
    assert "16 shared" in result.stderr  # the prompt is one full block


def test_batch_mates_and_seeds_change_nothing():
    words = (*FEW, "--seed", "5")
    assert texts(PROMPT, "In the beginning", *words)[0] == texts(PROMPT, *words)[0]


def test_a_prompt_that_is_known_is_not_computed_again():
    ask(PROMPT, *FEW)
    result = ask(PROMPT, *FEW)
    assert re.match(rf"prompt {NUM_PROMPT - 16} computed \+ 16 cached", result.stderr), (
        result.stderr
    )


@pytest.mark.parametrize(("words", "stdin"), [(("-",), PROMPT), ((), PROMPT), ((), PROMPT + "\n")])
def test_a_prompt_from_a_pipe(words, stdin):
    result = ask(*words, *FEW, "--temperature", "0", stdin=stdin)
    assert result.stdout == texts(PROMPT, *FEW, "--temperature", "0")[0][0] + "\n"


def test_beams():
    words = (PROMPT, *FEW, "--beam", "3")
    ((best,),) = texts(*words)
    assert ask(*words).stdout == f"{best}\n"
    ((one, two, three),) = texts(*words, "-n", "3")
    assert one == best
    assert len({one, two, three}) == 3


def test_json():
    result = ask(PROMPT, *FEW, "--json", "--temperature", "0", "--logprobs", "2")
    found = json.loads(result.stdout)
    assert found["prompt"] == PROMPT
    assert (found["request_id"], found["num_prompt_tokens"]) == ("0", NUM_PROMPT)
    assert (found["error"], found["num_preemptions"]) == (None, 0)
    (output,) = found["outputs"]
    assert output["finish_reason"] == "length"
    assert len(output["token_ids"]) == len(output["logprobs"]) == 8
    assert max(output["logprobs"][0].values()) == output["logprobs"][0][str(output["token_ids"][0])]


def test_stop_strings():
    whole = texts(PROMPT, "--max-tokens", "12", "--temperature", "0")[0][0]
    middle = whole[5:8]
    cut = ask(PROMPT, "--max-tokens", "12", "--temperature", "0", "--stop", middle).stdout
    assert cut == whole[: whole.index(middle)] + "\n"


def test_the_map_goes_to_stderr():
    words = (PROMPT, *FEW, "--seed", "1", "-n", "2", "--num-blocks", "300")
    result = ask(*words, "--map")
    assert result.stdout == ask(*words).stdout
    assert "The pool at its fullest:" in result.stderr
    assert "│ AB ×2           │" in result.stderr
    assert "blank blocks" in result.stderr


def test_the_map_of_a_live_terminal(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich: this is a terminal
    monkeypatch.setattr("minipaged.cli.screens.REDRAW_SECONDS", 0)
    monkeypatch.setattr("minipaged.cli.screens.MOST_TIME", 1e9)
    result = ask(PROMPT, *FEW, "--map", "--temperature", "0", "--num-blocks", "301")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("┌") > 5
    assert result.stderr.rindex("\x1b[?25h") > result.stderr.rindex("\x1b[?25l")  # cursor is back


def test_a_failing_model_gives_the_terminal_back(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")

    def broken(self):
        raise RuntimeError("the model broke")

    monkeypatch.setattr(LLM, "step", broken)
    result = ask(PROMPT, *FEW, "--map")
    assert isinstance(result.exception, RuntimeError)
    assert result.stderr.rindex("\x1b[?25h") > result.stderr.rindex("\x1b[?25l")


def test_options_reach_the_engine(engine):
    ask(
        PROMPT, *FEW, "--block-size", "8", "--num-blocks", "32", "--max-batched-tokens", "5",
        "--preemption", "swap", "--no-prefix-caching", "--dtype", "float64",
    )  # fmt: skip
    ((model, attention, options),) = engine
    assert (model, attention) == ("bundled", None)
    assert options == {
        "block_size": 8,
        "num_blocks": 32,
        "memory": None,
        "max_num_batched_tokens": 5,
        "preemption": "swap",
        "prefix_caching": False,
        "dtype": "float64",
        "device": None,
        "sanitize": False,
    }


def test_sampling_options(monkeypatch):
    seen = []
    monkeypatch.setattr(running, "write_texts", lambda llm, texts, params, **_: seen.append(params))
    ask("x", "--top-p", "0.9", "--top-k", "5", "--min-p", "0.1", "--seed", "7", "-n", "2")
    ask("x", "--beam", "4", "-n", "2", "--max-tokens", "3")
    assert seen == [
        SamplingParams(temperature=0.8, top_p=0.9, top_k=5, min_p=0.1, seed=7, n=2, max_tokens=128),
        BeamSearchParams(beam_width=4, n=2, max_tokens=3),
    ]


def test_preemption_is_told():
    result = ask(
        PROMPT, PROMPT + " and", "--block-size", "4", "--num-blocks", "9", "--max-tokens", "16",
        "--temperature", "0",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert re.search(r"\| \d+ preempted, \d+ tokens again \|", result.stderr), result.stderr


# --- a conversation ----------------------------------------------------------------------------


def with_a_template(monkeypatch, llm: LLM) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    monkeypatch.setattr(llm.tokenizer, "chat_template", template)
    llm.tokenizer.__dict__.pop("_template", None)


def test_a_conversation_finds_its_history(monkeypatch, capsys):
    llm = LLM("bundled", paged_attention, block_size=4, num_blocks=64)
    with_a_template(monkeypatch, llm)
    questions = iter(["Who made the heaven and the earth?", "And who made the sea?"])
    prompts = []
    monkeypatch.setattr(running, "_ask", lambda: next(questions, None))
    add = llm.add
    monkeypatch.setattr(llm, "add", lambda p, *a, **k: (prompts.append(p), add(p, *a, **k))[1])
    running.talk(llm, SamplingParams(max_tokens=6, temperature=0), "Be brief.", quiet=False)
    first, second = (llm.tokenizer.decode(p) for p in prompts)
    assert first == "system: Be brief.\nuser: Who made the heaven and the earth?\nassistant:"
    assert second.startswith(first)
    assert second.endswith("\nuser: And who made the sea?\nassistant:")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("prompt")]
    cached = [int(re.search(r"\+ (\d+) cached", line)[1]) for line in lines]  # type: ignore[index]
    assert cached[0] == 0
    assert cached[1] >= len(prompts[0]) // 4 * 4


def test_a_conversation_forgets_its_beginning_in_time(monkeypatch):
    llm = LLM("bundled", paged_attention, num_blocks=64, max_model_len=128)
    with_a_template(monkeypatch, llm)
    turns = [
        {"role": role, "content": f"{i} " + "the sea " * 12}
        for i in range(4)
        for role in ("user", "assistant")
    ]
    messages = [{"role": "system", "content": "Be brief."}, *turns, turns[0]]
    prompt = running._shortened(llm, messages, SamplingParams(max_tokens=32))
    assert len(prompt) + 32 <= 128
    assert messages[0]["role"] == "system"
    assert messages[1]["role"] == "user"
    assert messages[-1] == turns[0]


def test_a_chat_with_one_message(monkeypatch, loaded):
    ask("x", *FEW)
    llm = next(value for value in loaded.values() if isinstance(value, LLM))
    with_a_template(monkeypatch, llm)
    result = ask("Who art thou?", "--chat", "--system", "Be brief.", *FEW, "--json")
    assert json.loads(result.stdout)["num_prompt_tokens"] > 8
    llm.tokenizer.__dict__.pop("_template", None)


# --- a terminal --------------------------------------------------------------------------------


def test_no_control_sequence_reaches_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    write("a\x1b[2Jb\n\tc\x07")
    assert capsys.readouterr().out == "a\ufffd[2Jb\n\tc\ufffd"


def test_on_a_terminal_a_text_begins_with_its_prompt(capsys):
    from minipaged.cli.screens import TextScreen

    screen = TextScreen(["In the"], 1, echo=True)
    screen.show([Delta("0", 0, " begin", (1,), None), Delta("1", 0, "x", (1,), None)])
    screen.show([Delta("0", 0, "ning", (1,), None)])
    assert capsys.readouterr().out == "In the beginning"
