"""`minipaged trace`: the recording is of the engine's own run, complete, and changes nothing."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import chain, pairwise

import pytest
from typer.testing import CliRunner

from minipaged.cli import app
from minipaged.cli import run as running
from minipaged.cli.recorder import Recorder
from minipaged.cli.sequences import Names
from minipaged.core import Snapshot
from minipaged.engine.llm import LLM
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.view.moment import Moment, Told, mentioned
from support.engine_models import PROMPTS, bundled, make_llm
from support.events import count as note
from support.events import must_happen_in_module

events = must_happen_in_module(
    "copied", "found", "evicted", "preempted", "adopted", "dropped", "forked", "waits", "resumed"
)

SAMPLES = SamplingParams(n=3, temperature=0.8, seed=1, max_tokens=12)
TIGHT = {"num_blocks": 24, "max_num_batched_tokens": 8}
RUNS = {
    "samples": (SAMPLES, {}),
    "many samples": (SamplingParams(n=9, temperature=0.8, seed=1, max_tokens=3), {}),
    "beams": (BeamSearchParams(beam_width=4, max_tokens=12), {}),
    "tight": (SAMPLES, TIGHT),
    "tight, swapped": (SAMPLES, {**TIGHT, "preemption": "swap"}),
    "tight beams": (BeamSearchParams(beam_width=2, max_tokens=12), TIGHT),
    "without prefixes": (SAMPLES, {"prefix_caching": False}),
}


def record(llm: LLM, params) -> tuple[list[Moment], list[list[list[int]]]]:
    requests = [llm.add(prompt, params) for prompt in PROMPTS]
    with Recorder(llm) as recorder:
        while llm.has_unfinished:
            recorder.show(llm.step())
    for moment in recorder.moments:
        for change in moment.changes:
            note(change.kind)
    return recorder.moments, [[s.token_ids for s in request.sequences] for request in requests]


@pytest.fixture(params=RUNS, scope="module")
def recorded(request):
    params, knobs = RUNS[request.param]
    llm = make_llm(**knobs)
    return *record(llm, params), llm, params, knobs


def test_recording_changes_no_token(recorded):
    _, tokens, _, params, knobs = recorded
    llm = make_llm(**knobs, sanitize=False)
    requests = [llm.add(prompt, params) for prompt in PROMPTS]
    while llm.has_unfinished:
        llm.step()
    assert [[s.token_ids for s in request.sequences] for request in requests] == tokens


def test_every_holder_of_every_block_is_in_the_picture(recorded):
    for moment in recorded[0]:
        shot = moment.snapshot
        held = [0] * shot.num_blocks
        for table in shot.tables:
            for block_id in table.block_ids:
                held[block_id] += block_id >= 0
        assert tuple(held) == shot.ref_counts, moment.title


def state(shot: Snapshot, block_id: int) -> tuple:
    free = block_id in shot.free_order
    return sorted(shot.owners(block_id)), shot.prefixes[block_id], free


def test_no_block_changes_without_being_told(recorded):
    moments = recorded[0]
    for before, after in pairwise(moments):
        said = {b for change in after.changes for b in mentioned(change.text)}
        for block_id in range(after.snapshot.num_blocks):
            if state(before.snapshot, block_id) != state(after.snapshot, block_id):
                assert block_id in said, f"{after.title}: block {block_id} changed in silence"


def tokens_of(moment: Moment) -> dict[str, int]:
    return {table.name: table.num_tokens for table in moment.snapshot.tables}


def test_all_that_were_computed_and_drawn_are_named(recorded):
    """However many they are: a list that ends with "2 more" forgets nobody."""
    moments, _, _, params, _ = recorded
    is_beam = isinstance(params, BeamSearchParams)
    for before, after in pairwise(moments):
        named, born = dict[str, set[str]](), set[str]()
        for change in after.changes:
            assert isinstance(change, Told), change
            named.setdefault(change.kind, set()).update(change.names)
            born.update(change.names[1:] if change.kind == "forked" else ())
        known = tokens_of(before)
        grown = {
            n for n, num in tokens_of(after).items() if n not in born and num > known.get(n, 0)
        }
        assert grown <= named.get("computed", set()) | named.get("resumed", set()), after.title
        old = {line.name: len(line.text.replace("|", "")) for line in before.lines}
        longer = {
            line.name
            for line in after.lines
            if line.name in old and len(line.text.replace("|", "")) > old[line.name]
        }
        assert is_beam or longer | born <= named.get("sampled", set()), after.title


def test_no_change_names_anybody_whom_it_does_not_concern(recorded):
    """Without "more" in it a text says every name; a block's holders are known from the block."""
    for change in chain.from_iterable(moment.changes for moment in recorded[0]):
        assert isinstance(change, Told)
        if not change.block_ids and " more" not in change.text and change.kind != "chosen":
            said = {n for n in change.names if re.search(rf"(?<!\w){n}(?!\w)", change.text)}
            assert said == {*change.names} > set(), change


