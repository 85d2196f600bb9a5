"""``LLM(sanitize=True)`` over the real model: the same tokens, poison where nobody may read."""

from __future__ import annotations

import pytest
import torch

from minipaged.cache import KVCache, PagedBatch
from minipaged.core import BlockPool, BlockTable
from minipaged.engine.params import BeamSearchParams, SamplingParams
from minipaged.sanitizer import Owner, Sanitizer, SanitizerError, poison
from support.engine_models import PROMPTS, assert_idle, essence, make_llm

torch.set_num_threads(1)

WISHES = {
    "samples": SamplingParams(n=3, seed=1, max_tokens=12, ignore_eos=True),
    "greedy": SamplingParams(temperature=0, max_tokens=12, ignore_eos=True),
    "beams": BeamSearchParams(beam_width=3, max_tokens=8),
}
KNOBS = {
    "roomy": {},
    "swapping": {"num_blocks": 22, "preemption": "swap"},
    "recomputing": {"num_blocks": 22, "max_num_batched_tokens": 24},
}


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("wish", WISHES)
def test_the_tokens_are_the_same_as_without(wish, knobs):
    prompts = [text[:60] for text in PROMPTS]
    outputs = []
    for sanitize in (False, True):
        llm = make_llm(sanitize=sanitize, **KNOBS[knobs])
        outputs.append(essence(llm.generate(prompts, WISHES[wish])))
        assert_idle(llm)
    assert outputs[0] == outputs[1]
    assert knobs == "roomy" or wish == "greedy" or llm.stats.num_preemptions


def test_free_blocks_and_unwritten_tails_hold_nan():
    llm = make_llm(prefix_caching=False)
    llm.generate([PROMPTS[0]], SamplingParams(max_tokens=3))
    request = llm.add("The servant went", SamplingParams(max_tokens=9, ignore_eos=True))
    llm.step()
    table = request.sequences[0].table
    held = torch.zeros(llm.pool.num_blocks * llm.block_size, dtype=torch.bool)
    held[table.slots(0, table.num_tokens)] = True
    for cache in (llm.cache.key, llm.cache.value):
        flat = cache.flatten(1, 2).isnan()
        assert flat[:, ~held].all()
        assert not flat[:, held].any()


def test_a_layer_that_is_not_written_is_named():
    llm, write = make_llm(), None
    write = llm.cache.write
    llm.cache.write = lambda layer, *rest: None if layer == 1 else write(layer, *rest)
    llm.add("The servant went", request_id="b")
    with pytest.raises(SanitizerError, match=r'step 1, sequence "b": planned .* layers of') as info:
        llm.step()
    assert info.value.kind == "skipped-write"


def test_a_block_that_is_freed_too_early_is_named():
    llm = make_llm()
    request = llm.add(PROMPTS[0], SamplingParams(max_tokens=9), request_id="b")
    llm.step()
    llm.pool.forget_prefixes()
    llm.pool.release(request.sequences[0].table.block_ids[0])
    with pytest.raises(SanitizerError, match=r'step 2, sequence "b": reads position 0 .* freed at'):
        llm.step()


def test_a_write_that_nobody_planned_is_named():
    llm = make_llm()
    llm.add("The servant went", SamplingParams(max_tokens=9), request_id="b")
    write = llm.cache.write
    llm.cache.write = lambda layer, key, value, slots: write(layer, key, value, slots + 1)
    with pytest.raises(SanitizerError, match=r"step 1, .*writes slot .* without a plan"):
        llm.step()


def test_a_write_behind_the_pool_is_an_error_of_the_sanitizer():
    llm = make_llm()
    llm.add("The servant went", request_id="b")
    write = llm.cache.write
    llm.cache.write = lambda layer, key, value, slots: write(layer, key, value, slots + 9999)
    with pytest.raises(
        SanitizerError, match=r"step 1: writes block .* the pool has blocks 0 to 95"
    ):
        llm.step()


def test_what_was_found_is_raised_before_the_kernels_run():
    llm = make_llm()
    table = llm.add(PROMPTS[0], request_id="b").sequences[0].table
    llm.step()
    table.block_ids[:2] = reversed(table.block_ids[:2])
    calls, llm.executor.attention = [], lambda *args, **options: calls.append(args)
    with pytest.raises(
        SanitizerError, match=r'step 2, sequence "b": reads position 0 .* position 4'
    ):
        llm.step()
    assert not calls


def test_a_pool_is_watched_from_its_beginning():
    pool = BlockPool(4)
    pool.allocate()
    with pytest.raises(ValueError, match="from its beginning"):
        Sanitizer((pool, KVCache(1, 4, 2, 1, 1)))


def test_a_cache_is_judged_without_an_engine_too():
    pool, cache = BlockPool(8), KVCache(2, 8, 2, 1, 1)
    sanitizer = Sanitizer((pool, cache))
    parent = BlockTable(pool, block_size=2)
    sequences = {"parent": (parent, [1, 2, 3])}
    step(sanitizer, cache, sequences, 3)
    sequences["child"] = parent.fork(), [1, 2, 3, 4]
    sequences["parent"] = parent, [1, 2, 3, 5]
    step(sanitizer, cache, sequences, 1)
    parent.block_ids[1] = sequences["child"][0].block_ids[1]
    sequences["parent"] = parent, [1, 2, 3, 5, 6]
    sequences["child"] = sequences["child"][0], [1, 2, 3, 4, 6]
    with pytest.raises(SanitizerError, match='step 3, sequence "parent": reads position 3'):
        step(sanitizer, cache, sequences, 1)


def step(sanitizer: Sanitizer, cache: KVCache, sequences: dict, count: int) -> None:
    owners = [Owner(name, *rest) for name, rest in sequences.items()]
    copies = [copy for owner in owners for copy in owner.table.reserve(count)]
    sanitizer.before_copies(owners)
    cache.copy_blocks(copies)
    batch = PagedBatch.build([owner.table for owner in owners])
    sanitizer.before_kernels(batch, owners)
    key = torch.ones(len(batch.slot_mapping), 1, 1)
    for layer in range(2):
        cache.write(layer, key, key, batch.slot_mapping)
    for owner in owners:
        owner.table.commit(owner.token_ids)
    sanitizer.after_step(owners)


@pytest.mark.parametrize(
    ("dtype", "loudest"),
    [
        (torch.float32, torch.nan),
        (torch.bfloat16, torch.nan),
        (torch.float8_e4m3fn, torch.nan),
        (torch.float8_e5m2, torch.nan),
        (torch.int8, -128),
        (torch.uint8, 255),
    ],
)
def test_poison_is_as_loud_as_the_type_allows(dtype, loudest):
    cache = torch.zeros(2, 3, 4, 1, 8).to(dtype)
    poison(cache, [1], [2])
    poison(cache, [2])
    wanted = torch.zeros(2, 3, 4, 1, 8)
    wanted[:, 1, 2] = wanted[:, 2] = loudest
    torch.testing.assert_close(cache.to(torch.float32), wanted, equal_nan=True, rtol=0, atol=0)
