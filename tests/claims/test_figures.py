"""Figures: every claim's is drawn, twice, and nothing in it is told by colour alone."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from minipaged.claims import figures, kernel
from minipaged.claims.captions import CAPTIONS
from minipaged.claims.claim import Claim
from minipaged.claims.occupancy import CLASSES
from minipaged.claims.plots import PLOTS, WAYS
from minipaged.claims.report import Reproduction
from minipaged.claims.roster import CLAIMS

pytest.importorskip("matplotlib", reason="figures need the extra 'claims'")

BARS = {"tokens": 18.0, "reserved": 11.0, "never_used": 62.0, "holes": 9.0}
PAGED = {"tokens": 96.0, "reserved": 0.0, "never_used": 3.0, "holes": 1.0}
SIZES = [1, 16, 256]
SAVED = {"parallel sampling": {"2": 6.0, "4": 9.0}, "beam search": {"2": 36.0, "4": 53.0}}
SERIES = {
    "waste": {"bars": {"one": {"max": BARS, "paged": PAGED}, "two": {"paged": PAGED}}},
    "throughput": {
        "workload": "one",
        "batch": {name: {"time": [0, 1, 2], "running": [1, 7, 7]} for name in ("max", "paged")},
    },
    "sharing": {"savings": SAVED, "paper": SAVED},
    "chat": {"computed": {name: [20, 40, 60] for name in ("whole", "cut", "found")}},
    "block_size": {
        "sweep": {
            name: {"block_size": SIZES, "waste": [0, 3, 25], "batch": [45, 43, 32]}
            for name in ("one", "two")
        },
        "wall": {"kernel_ms": {"block_size": SIZES, "ms": [5, 2, 2]}},
    },
    "kernel": {
        "wall": {
            "kernel": [
                {"num_seqs": n, "context": 64, "ms": {"contiguous": 1.0, "permuted": 1.1}}
                for n in (8, 32)
            ]
        }
    },
    "hit_rate": {
        "hit_rate": {
            "one": {"num_blocks": [1000, 10_000], "engine": [4.0, 20.0], "best": [17.0, 27.0]}
        }
    },
    "preemption": {"sweep": {"block_size": SIZES, "recompute": [1, 1, 1], "swap": [4, 1, 1]}},
}


def claim(key: str) -> Claim:
    return Claim(key, key, "", "", (), (), SERIES[key])


def drawn(key: str, suffix: str = ""):
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    theme = figures.THEMES[suffix]
    with rc_context(theme.style):
        figure = Figure(layout="constrained")
        PLOTS[key](figure, SERIES[key], theme.colours)
    return figure


def test_every_figure_has_its_claim_and_its_example():
    assert set(PLOTS) == set(SERIES) == set(CAPTIONS)
    assert set(PLOTS) <= set(CLAIMS)


@pytest.mark.parametrize("key", PLOTS)
def test_a_figure_is_drawn_for_light_and_for_dark_and_is_always_the_same_file(key, tmp_path):
    found = Reproduction((claim(key),), seed=0, quick=False)
    paths = figures.draw(found, tmp_path)
    assert [path.name for path in paths] == [f"{key}.svg", f"{key}-dark.svg"]
    light, dark = (path.read_bytes() for path in paths)
    assert ElementTree.fromstring(light).tag.endswith("svg")
    assert figures.THEMES[""].style["figure.facecolor"].encode() in light
    assert figures.THEMES["-dark"].style["figure.facecolor"].encode() in dark
    for drawn_ in (light, dark):
        assert f">{CAPTIONS[key].title}</text>".encode() in drawn_
    figures.draw(found, tmp_path)
    assert paths[0].read_bytes() == light


@pytest.mark.parametrize("key", PLOTS)
def test_a_figure_has_names_on_its_axes_and_words_for_who_cannot_see_it(key):
    assert len(CAPTIONS[key].alt) > 80
    assert '"' not in CAPTIONS[key].alt
    for axes in drawn(key).axes:
        texts = [axes.get_xlabel(), axes.get_ylabel(), axes.get_title(loc="left")]
        assert sum(map(bool, texts)) >= 1, key


def test_a_figure_names_things_as_the_tables_do():
    _, names = drawn("waste").axes[0].get_legend_handles_labels()
    assert names == list(CLASSES.values()), "as the rows of C1"
    _, names = drawn("kernel").axes[0].get_legend_handles_labels()
    assert names == [WAYS[way] for way in ("contiguous", "permuted")]
    assert set(WAYS) == set(kernel.WAYS)
    assert drawn("throughput").axes[0].get_ylabel() == "sequences in a step"
    titles = [axes.get_title(loc="left") for axes in drawn("block_size").axes]
    assert titles[:2] == ["held and empty, %", "sequences in a step"]


def test_claims_without_series_or_figure_are_left_out(tmp_path):
    empty = Claim("waste", "", "", "", ())
    other = Claim("prefix", "", "", "", (), (), {"wall": {}})
    assert figures.draw(Reproduction((empty, other), 0, False), tmp_path) == []


@pytest.mark.parametrize("key", ["throughput", "chat", "block_size", "hit_rate", "preemption"])
def test_lines_differ_by_stroke_and_marker_too(key):
    for axes in drawn(key).axes:
        lines = axes.get_lines()
        assert lines
        assert len({line.get_marker() for line in lines}) == len(lines)
        assert len({line.get_linestyle() for line in lines}) == len(lines)


@pytest.mark.parametrize("key", ["waste", "kernel"])
def test_areas_differ_by_hatch_too(key):
    for axes in drawn(key).axes:
        hatches = {patch.get_hatch() for patch in axes.patches}
        kinds = len({patch.get_facecolor() for patch in axes.patches})
        assert len(hatches) == kinds > 1


def test_stacked_bars_add_up_and_are_numbered_where_there_is_room():
    first, *_ = drawn("waste").axes
    widths = [patch.get_width() for patch in first.patches]
    assert len(widths) == 2 * len(CLASSES)
    assert sum(widths) == pytest.approx(200)
    begins = [patch.get_x() for patch in first.patches]
    assert begins[::2] == pytest.approx([0, 18, 29, 91])
    assert begins[1::2] == pytest.approx([0, 96, 96, 99])
    assert sorted(text.get_text() for text in first.texts if text.get_text()) == sorted(
        ["18", "11", "62", "9", "96"]
    )
    assert [label.get_text() for label in first.get_yticklabels()] == ["max", "paged"]


def contrast(first: str, second: str) -> float:
    """The ratio of relative luminances, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear))

    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("suffix", figures.THEMES)
def test_text_and_colours_stand_out_from_the_paper(suffix):
    theme = figures.THEMES[suffix]
    paper = theme.style["figure.facecolor"]
    assert contrast(theme.style["text.color"], paper) > 7
    assert min(contrast(colour, paper) for colour in theme.colours) > 2
