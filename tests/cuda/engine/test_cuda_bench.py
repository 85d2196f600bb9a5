"""``minipaged bench gpu``: its arithmetic with a clock that is told the time, and a trial run."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from minipaged.bench import gpu_report
from minipaged.bench.app import app
from minipaged.bench.clock import HostClock, in_turns, launch_seconds
from minipaged.bench.gpu import Section, Shape, Sizes, copy_rate, measure_attention
from minipaged.bench.random_model import SMOLLM2_135M, random_model, weight_bytes

SMALL = Sizes(1000, (Shape(2, 32, 2, 1, 16), Shape(9, 999, 1)), rounds=3)


class ToldClock(HostClock):
    """Every call takes the next of these seconds."""

    def __init__(self, *seconds: float, free: int = 2**20):
        self.times, self.free, self.calls = list(seconds), free, []

    def seconds(self, work):
        self.calls.append(work())
        return self.times.pop(0)

    def release(self):
        return self.free


def test_works_take_turns_and_their_medians_count():
    clock = ToldClock(1, 10, 3, 30, 2, 20)
    assert in_turns(clock, [lambda: "a", lambda: "b"], 3) == [2, 20]
    assert clock.calls == ["a", "b"] * 3


def test_nothing_counts_before_it_is_warm():
    calls = []
    in_turns(ToldClock(1), [lambda: calls.append(1)], 1)
    assert len(calls) == 4
    assert launch_seconds(HostClock(), lambda: calls.append(1), 5) > 0
    assert len(calls) == 4 + 3 + 5


def test_a_copy_reads_and_writes():
    assert copy_rate(ToldClock(2.0, 1.0, 4.0), SMALL) == 2 * 1000 / 2.0


def test_the_rate_of_attention_is_its_keys_and_values_over_its_time():
    shape = SMALL.shapes[0]
    assert shape.kv_bytes(torch.float32) == 2 * 32 * 1 * 16 * 2 * 4
    section = measure_attention(
        ToldClock(*(1e-6, 4e-6) * 3),
        lambda query, *rest, scale: query,
        torch.float32,
        rate=16384e6,
        sizes=SMALL,
    )
    assert section.rows == [
        ("2", "32", "2", "8.2", "50%", "2.0", "4.00x"),
        ("9", "999", "1", "does not fit", "", "", ""),
    ]


def test_paged_and_contiguous_are_the_same_work(monkeypatch):
    """Same sizes; and the paged one is a call that attention understands."""
    from minipaged.attention import paged_attention

    clock = ToldClock(*(1.0,) * 6)
    measure_attention(clock, paged_attention, torch.float32, 1.0, SMALL)
    ours, theirs = clock.calls[:2]
    assert ours.shape == theirs[:, :, 0].shape == (2, 2, 16)
    assert ours.isfinite().all()


def test_the_shapes_of_smollm2_are_its_own(monkeypatch):
    """134.5 million weights, the head being the embedding."""
    assert weight_bytes(SMOLLM2_135M, torch.bfloat16) == 2 * 134_515_008
    monkeypatch.setattr(
        "minipaged.bench.random_model.Decoder", lambda config, weights, **_: weights
    )
    tiny = random_model(gpu_report.TINY, torch.float32, torch.device("cpu"))
    embedding = tiny.decoder["model.embed_tokens.weight"]
    assert embedding.std() == pytest.approx(0.25, rel=0.1)


def test_a_trial_measures_everything_and_calls_no_figure_a_gpu_s(tmp_path):
    page = tmp_path / "report.md"
    result = CliRunner().invoke(app, ["gpu", "--try", "--markdown", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "none of these is a figure of a GPU" in text
    assert "none of these is a figure of a GPU" in result.output
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert len(titles) == 4
    assert "| random weights, tiny | 2 | recorded |" in text
    assert "torch 2" in text


def test_where_there_is_no_gpu_one_sentence_says_so(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = CliRunner().invoke(app, ["gpu"])
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "torch finds no GPU here" in result.output


def test_a_page_has_a_table_for_each_section():
    page = gpu_report.markdown(["A card"], [Section("speed", ("a", "b"), [("1", "2")])])
    assert page.splitlines()[2:] == [
        *("A card  ", "", "## speed", "", "| a | b |", "| ---: | ---: |", "| 1 | 2 |")
    ]
