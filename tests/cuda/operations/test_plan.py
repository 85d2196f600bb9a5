"""Laws of the launch plan: what it covers, how it splits, what it may depend on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipaged_cuda.errors import Unsupported
from minipaged_cuda.plan import (
    H200,
    KERNELS,
    AttentionSizes,
    Card,
    Launch,
    choose_kernel,
    choose_num_splits,
    num_tiles,
    plan_attention,
    why_not,
)
from minipaged_cuda.plan.attention import CTAS_PER_SM, MIN_SPLIT_TOKENS

DECODE = AttentionSizes(
    num_tokens=16,
    num_seqs=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    block_size=16,
    max_blocks=256,
    query_type="bfloat16",
    cache_type="bfloat16",
    one_query=True,
)
PLAIN = replace(DECODE, query_type="float32", cache_type="float32")

counts = st.integers(1, 5000)
cards = st.builds(Card, st.sampled_from([(7, 5), (8, 0), (9, 0), (12, 0)]), st.integers(1, 200))
all_sizes = st.builds(
    lambda group, kv_heads, **rest: AttentionSizes(
        num_heads=group * kv_heads, num_kv_heads=kv_heads, **rest
    ),
    group=st.integers(1, 16),
    kv_heads=st.integers(1, 16),
    num_tokens=st.integers(1, 3000),
    num_seqs=st.integers(1, 300),
    head_dim=st.sampled_from([16, 32, 64, 80, 128, 256]),
    block_size=st.sampled_from([1, 16, 32]),
    max_blocks=st.integers(1, 300),
    query_type=st.sampled_from(["float32", "float16"]),
    cache_type=st.sampled_from(["float32", "float16"]),
    one_query=st.booleans(),
)


# --- splits ------------------------------------------------------------------------------------


@given(num_ctas=counts, max_seq_len=st.integers(0, 200_000), card=cards)
def test_splits_fill_the_card_at_most_once_and_each_has_work(num_ctas, max_seq_len, card):
    splits = choose_num_splits(num_ctas, max_seq_len, card)
    room = CTAS_PER_SM * card.num_sms
    assert splits >= 1
    assert splits == 1 or num_ctas * splits <= room
    assert splits == 1 or splits * MIN_SPLIT_TOKENS <= max_seq_len
    one_more = splits + 1
    assert num_ctas * one_more > room or one_more * MIN_SPLIT_TOKENS > max_seq_len


def test_a_small_batch_of_long_sequences_is_split_and_a_large_one_is_not():
    few, many = (replace(DECODE, num_tokens=n, num_seqs=n) for n in (1, 256))
    few, many = (plan_attention(sizes, H200) for sizes in (few, many))
    assert (few.num_splits, many.num_splits) == (33, 1)
    assert few.merge is not None
    assert many.merge is None


@pytest.mark.parametrize("sizes", [DECODE, PLAIN], ids=["attention", "decode_v3"])
def test_a_given_number_of_splits_is_kept(sizes):
    plan = plan_attention(sizes, H200, num_splits=3)
    constants = dict(plan.attend.constants)
    assert 3 in plan.attend.grid
    assert (plan.num_splits, constants["SPLIT"], constants["OUT"]) == (3, 1, "float32")
    assert dict(plan_attention(sizes, H200, num_splits=1).attend.constants)["SPLIT"] == 0


# --- grids -------------------------------------------------------------------------------------


@given(
    group=st.integers(1, 33),
    query_lens=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    spare=st.integers(0, 40),
)
def test_tiles_cover_every_row_of_every_sequence_once_and_fit_the_grid(group, query_lens, spare):
    """Sequence s, which begins at token t, has its tiles from t * group // 16 + s on."""
    num_tokens, num_seqs = sum(query_lens) + spare, len(query_lens)
    sizes = AttentionSizes(num_tokens, num_seqs, group, 1, 32, 16, 8)
    used, token = [], 0
    for s, query_len in enumerate([*query_lens, spare]):
        first = token * group // 16 + s
        used += range(first, first + -(-query_len * group // 16))
        token += query_len
    assert len(used) == len(set(used))
    assert all(tile < num_tiles(sizes) for tile in used)


@given(sizes=all_sizes, card=cards)
def test_every_grid_covers_all_rows_within_the_limits_of_cuda(sizes, card):
    rows = sizes.num_tokens * sizes.num_heads
    for kernel in KERNELS:
        if why_not(kernel, sizes, card):
            continue
        launch = plan_attention(sizes, card, kernel=kernel).attend
        x, y, z = launch.grid
        assert x >= 1
        assert y <= 65535
        assert z <= 65535
        assert launch.num_threads <= 1024
        if kernel == "decode_v0":
            assert 0 <= x * launch.num_threads - rows < launch.num_threads
        if kernel == "decode_v1":
            assert (x, y) == (sizes.num_tokens, sizes.num_heads)
        if kernel == "decode_v2":
            assert 0 <= x * (launch.num_threads // 32) - rows < launch.num_threads // 32
        if kernel == "decode_v3":
            heads = dict(launch.constants)["HEADS"]
            assert (x, y * heads) == (sizes.num_tokens, sizes.num_heads)
            assert sizes.group % heads == 0


def test_a_grid_that_cuda_cannot_launch_is_refused_with_the_count():
    with pytest.raises(Unsupported, match=r"attention would need 70000 CTAs along grid.z.*65535"):
        Launch.of("attention", {}, (1, 1, 70_000), 128)


# --- which kernel ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kernel"),
    [
        ({}, "attention"),
        ({"query_type": "float16", "cache_type": "float16"}, "attention"),
        ({"cache_type": "float8_e4m3fn"}, "attention"),
        ({"query_type": "float32", "cache_type": "float32"}, "decode_v3"),
        ({"query_type": "float32"}, "decode_v3"),
        ({"head_dim": 80}, "decode_v3"),
        ({"head_dim": 96}, "attention"),
        ({"head_dim": 96, "cache_type": "float8_e4m3fn"}, "decode_v3"),
        ({"block_size": 8}, "decode_v3"),
        ({"block_size": 48}, "attention"),
        ({"is_aligned": False}, "decode_v3"),
    ],
)
def test_tensor_cores_are_used_where_they_can_be(change, kernel):
    assert choose_kernel(replace(DECODE, **change), H200) == kernel


def test_a_card_before_ampere_takes_the_kernel_without_tensor_cores():
    sizes = replace(DECODE, query_type="float16", cache_type="float16")
    assert choose_kernel(sizes, Card((7, 5), 40)) == "decode_v3"


@pytest.mark.parametrize(
    ("change", "card", "words"),
    [
        ({"cache_type": "float8_e4m3fn"}, Card((8, 6), 84), "sm_89 or newer, not sm_86"),
        ({}, Card((7, 5), 40), "query is bfloat16, which takes a card of sm_80 or newer"),
        ({"cache_type": "int8"}, H200, "cache is int8, kernels take float32, float16, bfloat16, f"),
        ({"query_type": "float64"}, H200, "query is float64, kernels take float32, float16, bf"),
        ({"head_dim": 320}, H200, "head_dim is 320, kernels take 1 to 256"),
    ],
)
def test_what_no_kernel_computes_is_refused_in_sizes(change, card, words):
    with pytest.raises(Unsupported, match=words):
        plan_attention(replace(DECODE, **change), card)


@pytest.mark.parametrize(
    ("kernel", "change", "words"),
    [
        ("attention", {"block_size": 24}, "block_size is 24, no multiple of 16"),
        ("attention", {"head_dim": 48}, "head_dim is 48, no multiple of 32"),
        ("attention", {"is_aligned": False}, "does not begin at a multiple of 16 bytes"),
        ("attention", {"cache_type": "float32"}, "tensor cores take one 16-bit type"),
        ("decode_v1", {"flags": frozenset({"CAUSAL", "SINKS"})}, r"no options \(SINKS\)"),
        ("decode_v0", {"flags": frozenset()}, r"no options \(CAUSAL off\)"),
        ("decode_v9", {}, "no such kernel; there are attention, decode_v3"),
    ],
)
def test_a_kernel_asked_for_by_name_says_why_it_cannot(kernel, change, words):
    with pytest.raises(Unsupported, match=words):
        plan_attention(replace(DECODE, **change), H200, kernel=kernel)


@given(sizes=all_sizes, card=cards)
def test_the_chosen_kernel_can(sizes, card):
    assert why_not(choose_kernel(sizes, card), sizes, card) is None
