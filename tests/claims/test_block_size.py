"""C6: waste by the law, and a kernel whose result no block size changes."""

from __future__ import annotations

import pytest

from minipaged.claims import block_size
from minipaged.claims.claim import Context


@pytest.fixture(scope="module")
def quick():
    return block_size.measure(Context(quick=True))


def test_waste_grows_with_blocks_and_the_batch_shrinks(quick):
    for sweep in quick.series["sweep"].values():
        assert sweep["block_size"] == [1, 16, 256]
        assert sweep["waste"] == sorted(sweep["waste"])
        assert sweep["waste"][0] == 0
        assert sweep["batch"][1] > 0.9 * sweep["batch"][0]
        assert sweep["batch"][2] < 0.8 * sweep["batch"][0]


def test_waste_is_what_the_law_says_where_it_holds(quick):
    laws = [row for row in quick.rows if " with B = " in row.said]
    assert len(laws) == 5
    assert all(row.tolerance.admits(row.measured) for row in laws)
    (other,) = [row for row in quick.rows if "shorter than a block" in row.note]
    assert (other.what, other.verdict) == (
        "Alpaca-like, 200 requests, blocks of 256: held and empty",
        "measured",
    )


def test_the_paper_s_good_sizes_are_good_here(quick):
    good = [row for row in quick.rows if "batch, of the largest" in row.what]
    assert [row.tolerance.admits(row.measured) for row in good if row.tolerance] == [True] * 3
    assert {row.verdict for row in good if row.tolerance} == {"unjudged"}


def test_only_the_kernel_s_times_are_wall_times(quick):
    assert {row.what.startswith("the kernel") for row in quick.rows if row.wall} == {True}
    assert len(quick.series["wall"]["kernel_ms"]["ms"]) == 3


def test_a_kernel_that_depends_on_the_block_size_is_refused(monkeypatch):
    real, calls = block_size.cpu_paged_attention, []

    def wrong(*arguments, **options):
        calls.append(1)
        return real(*arguments, **options) + (arguments[1].shape[1] == 8)

    monkeypatch.setattr(block_size, "cpu_paged_attention", wrong)
    with pytest.raises(AssertionError, match="blocks of 8 give another result"):
        block_size.kernel_times((4, 8), rounds=1)
    assert len(calls) == 3
