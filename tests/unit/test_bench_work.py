"""What is asked of every engine and block manager is fixed by a seed, and costs what is said."""

from __future__ import annotations

import pytest
import torch

from minipaged.bench.costs import Costs
from minipaged.bench.engine import agreement
from minipaged.bench.limits import Limits, joined, limits_of, measure_limits
from minipaged.bench.managers import same_hits
from minipaged.bench.measures import fewest_blocks
from minipaged.bench.peers.minipaged_blocks import Manager
from minipaged.bench.random_model import SMOLLM2_135M, weight_bytes
from minipaged.bench.stats import Figure
from minipaged.bench.trace import Trace
from minipaged.bench.work import Work

BLOCK = 16


def test_work_is_the_same_every_time_and_other_for_another_vocabulary():
    assert Work(1000, 1024) == Work(1000, 1024)
    assert Work(1000, 1024).single != Work(2000, 1024).single


def test_the_sizes_of_the_work():
    work = Work(49152, 1024)
    assert (len(work.single[0]), work.single[1], len(work.prefix)) == (128, 128, 512)
    assert [len(s) for s in work.suffixes] == [32] * 16
    assert (len(work.parallel[0]), *work.parallel[1:]) == (256, 8, 128)
    assert len(work.mixed) == 64
    lengths = [(len(prompt), count) for prompt, count in work.mixed]
    assert all(16 <= a <= 256 and 16 <= b <= 256 for a, b in lengths)
    total = work.num_mixed_inputs + work.num_mixed_outputs
    assert total == sum(a + b for a, b in lengths)
    assert work.small_pool == total // 3


@pytest.mark.parametrize(("max_len", "size"), [(256, 1.0), (160, 1.0), (1024, 0.1)])
def test_work_shrinks_to_what_the_model_holds(max_len, size):
    work = Work(2048, max_len, size)
    longest = max(len(prompt) + count for prompt, count in [*work.mixed, work.single])
    (parallel, _, more), (beam, _, most) = work.parallel, work.beam
    shared = len(work.prefix) + len(work.suffixes[0]) + 1
    assert max(longest, shared, len(parallel) + more, len(beam) + most) <= max_len
    assert work.small_pool >= longest
    tokens = [token for prompt, _ in work.mixed for token in prompt]
    assert (min(tokens) > 2048 // 50, max(tokens) < 2048 * 4 // 5) == (True, True)


def test_rounds_share_a_prefix_and_no_ending():
    """Two prompts, of one round or two, have the prefix in common and at most a token by chance."""
    work = Work(49152, 1024)
    endings = [suffix for i in range(8) for suffix in work.in_round(i).suffixes]
    assert work.in_round(3).prefix == work.prefix
    assert work.in_round(0) == work
    assert len({tuple(ending[:2]) for ending in endings}) == len(endings) == 8 * 16


def test_a_step_reads_the_weights_once_or_multiplies_with_them():
    """SmolLM2 in float32: 538 MB at 10 GB/s, and 46,080 bytes of K and V per token."""
    costs = Costs(SMOLLM2_135M, Limits(read=10e9, copy=0, matrix=1e15))
    assert costs.kv_bytes == 46_080
    weights = weight_bytes(SMOLLM2_135M, torch.float32)
    assert costs.step_seconds(1, 100) == pytest.approx((weights + 4_608_000) / 10e9)
    assert costs.step_seconds(8, 100) == pytest.approx((weights + 8 * 4_608_000) / 10e9)
    slow = Costs(SMOLLM2_135M, Limits(read=1e15, copy=0, matrix=1e9))
    assert slow.step_seconds(1, 0) == pytest.approx(2 * 134_515_008 / 1e9, rel=1e-3)


def test_only_rows_that_need_logits_pay_for_the_head():
    costs = Costs(SMOLLM2_135M, Limits(1, 0, 1))
    head = 49152 * 576
    assert costs.flops_seconds(3, 3, 0) - costs.flops_seconds(3, 1, 0) == 2 * 2 * head
    assert costs.requests_seconds([(1, 1)]) == costs.flops_seconds(1, 1, 0.5)


def test_samples_share_the_full_blocks_of_their_prompt():
    """8 samples, 256 in, 128 out: 383 tokens each, 24 blocks, of which 16 are shared."""
    assert fewest_blocks(256, 8, 128, 16) == (16 + 8 * 8, 8 * 24)
    assert fewest_blocks(250, 2, 1, 16) == (15 + 2, 2 * 16)  # the partial block is not shared


def test_tokens_agree_up_to_the_first_that_does_not():
    assert agreement([[1, 2, 3], [4, 5]], [[1, 9, 3], [4, 5]]) == (
        "the first 3 of 5 tokens are minipaged's"
    )


def test_limits_are_the_best_of_all_threads():
    before, after = measure_limits(1, 2**16, 16), measure_limits(1, 2**16, 16)
    figures = joined(before, after)
    best = max(f.values for f in figures if f.test == "read, all threads")
    assert limits_of(figures).read == max(best) * 1e9
    assert {len(f.values) for f in figures} == {2}
    assert [f.test for f in before[:3]] == ["read, 1 thread", "copy, 1 thread", "matrix, 1 thread"]


# ---- the trace of the block managers


def naive_hits(operations):
    """Prompt tokens found, by remembering every full prefix that was ever written."""
    known, tokens, hits = set(), {}, 0
    for what, number, *rest in operations:
        if what == "free":
            continue
        if what == "add":
            tokens[number] = list(rest[0])
            usable, found = (len(rest[0]) - 1) // BLOCK, 0
            while found < usable and tuple(rest[0][: (found + 1) * BLOCK]) in known:
                found += 1
            hits += found * BLOCK
            ends = range(BLOCK, len(rest[0]) + 1, BLOCK)
        else:
            tokens[number].append(rest[0])
            ends = [n for n in [len(tokens[number])] if n % BLOCK == 0]
        known.update(tuple(tokens[number][:end]) for end in ends)
    return hits


def test_a_trace_is_the_same_every_time():
    assert Trace(10).operations == Trace(10).operations
    assert Trace(10).operations != Trace(10, seed=1).operations


def test_whoever_comes_also_leaves_and_no_more_run_than_may():
    running, most = set(), 0
    for what, number, *_ in Trace(12, num_running=4).operations:
        assert (number in running) == (what != "add")
        running.symmetric_difference_update({number} if what != "append" else ())
        most = max(most, len(running))
    assert (running, most) == (set(), 4)


def test_ours_finds_what_a_naive_model_finds_every_time():
    trace = Trace(30, num_running=8)
    options = {"num_blocks": trace.num_blocks(BLOCK), "block_size": BLOCK}
    manager = Manager(options)
    first, second = (manager.replay(trace.operations) for _ in range(2))
    assert first == second == {"hits": naive_hits(trace.operations)}
    assert first["hits"] > 0


def test_who_finds_another_number_of_tokens_did_other_work():
    figures = [Figure("t", name, "ops/s", (1.0, 1.0)) for name in ("minipaged", "a", "b")]
    reasons = [f.other_work for f in same_hits(figures, [8, 8, 7])]
    assert reasons == ["", "", "7 tokens found, ours found 8"]