def test_nobody_is_spoken_of_before_the_fork_that_he_comes_from(recorded):
    for moment in recorded[0]:
        for i, fork in enumerate(moment.changes):
            if fork.kind != "forked":
                continue
            assert isinstance(fork, Told)
            assert "forked" in moment.title, moment.title
            for child in fork.names[1:]:
                before = [c for c in moment.changes[:i] if re.search(rf"\b{child}\b", c.text)]
                assert {c.kind for c in before} <= {"forked"}, (fork, before)


def test_copies_are_those_of_the_scheduler(recorded):
    moments, _, llm, *_ = recorded
    told = [c.text for moment in moments for c in moment.changes if c.kind == "copied"]
    assert len(told) == llm.stats.blocks_copied


def test_preemptions_and_evictions_are_those_of_the_engine(recorded):
    moments, _, llm, *_ = recorded
    kinds = [change.kind for moment in moments for change in moment.changes]
    assert kinds.count("evicted") == llm.pool.num_evictions
    assert bool(llm.stats.num_preemptions) == ("preempted" in kinds)


def test_every_text_is_told_to_its_end(recorded):
    moments, tokens, llm, *_ = recorded
    texts = {line.text.replace("|", "") for line in moments[-1].lines}
    decode = llm.tokenizer.decode
    assert texts == {decode(ids, skip_special_tokens=False) for ids in chain(*tokens)}


