"""The judges of cache parts: what is right passes, what is wrong dies and is told in few words."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch

from minipaged.attention import merge_states, paged_attention
from minipaged.attention.cpu import cpu_paged_attention, cpu_write_kv
from minipaged.cache import KVCache, write_kv
from minipaged.oracle.museum.parts import PARTS, judge
from minipaged.oracle.parts import (
    CopyContract,
    MergeContract,
    QuantizerContract,
    ReplayContract,
    WriterContract,
    check_copy,
    check_merge,
    check_quantizer,
    check_replay,
    check_writer,
)

FEW: dict[str, Any] = {"max_examples": 25}


# ---- what is right passes: a false alarm is a bug of ours


def numpy_writer(key, value, key_cache, value_cache, slot_mapping):
    """Writes through NumPy's view of the memory, where NumPy has the type."""
    bits = {2: torch.int16, 4: torch.int32}[key_cache.element_size()]
    slots = slot_mapping.numpy()
    keep, size = slots >= 0, key_cache.shape[1]
    for rows, cache in ((key, key_cache), (value, value_cache)):
        rows = rows.to(cache.dtype).view(bits).numpy()
        cache.view(bits).numpy()[slots[keep] // size, slots[keep] % size] = rows[keep]


def scaled_writer(key, value, key_cache, value_cache, slot_mapping, *, k_scale, v_scale):
    keep, size = slot_mapping >= 0, key_cache.shape[1]
    place = slot_mapping[keep] // size, slot_mapping[keep] % size
    for rows, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        numbers = rows[keep].float() / torch.as_tensor(scale).reshape(-1, 1)
        if cache.dtype == torch.int8:
            numbers = numbers.round().clamp(-127, 127)
        else:
            largest = torch.finfo(cache.dtype).max
            numbers = numbers.clamp(-largest, largest)
        cache.view(torch.uint8)[place] = numbers.to(cache.dtype).view(torch.uint8)


def copier(cache, pairs):
    ids = pairs.long()
    cache[ids[:, 1]] = cache[ids[:, 0]]


def copier_of_our_cache(key_cache, value_cache, pairs):
    cache = KVCache(1, len(key_cache), 1, 1, 1)
    cache.key, cache.value = key_cache[None], value_cache[None]
    cache.copy_blocks(pairs)


def fp8_by_torch(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    scale = torch.where(scale == 0, 1.0, scale)
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def int8_with_zero(x):
    low, high = x.float().amin(-1, keepdim=True), x.float().amax(-1, keepdim=True)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, 1.0, scale)
    return ((x.float() - low) / scale).round().clamp(0, 255).to(torch.uint8), scale, low


def int4_per_head(x):
    scale = x.float().abs().amax((0, 2), keepdim=True) / 7
    scale = torch.where(scale == 0, 1.0, scale)
    return (x.float() / scale).round().clamp(-7, 7).to(torch.int8), scale


def planner(attention, live=False):
    held: list = []

    def plan(*metadata):
        held[:] = metadata if live else [x.clone() for x in metadata]

    def run(query, key_cache, value_cache):
        scale = query.shape[-1] ** -0.5
        return attention(query, key_cache, value_cache, *held, scale=scale, return_lse=True)

    return plan, run


@pytest.mark.parametrize("writer", [write_kv, cpu_write_kv, numpy_writer])
def test_a_right_writer_passes(writer):
    report = check_writer(writer, **FEW)
    assert report.passed, report
    assert {"stores each token", "other slots stay", "address space"} <= set(report.judged)


@pytest.mark.parametrize("scale", [0.3, torch.tensor([0.1, 2.0])])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_right_quantising_writer_passes(dtype, scale):
    contract = WriterContract(cache_dtypes=(dtype,))
    report = check_writer(scaled_writer, k_scale=scale, v_scale=0.02, contract=contract, **FEW)
    assert report.passed, report
    assert {"stores the nearest", "saturates"} <= set(report.judged)


def test_a_right_copier_passes():
    report = check_copy(copier, **FEW)
    assert report.passed, report
    assert "all sources are read first" in report.judged


def test_our_cache_copies_right():
    contract = CopyContract(caches=2, pairs_as="list", any_rank=False)
    report = check_copy(copier_of_our_cache, contract=contract, **FEW)
    assert report.passed, report


def test_our_merge_passes():
    report = check_merge(merge_states, **FEW)
    assert report.passed, report
    assert {"union: out", "both empty: lse", "identity: out"} <= set(report.judged)


def merge_to_base_two(out_a, lse_a, out_b, lse_b):
    out, lse = merge_states(out_a, lse_a * math.log(2), out_b, lse_b * math.log(2))
    return out, lse / math.log(2)


def merge_in_place(out_a, lse_a, out_b, lse_b):
    out, lse = merge_states(out_a, lse_a, out_b, lse_b)
    out_a.copy_(out)
    lse_a.copy_(lse)


def merge_head_by_token(out_a, lse_a, out_b, lse_b):
    out, lse = merge_states(out_a, lse_a.T, out_b, lse_b.T)
    return out, lse.T


def merge_with_plus_infinity(out_a, lse_a, out_b, lse_b):
    lse_a, lse_b = (torch.where(x == math.inf, -math.inf, x) for x in (lse_a, lse_b))
    return merge_states(out_a, lse_a, out_b, lse_b)


@pytest.mark.parametrize(
    ("merge", "contract"),
    [
        (merge_to_base_two, MergeContract(lse_base="2")),
        (merge_in_place, MergeContract(in_place="a")),
        (merge_head_by_token, MergeContract(lse_layout="head, token")),
        (merge_with_plus_infinity, MergeContract(infinite_lse="empty")),
    ],
)
def test_a_contract_admits_what_it_says_and_only_that(merge, contract):
    assert check_merge(merge, contract=contract, **FEW).passed
    if merge is not merge_with_plus_infinity:
        assert check_merge(merge, **FEW).failures


@pytest.mark.parametrize(
    ("quantize", "contract"),
    [
        (fp8_by_torch, QuantizerContract(format="float8_e4m3fn")),
        (int8_with_zero, QuantizerContract(symmetric=False)),
        (int4_per_head, QuantizerContract(format="int4", granularity="head")),
    ],
)
def test_a_right_quantizer_passes(quantize, contract):
    def dequantize(codes, scale, zero=0.0):
        return codes.float() * scale + zero

    report = check_quantizer(quantize, dequantize, contract=contract, **FEW)
    assert report.passed, report
    assert {"half a step", "monotone", "never NaN", "zeros stay zeros"} <= set(report.judged)


@pytest.mark.parametrize("attention", [paged_attention, cpu_paged_attention])
@pytest.mark.parametrize("mode", ["plan, run", "capture"])
def test_right_replays_pass(attention, mode):
    halves = planner(attention, live=mode == "capture")
    report = check_replay(*halves, contract=ReplayContract(mode=mode), max_examples=15)
    assert report.passed, report


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_right_replays_of_short_numbers_pass(dtype):
    contract = ReplayContract(dtype=dtype, padding="not given", queries="decode")
    assert check_replay(*planner(paged_attention), contract=contract, max_examples=10).passed


# ---- what is wrong dies


@pytest.mark.parametrize("exhibit", PARTS, ids=lambda exhibit: exhibit.name)
def test_every_exhibit_dies(exhibit):
    report = judge(exhibit, max_examples=10)
    assert report.failures
    assert report.failures[0].check != "answers", "it dies of an exception, not of its fault"
    assert report.failures[0].calls <= 400


class UpTo:
    """A right part up to some size, and wrong beyond: limits of grids, tiles and buffers."""

    def __init__(self, most: int):
        self.most = most

    def write_heads(self, key, value, key_cache, value_cache, slots):
        few = slice(self.most)
        write_kv(key[:, few], value[:, few], key_cache[:, :, few], value_cache[:, :, few], slots)

    def write_dims(self, key, value, key_cache, value_cache, slots):
        few = slice(self.most)
        write_kv(key[..., few], value[..., few], key_cache[..., few], value_cache[..., few], slots)

    def copy_pairs(self, cache, pairs):
        for some in pairs.split(self.most):
            copier(cache, some)

    def copy_numbers(self, cache, pairs):
        kept = cache[pairs[:, 1].long()].flatten(1)[:, self.most :].clone()
        copier(cache, pairs)
        blocks = cache[pairs[:, 1].long()]
        blocks.flatten(1)[:, self.most :] = kept
        cache[pairs[:, 1].long()] = blocks

    def merge_dims(self, *states):
        out, lse = merge_states(*states)
        out[..., self.most :] = 0
        return out, lse


@pytest.mark.parametrize(
    ("check", "subject"),
    [
        (check_writer, UpTo(64).write_heads),
        (check_writer, UpTo(128).write_heads),
        (check_writer, UpTo(512).write_dims),
        (check_writer, UpTo(1024).write_dims),
        (check_copy, UpTo(1024).copy_pairs),
        (check_copy, UpTo(4096).copy_pairs),
        (check_copy, UpTo(65_535).copy_numbers),
        (check_merge, UpTo(512).merge_dims),
        (check_merge, UpTo(1024).merge_dims),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_part_that_is_right_up_to_some_size_dies(check, subject):
    assert {failure.check for failure in check(subject, max_examples=0).failures} - {"answers"}


def int8_scales(x, numbers):
    largest = numbers.float().abs().amax(-1, keepdim=True) / 127
    scale = torch.where(largest == 0, 1.0, largest)
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def int8_from_first_dims(x):
    return int8_scales(x, x[..., :256])


def int8_from_last_dims(x):
    return int8_scales(x, x[..., -256:])


def int8_of_first_tokens(x):
    scale = int8_scales(x, x)[1][torch.arange(len(x)) % 4096] if len(x) else x[..., :1].float()
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


@pytest.mark.parametrize(
    "quantize", [int8_from_first_dims, int8_from_last_dims, int8_of_first_tokens]
)
def test_a_quantizer_that_is_right_up_to_some_size_dies(quantize):
    report = check_quantizer(quantize, lambda codes, scale: codes.float() * scale, max_examples=0)
    assert {failure.check for failure in report.failures} - {"answers", "shape and type"}


def test_the_museum_has_labels():
    assert len({exhibit.name for exhibit in PARTS}) == len(PARTS) >= 30
    assert {exhibit.kind for exhibit in PARTS} == {"writer", "copy", "merge", "quantizer", "replay"}
    assert all(exhibit.what.endswith(".") for exhibit in PARTS)


def test_random_cases_find_what_no_directed_case_has_and_shrink_it():
    def fails_on_seven_slots_of_some_blocks(key, value, key_cache, value_cache, slots):
        if key_cache.shape[1] in (7, 9, 11, 13) and len(slots) >= 7:
            slots = slots.flip(0)
        write_kv(key, value, key_cache, value_cache, slots)

    contract = WriterContract(cache_dtypes=(torch.float32,), key_dtypes=(), address_space=False)
    report = check_writer(
        fails_on_seven_slots_of_some_blocks, contract=contract, max_examples=300, deadline_s=60.0
    )
    case = report.failures[0].case
    assert (len(case.slots), case.sizes[1:], case.layout) == (7, (7, 1, 1, 1), "packed")


def test_the_same_seed_gives_the_same_verdict():
    one, two = (check_writer(write_kv, seed=3, max_examples=10) for _ in range(2))
    assert (one.calls, one.cases, one.judged) == (two.calls, two.cases, two.judged)


# ---- how a failure is told


def test_a_writer_s_failure_shows_its_slots():
    report = judge(next(e for e in PARTS if e.name == "padding_overwrites_slot_zero"))
    assert "slots [-1, 5, -1, 0, -1, 3]" in report.failures[0].message
    assert report.failures[0].picture.splitlines() == [
        "  slot  key             value           should be",
        "     0  token 0         token 0         token 3",
    ]


def test_a_copy_s_failure_shows_its_blocks():
    report = judge(next(e for e in PARTS if e.name == "one_pair_after_the_other"))
    assert "pairs [0→1, 1→2]" in report.failures[0].message
    assert report.failures[0].picture.splitlines() == [
        " block  holds                   should hold",
        "     2  what block 0 held       what block 1 held",
    ]


def test_a_frozen_length_is_named():
    report = judge(next(e for e in PARTS if e.name == "lengths_of_the_first_plan"))
    assert "right for the lengths of step 1" in report.failures[0].message


# ---- subjects that do not answer


def hangs(*_):
    while True:
        time.sleep(0.01)


def raises(*_):
    raise RuntimeError("no kernel image is available")


@pytest.mark.parametrize(
    "check",
    [
        check_writer,
        check_copy,
        check_merge,
        lambda f, **options: check_quantizer(f, f, **options),
        lambda f, **options: check_replay(f, f, **options),
    ],
)
def test_a_subject_that_hangs_or_raises_fails_in_one_sentence(check):
    begin = time.monotonic()
    (failure,) = check(hangs, call_s=0.05).failures
    assert "still running after 0.05 s" in failure.message
    assert time.monotonic() - begin < 5
    first, *_ = check(raises).failures
    assert "raised RuntimeError: no kernel image is available" in first.message


@pytest.mark.parametrize("result", [None, (1,), (torch.zeros(1), None), torch.zeros(2)])
def test_a_result_of_the_wrong_kind_is_a_failure(result):
    for report in (
        check_merge(lambda *_: result),
        check_quantizer(lambda *_: result, lambda *_: result),
        check_replay(lambda *_: result, lambda *_: result),
    ):
        assert report.failures
        assert report.failures[0].level == 0


def test_late_means_no_more_cases():
    report = check_writer(write_kv, deadline_s=0.0)
    assert not report.passed  # nothing was judged
    assert "for lack of time" in report.not_judged[0]


def test_what_a_contract_leaves_out_is_said():
    contract = MergeContract()  # an lse of +inf is not given by default
    assert (
        "infinite_lse: left out by the contract"
        in check_merge(merge_states, contract=contract, max_examples=0).not_judged
    )


def test_no_examples_are_allowed():
    assert check_copy(copier, max_examples=0).passed


def test_numpy_knows_the_same_half_to_even():
    """The judge's number formats and torch agree, so neither is trusted alone."""
    from minipaged.oracle.truth.formats import FORMATS

    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 100
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        by_torch = numbers.to(getattr(torch, name)).double().numpy()
        assert np.array_equal(by_torch, FORMATS[name].round(numbers.double().numpy()))
