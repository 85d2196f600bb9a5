"""Hit rates: the pool is driven as tables drive it, and nobody finds more than the optimum."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from minipaged.claims.claim import Context
from minipaged.claims.hit_rate import Prompts, found_at_best, found_by_engine, measure
from minipaged.claims.workload import Arrival, Workload
from minipaged.core import BlockPool, BlockTable
from minipaged.core.hashing import root_hash

PIECE_LEN = 4


def workload(seed: int, num_requests: int = 60, piece_len: int = PIECE_LEN) -> Workload:
    """Prompts that walk down a tree of pieces, each a little, some to a shared end."""
    random, children, arrivals = Random(seed), {}, []
    for time in range(num_requests):
        pieces, node = [], ()
        for _ in range(1 + int(random.random() * 4)):
            node = (*node, int(random.random() * 2))
            pieces.append(children.setdefault(node, len(children)))
        prompt_len = len(pieces) * piece_len - int(random.random() * piece_len)
        output_len = 1 + int(random.random() * 6)
        arrivals.append(Arrival(float(time), prompt_len, output_len, tuple(pieces)))
    return Workload("tree", "", tuple(arrivals), piece_len)


def tokens_of(arrival: Arrival, unique: int) -> list[int]:
    tokens = [piece for piece in arrival.prefix for _ in range(PIECE_LEN)][: arrival.prompt_len]
    return tokens + [-1 - unique] * arrival.output_len


def found_by_tables(workload: Workload, num_blocks: int) -> int:
    """The same with the engine's own block tables, tokens and hashes."""
    pool, root, num_found = BlockPool(num_blocks), root_hash(), 0
    for unique, arrival in enumerate(workload.arrivals):
        table = BlockTable(pool, PIECE_LEN, root)
        tokens = tokens_of(arrival, unique)
        if -(-len(tokens) // PIECE_LEN) > num_blocks:
            continue
        found = table.match_prefix(tokens[: arrival.prompt_len])
        table.reserve(len(tokens) - found)
        table.commit(tokens, max(found, arrival.prompt_len // PIECE_LEN * PIECE_LEN))
        table.release()
        num_found += found // PIECE_LEN
    return num_found


@pytest.mark.parametrize("seed", range(20))
def test_the_pool_is_driven_as_block_tables_drive_it(seed):
    found = 0
    for num_blocks in (4, 7, 12, 100):
        expected = found_by_tables(workload(seed), num_blocks)
        assert found_by_engine(Prompts(workload(seed)), num_blocks) == expected
        found += expected
    assert found > 50


def test_by_hand():
    """Two blocks: A B, then A C. The pool evicts B, the tail; so A is found, twice."""
    prompts = Prompts(
        Workload(
            "",
            "",
            tuple(Arrival(0.0, 2, 0, prefix) for prefix in ((0, 1), (0, 2), (0, 1))),
            piece_len=1,
        )
    )
    assert found_by_engine(prompts, 2) == 2
    assert found_by_engine(prompts, 1) == 0  # nothing fits
    assert found_at_best(prompts, 1) == 2
    assert prompts.rate(2) == pytest.approx(100 / 3)


def best_by_trying_everything(prompts: Prompts, num_blocks: int) -> int:
    """Every choice of what to keep, after every piece."""
    accesses = [
        (piece, i < prompts.num_usable(arrival))
        for arrival in prompts.workload.arrivals
        for i, piece in enumerate(prompts.full(arrival))
    ]

    @cache
    def best(step: int, kept: frozenset[int]) -> int:
        if step == len(accesses):
            return 0
        piece, usable = accesses[step]
        now, after = usable and piece in kept, kept | {piece}
        choices = [after] if len(after) <= num_blocks else [after - {b} for b in after]
        return now + max(best(step + 1, choice) for choice in choices)

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(30))
def test_the_optimum_is_what_trying_everything_finds(seed):
    prompts = Prompts(workload(seed, num_requests=7, piece_len=1))
    for num_blocks in (1, 2, 3):
        expected = best_by_trying_everything(prompts, num_blocks)
        assert found_at_best(prompts, num_blocks) == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_engine_never_beats_the_optimum_and_reaches_it_in_an_endless_pool(seed):
    prompts, worse = Prompts(workload(seed)), 0
    for num_blocks in (4, 8, 16):
        engine, best = found_by_engine(prompts, num_blocks), found_at_best(prompts, num_blocks)
        assert engine <= best
        worse += engine < best
    assert worse
    endless = prompts.num_endless
    assert found_by_engine(prompts, endless) == found_at_best(prompts, endless) > 0


def test_the_claim_takes_a_trace_of_ones_own_that_names_its_prefixes():
    own = workload(1)
    claim = measure(Context(quick=True, trace=own))
    assert set(claim.series["hit_rate"]) == {"mooncake", "tree"}
    for curve in claim.series["hit_rate"].values():
        assert curve["engine"] == sorted(curve["engine"])
        assert all(a <= b for a, b in zip(curve["engine"], curve["best"]))
        assert curve["engine"][-1] == curve["best"][-1]
    *_, endless = (row for row in claim.rows if row.what.startswith("tree"))
    assert (endless.said, endless.verdict) == ("", "measured")
    nameless = Workload("other", "", own.arrivals)
    assert set(measure(Context(quick=True, trace=nameless)).series["hit_rate"]) == {"mooncake"}
