"""C3: what samples share is a closed form, in tables and in the engine; beams share real blocks."""

from __future__ import annotations

import pytest

from minipaged.claims import sharing
from minipaged.claims.beams import beam_savings
from minipaged.claims.claim import Context
from minipaged.claims.generators import alpaca_like
from minipaged.claims.savings import Savings
from minipaged.claims.sharing_law import sampling_law, sampling_savings
from minipaged.claims.sharing_real import RealSharing
from minipaged.claims.workload import Arrival, Workload
from minipaged.core import BlockPool, BlockTable

LENGTHS = [(16, 2), (15, 20), (17, 40), (1, 3), (64, 33), (100, 1)]
FEW = Workload("few", "made up", tuple(Arrival(0.0, p, o) for p, o in LENGTHS))


@pytest.fixture(scope="module")
def engine():
    return RealSharing(FEW)


def test_the_law_by_hand():
    """A prompt of 20 and 14 tokens more: one full block is shared while 2 or 3 blocks are held.

    Lengths 21 to 32 take 2 blocks each, 33 takes 3: per sample 12 * 2 + 3 = 27 in 13 steps.
    """
    expected = 100 * (3 - 1) * 1 * 13 / (3 * 27)
    assert sampling_law([Arrival(0.0, 20, 14)], num_samples=3) == pytest.approx(expected)


@pytest.mark.parametrize("num_samples", [2, 3, 6])
def test_tables_share_what_the_law_says(num_samples):
    for workload in (FEW, alpaca_like(40)):
        measured = sampling_savings(workload, num_samples).percent
        assert measured == pytest.approx(sampling_law(workload.arrivals, num_samples), abs=1e-9)


@pytest.mark.parametrize("num_samples", [2, 4])
def test_the_real_engine_shares_what_the_law_says_and_copies_no_more(engine, num_samples):
    """Of six prompts three end inside of a block and go on; the last sample writes in place."""
    watched = engine.samples(num_samples)
    law = sampling_law(FEW.arrivals, num_samples)
    assert watched.savings.percent == pytest.approx(law, abs=1e-9)
    assert watched.most_duplicates == 1
    assert watched.num_copies == watched.copies_needed == 3 * (num_samples - 1)
    assert watched.bytes_copied == watched.num_copies * engine.llm.cache.bytes_per_block > 0


@pytest.mark.parametrize("width", [2, 4])
def test_beams_of_the_real_engine_share(engine, width):
    watched = engine.beams(width)
    assert watched.most_duplicates == 1
    assert 20 < watched.savings.percent < 100 * (width - 1) / width
    assert watched.tokens_moved > 5 * 16 * watched.num_copies > 0


def test_one_beam_shares_nothing_and_more_share_more():
    arrivals = alpaca_like(10).arrivals
    found = [beam_savings(arrivals, width).percent for width in (1, 2, 4)]
    assert found[0] == 0
    assert found == sorted(found)
    assert found[2] < 75  # all but one of four: the most that can be


def test_beams_that_never_change_places_share_their_prompt_only():
    """Scores that spread so far that the best beam's children always win share nearly all."""
    arrivals = [Arrival(0.0, 64, 200)]
    close, far = (beam_savings(arrivals, 4, spread=s).percent for s in (0.1, 60.0))
    assert close > far > sampling_law(arrivals, 4)


def test_the_same_seed_draws_the_same_beams():
    arrivals = alpaca_like(4).arrivals
    first, again, other = (beam_savings(arrivals, 3, seed=s) for s in (0, 0, 1))
    assert first == again != other


def test_savings_are_of_steps_in_which_all_exist():
    pool = BlockPool(8)
    parent = BlockTable(pool, block_size=4)
    parent.reserve(6)
    parent.commit([1] * 6)
    children = [parent.fork(), parent.fork()]
    savings = Savings(3)
    savings.count([parent, *children])
    assert (savings.without, savings.existing) == (6, 2)
    assert savings.percent == pytest.approx(100 * 4 / 6)
    assert Savings(3).percent == 0


def test_the_claim_has_what_a_figure_needs():
    claim = sharing.measure(Context(quick=True))
    for kind, said in sharing.PAPER.items():
        assert set(claim.series["savings"][kind]) == set(said)
    laws = [row for row in claim.rows if "tables of" in row.what or "real engine, 2 s" in row.what]
    assert len(laws) == 5
    assert all(row.verdict == "holds" for row in laws)
    assert not any(row.wall for row in claim.rows)
