"""When a benchmark may speak: medians, spread, ratios, and the rules by which they are refused."""

from __future__ import annotations

import pytest

from minipaged.bench.share import cpu_share, share_of
from minipaged.bench.stats import Figure, ratios


def pair(ours, theirs, unit="tok/s", **options):
    figures = [Figure("t", "minipaged", unit, ours), Figure("t", "peer", unit, theirs, **options)]
    return figures, ratios(figures)


def test_a_figure_is_the_median_of_its_rounds():
    figure = Figure("t", "minipaged", "tok/s", (3.0, 1.0, 2.0), limit=4.0)
    assert (figure.median, figure.of_limit) == (2.0, 0.5)
    row = figure.row()
    assert (row["min"], row["max"], row["values"], row["disturbed"]) == (1, 3, (3, 1, 2), False)


def test_of_a_limit_in_time_less_is_better():
    assert Figure("t", "minipaged", "ms", (8.0,), limit=2.0).of_limit == 0.25
    assert Figure("t", "minipaged", "ms", (8.0,)).of_limit is None


def test_ratios_are_taken_round_by_round():
    """The machine halves its speed in between; each round's ratio is the same all the same."""
    _, (ratio,) = pair((20.0, 10.0, 20.0), (10.0, 5.0, 10.0))
    assert (ratio.values, ratio.refusal, ratio.median) == ((2.0, 2.0, 2.0), "", 2.0)
    assert ratio.row()["ratio"] == 2.0


def test_a_ratio_of_times_is_above_1_where_ours_is_shorter():
    _, (ratio,) = pair((10.0, 10.0), (30.0, 30.0), "ms")
    assert ratio.median == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("ours", "theirs", "word"),
    [
        ((20.0, 9.0, 20.0), (10.0, 10.0, 10.0), "too noisy"),  # they disagree on who is better
        ((10.1, 14.0, 10.2), (10.0, 10.0, 10.0), "too noisy"),  # the spread is larger than the gain
        ((20.0,), (10.0,), "one round"),
        ((20.0, 21.0, 20.0), (10.0, 10.0, 10.0), ""),
    ],
)
def test_a_ratio_that_its_spread_swallows_is_refused(ours, theirs, word):
    _, (ratio,) = pair(ours, theirs)
    assert ratio.refusal.partition(":")[0] == word
    assert (ratio.row()["ratio"] is None) == bool(word)
    assert ratio.text.startswith(word or "2.00x (2.00-2.10)")


@pytest.mark.parametrize(("share", "marked"), [(0.89, True), (0.9, False)])
def test_who_got_less_than_nine_tenths_of_the_cpu_was_disturbed(share, marked):
    (_, theirs), (ratio,) = pair((20.0, 20.0), (10.0, 10.0), share=share)
    assert theirs.disturbed == marked
    assert (ratio.row()["ratio"] is None) == marked
    assert ("disturbed" in ratio.text) == marked


def test_other_work_has_no_ratio():
    _, (ratio,) = pair((20.0, 20.0), (10.0, 10.0), other_work="7 tokens found, ours found 8")
    assert ratio.row()["ratio"] is None
    assert ratio.refusal == "other work: 7 tokens found, ours found 8"


@pytest.mark.parametrize("unit", ["times", "blocks", "tokens", "x"])
def test_counts_have_no_better_and_no_ratio(unit):
    assert pair((1.0, 1.0), (0.0, 0.0), unit)[1] == []


def test_ratios_need_a_figure_of_ours():
    assert ratios([Figure("t", "peer", "tok/s", (1.0, 1.0))]) == []


def test_a_share_is_what_was_got_of_what_was_asked_for():
    assert (share_of(3.0, 1.0), share_of(1.0, 0.0), share_of(0.0, 0.0)) == (0.75, 1.0, 1.0)
    with cpu_share() as share:
        sum(range(1000))
    assert 0 < share() <= 1