def test_pieces_are_what_stands_in_the_blocks(recorded):
    """Written pieces are as many as the table's written blocks, and lie in them."""
    for moment in recorded[0]:
        tables = {table.name: table for table in moment.snapshot.tables}
        for line in moment.lines:
            blocks = [piece.block_id for piece in line.pieces if piece.block_id is not None]
            table = tables.get(line.name)
            ids = table.block_ids[: -(-table.num_tokens // 4)] if table else ()
            assert tuple(blocks) == ids, f"{moment.title}: {line.name}"


def test_a_prompt_is_given_and_the_rest_generated(recorded):
    for line in recorded[0][-1].lines:
        given = "".join(piece.given for piece in line.pieces)
        assert given in PROMPTS, line.name


def test_the_hook_is_taken_off_again():
    llm = make_llm()

    def fail():
        with Recorder(llm):
            assert "schedule" in vars(llm.scheduler)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert "schedule" not in vars(llm.scheduler)


def test_a_failing_step_is_no_moment_and_the_next_one_is():
    llm = make_llm()
    llm.add(PROMPTS[2], SamplingParams(max_tokens=2))
    compute, failed = llm._compute, []

    def fail_once(step):
        if not failed:
            failed.append(step)
            raise MemoryError("once")
        return compute(step)

    llm._compute = fail_once  # type: ignore[method-assign]
    with Recorder(llm) as recorder:
        with pytest.raises(MemoryError):
            llm.step()
        while llm.has_unfinished:
            recorder.show(llm.step())
    assert len(recorder.moments) == 3
    assert recorder.moments[1].changes[0].kind == "computed"


def test_names_go_round_and_are_not_given_twice():
    class Anybody:
        pass

    names, crowd = Names(), [Anybody() for _ in range(60)]
    given = [names.of(one) for one in crowd]  # type: ignore[arg-type]
    assert len(set(given)) == 60
    assert given[:3] == ["A", "B", "C"]
    names.forget(crowd[1])  # type: ignore[arg-type]
    assert names.of(Anybody()) not in given[2:]  # type: ignore[arg-type]


# --- a worked example --------------------------------------------------------------------------


def told(moment: Moment) -> list[str]:
    return [f"{change.kind}: {change.text}" for change in moment.changes]


def test_two_samples_word_for_word():
    llm = make_llm(num_blocks=8)
    llm.add([5, 6, 7, 8, 9, 10], SamplingParams(n=2, temperature=0, max_tokens=2, ignore_eos=True))
    with Recorder(llm) as recorder:
        while llm.has_unfinished:
            recorder.show(llm.step())
    start, first, second = recorder.moments
    assert start.title == "Before the first step: 1 waits, 8 of 8 blocks are free"
    assert first.title == "A is admitted and forked"
    published = first.snapshot.prefixes[0]
    assert told(first)[:-1] == [
        "admitted: A, 6 tokens",
        "computed: A at positions 0-5",
        "allocated: blocks 0, 1 for A",
        f"published: block 0 as #{published}",
        "forked: A into B: they share its blocks",
        "shared: blocks 0, 1 by A and B",
    ]
    assert second.title == "A and B decode; A and B end"
    assert [line for line in told(second) if not line.startswith("sampled")] == [
        "computed: A and B at position 6",
        "copied: block 1 to 2, for A",
        "ended: A after 2 generated tokens: as many as were asked for, or have room",
        "ended: B after 2 generated tokens: as many as were asked for, or have room",
        "released: block 0 by A and B: cached, still found by prefix",
        "released: block 2 by A: blank",
        "released: block 1 by B: blank",
    ]


def test_a_second_prompt_waits_for_the_prefix_of_the_first():
    llm = make_llm()
    for _ in range(2):
        llm.add(PROMPTS[0], SamplingParams(max_tokens=1, temperature=0))
    with Recorder(llm) as recorder:
        while llm.has_unfinished:
            recorder.show(llm.step())
    _, first, second = recorder.moments
    assert "waits: B: its prefix is being computed, and will be found" in told(first)
    num, found = len(llm.tokenizer.encode(PROMPTS[0])), llm.stats.prompt_tokens_cached
    assert found > 0
    assert f"admitted: B, {num} tokens, {found} of them found by prefix" in told(second)


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    def load(model, attention, options):
        knobs = {name: value for name, value in options.items() if name != "device"}
        return make_llm(bundled(), **knobs, sanitize=False)

    monkeypatch.setattr(running, "load", load)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return lambda *words: CliRunner().invoke(app, ["trace", *words], prog_name="minipaged")


FEW = ("--max-tokens", "3")


def test_the_terminal_tells_every_step(asked):
    result = asked("To be, or not to be", *FEW, "-n", "2", "--plain")
    assert result.exit_code == 0, result.output
    assert "0/3  Before the first step: 1 waits, 24 of 24 blocks are free" in result.stdout
    assert "copied    block 1 to 2, for A" in result.stdout
    assert "3/3  A and B decode; A and B end" in result.stdout
    assert "AB ×2" in result.stdout


def drawn_blocks(step: str) -> set[int]:
    """The ids in the grid of one printed step."""
    rows = re.findall(r"[┌├][^\n]*\n│([^\n]*)│\n", step)
    return {int(cell.split()[0]) for row in rows for cell in row.split("│")}


def test_the_terminal_draws_what_is_held_or_changed(asked, tmp_path):
    """And of the others at most a count; what is never used is said once."""
    data = tmp_path / "run.json"
    words = ("To be", "-n", "3", "--plain")
    printed = asked(*words).stdout
    assert asked(*words, "--json", str(data)).exit_code == 0
    steps = json.loads(data.read_text())["steps"]
    told = re.split(r"^\d+/\d+  ", printed, flags=re.MULTILINE)[1:]
    changed = [{b for c in step["changes"] for b in c["block_ids"]} for step in steps]
    num_used = max(b for blocks in changed for b in blocks) + 1
    for text, step, blocks in zip(told, steps, changed, strict=True):
        counts = step["snapshot"]["ref_counts"]
        drawn = {b for b, count in enumerate(counts) if count} | blocks
        assert drawn_blocks(text) == drawn
        left = sum(
            int(n) for n in re.findall(r"(\d+) (?:blank|cached)", text.partition("not drawn")[2])
        )
        assert len(drawn) + left == num_used
        named = re.findall(r"\d+", text.partition("free, next first: ")[2].partition("\n")[0])
        assert all(int(b) < num_used for b in named)
    assert printed.count(f"{24 - num_used} more are never used") == 1


def test_what_ended_is_told_with_its_reason(asked):
    assert "A  ended (length): To be" in asked("To be", *FEW, "--plain").stdout
    beams = asked("To be", *FEW, "--beam", "2", "--plain").stdout
    assert "result 1 ended (length): To be" in beams


def test_json_and_page_tell_the_same_steps(asked, tmp_path):
    page, data = tmp_path / "run.html", tmp_path / "run.json"
    result = asked("To be", "In the", *FEW, "--html", str(page), "--json", str(data))
    assert result.exit_code == 0, result.output
    steps = json.loads(data.read_text())["steps"]
    assert [step["step"] for step in steps] == [0, 1, 2, 3]
    assert steps[1]["changes"][0]["kind"] == "admitted"
    assert steps[1]["snapshot"]["tables"][0]["name"] == "A"
    text = page.read_text()
    assert all(step["title"] in text for step in steps)
    assert "“To be” · “In the”" in unescape(text)
    assert result.stdout == ""
    assert f"{page}: 3 steps, " in result.stderr.replace("\n", "")


def test_equal_seeds_record_equal_runs(asked, tmp_path):
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file, seed in zip(files, "334"):
        words = ("--temperature", "1.5", "--seed", seed, "--json", str(file))
        assert asked("And he said", *FEW, *words).exit_code == 0
    first, second, third = (file.read_bytes() for file in files)
    assert first == second != third


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("To be", "--html", "no/such/folder/run.html"), "a folder that exists"),
        (("To be", "--html", "."), "a folder that exists"),
        (("To be", "--beam", "2", "--temperature", "1"), "--temperature cannot go with it"),
        (("To be " * 60, "--num-blocks", "2"), "the whole pool has 2"),
        (("",), "the prompt is empty"),
    ],
)
def test_what_cannot_be_recorded_is_said(asked, words, said):
    result = asked(*words)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.stderr.replace("│", "").split())


def test_a_file_that_cannot_be_written_is_said(asked, monkeypatch, tmp_path):
    def refuse(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    result = asked("To be", *FEW, "--html", str(tmp_path / "run.html"))
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
