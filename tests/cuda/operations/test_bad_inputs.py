"""Every refusal is one sentence with what was given, what would be right, and no launch."""

from __future__ import annotations

import pytest
import torch

from minipaged.core import InvalidBatch
from minipaged_cuda import copy_blocks, merge_states, paged_attention, swap_blocks, write_kv
from minipaged_cuda.errors import Unsupported
from minipaged_cuda.plan import Card
from support.cuda_operations import Recorder, batch

QUERY, KEY, VALUE, TABLES, LENS, STARTS = BATCH = batch((1, 20), (2, 9))


def refused(operation, *arguments, error=InvalidBatch, card=None, **options) -> str:
    launcher = Recorder(card) if card else Recorder()
    with pytest.raises(error) as raised:
        operation(*arguments, launcher=launcher, **options)
    assert launcher.calls == []
    return str(raised.value)


# --- attention ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ((QUERY[0], KEY, VALUE), "query is (4, 32) on cpu, not 3-dimensional"),
        ((QUERY[..., :16], KEY, VALUE), "query has head_dim 16, key_cache 32"),
        ((QUERY[:, :3], KEY, VALUE), "3 query heads cannot share 2 kv heads evenly"),
        ((QUERY, KEY[1:], VALUE), "begin with different sizes"),
        ((QUERY.int(), KEY, VALUE), "query is torch.int32, not a floating point type"),
        (
            (QUERY, KEY, VALUE.half()),
            "key_cache is torch.float32 on cpu, value_cache torch.float16",
        ),
        ((QUERY.mT.contiguous().mT, KEY, VALUE), "query has strides (128, 1, 4): the numbers of a"),
        ((QUERY, KEY, VALUE.mT.contiguous().mT), "value_cache has strides"),
    ],
)
def test_tensors_that_contradict_each_other(tensors, words):
    assert words in refused(paged_attention, *tensors, *BATCH[3:], scale=1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 0}, "window=0 hides every key"),
        ({"softcap": 0.0}, "softcap=0.0 is not positive"),
        ({"sinks": torch.zeros(3)}, "sinks is (3,) on cpu, not (4,)"),
        ({"k_scale": torch.ones(4)}, "k_scale is (4,) on cpu, not (2,)"),
        ({"max_query_len": 1, "rows": 1}, "a row of query for each of 2 sequences, there are 1"),
        ({"num_splits": 0}, "num_splits is 0"),
    ],
)
def test_options_that_cannot_be(options, words):
    query = QUERY[: options.pop("rows", 3)]
    assert words in refused(paged_attention, query, *BATCH[1:], scale=1.0, **options)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"query": QUERY.numpy()}, "of type ndarray; it must be a torch.Tensor"),
        ({"block_tables": [[0], [1]]}, "block_tables is [[0], [1]], of type list; it must be a t"),
        ({"alibi_slopes": [1.0] * 4}, "alibi_slopes is [1.0, 1.0, 1.0, 1.0], of type list"),
        ({"k_scale": "1"}, "k_scale is '1', of type str; it must be a torch.Tensor, a number or"),
        ({"num_splits": 2.5}, "num_splits is 2.5, of type float; it must be a whole number or N"),
        ({"window": (3, 0)}, "window is (3, 0), of type tuple; it must be a whole number or None"),
        ({"scale": "x"}, "scale is 'x', of type str; it must be a number"),
        ({"scale": None}, "scale is None, of type NoneType; it must be a number"),
    ],
)
def test_arguments_of_another_type(arguments, words):
    names = ("query", "key_cache", "value_cache", "block_tables", "seq_lens", "query_start_loc")
    assert words in refused(paged_attention, **{**dict(zip(names, BATCH)), "scale": 1, **arguments})


def ints(*numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize(
    ("tables", "lens", "starts", "options", "words"),
    [
        (TABLES, ints(20, -3), STARTS, {}, "seq_lens asks for -3"),
        (TABLES, ints(20, 999), STARTS, {}, "seq_lens asks for 999"),
        (TABLES.clamp(min=99), LENS, STARTS, {}, "in blocks [99, 99], but the cache has blocks 0"),
        (
            TABLES,
            LENS,
            ints(0, 2, 1),
            {},
            "query_start_loc [0, 2, 1] must rise from 0 to at most 3",
        ),
        (TABLES, LENS, ints(0, 1, 30), {}, "query_start_loc [0, 1, 30] must rise from 0"),
        (TABLES, LENS, STARTS, {"max_query_len": 1}, "query_start_loc is [0, 1, 3], not 0 to 2"),
    ],
)
def test_values_that_contradict_each_other_where_they_can_be_read(
    tables, lens, starts, options, words
):
    batch = QUERY, KEY, VALUE, tables, lens, starts
    assert words in refused(paged_attention, *batch, scale=1.0, **options)


@pytest.mark.parametrize("launcher", ["sim", Recorder, lambda *arguments: None])
def test_what_is_no_launcher(launcher):
    with pytest.raises(InvalidBatch, match=r"launcher is .*an instance, such as SimulatedLauncher"):
        paged_attention(*BATCH, scale=1.0, launcher=launcher)


@pytest.mark.parametrize(
    ("tensors", "options", "words"),
    [
        ((QUERY.double(), KEY, VALUE), {}, "query is float64, kernels take float32, float16"),
        ((QUERY, KEY.char(), VALUE.char()), {}, "cache is int8, kernels take float32, float16"),
        (
            (QUERY, KEY, VALUE[..., :16]),
            {},
            "keys and values must have one head_dim, not 32 and 16",
        ),
        (
            (QUERY, KEY, VALUE),
            {"kernel": "attention"},
            "tensor cores take one 16-bit type for both",
        ),
        (
            (QUERY, KEY, VALUE),
            {"kernel": "decode_v1", "window": 3},
            "(WINDOW); decode_v3 and atten",
        ),
        (
            (QUERY, KEY, VALUE),
            {"kernel": "decode_v0", "num_splits": 2},
            "decode_v3 and attention do",
        ),
        ((QUERY, KEY, VALUE), {"kernel": "v1"}, "there is no such kernel; there are attention,"),
    ],
)
def test_what_no_kernel_computes(tensors, options, words):
    """A judge takes it for declined, as it is a `NotImplementedError` too."""
    options = {"scale": 1.0, "error": Unsupported, **options}
    assert words in refused(paged_attention, *tensors, *BATCH[3:], **options)
    assert issubclass(Unsupported, NotImplementedError)


def test_what_this_card_does_not_have():
    half = [x.bfloat16() for x in BATCH[:3]]
    options = {"scale": 1.0, "error": Unsupported, "card": Card((7, 5), 40)}
    words = "query is bfloat16, which takes a card of sm_80 or newer, not sm_75"
    assert words in refused(paged_attention, *half, *BATCH[3:], **options)


# --- writing -----------------------------------------------------------------------------------

ROWS, SLOTS = torch.zeros(3, 2, 32), torch.tensor([4, -1, 9])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (ROWS[:2], ROWS, KEY, VALUE, SLOTS),
            "key is torch.float32 (2, 2, 32) on cpu, not torch.fl",
        ),
        ((ROWS, ROWS.half(), KEY, VALUE, SLOTS), "value is torch.float16 (3, 2, 32)"),
        ((ROWS, ROWS[..., :16], KEY, VALUE, SLOTS), "value is torch.float32 (3, 2, 16)"),
        ((ROWS, ROWS, KEY, VALUE, SLOTS.int()), "slot_mapping is torch.int32 (3,) on cpu, not tor"),
        ((ROWS, ROWS, KEY, VALUE[1:], SLOTS), "not [num_blocks, block_size, num_kv_heads, dim]"),
        ((ROWS, ROWS, KEY, VALUE.half(), SLOTS), "they must agree"),
    ],
)
def test_rows_that_do_not_fit_the_cache(arguments, words):
    assert words in refused(write_kv, *arguments)


def test_a_conversion_that_no_kernel_makes():
    caches = KEY.to(torch.int8), VALUE.to(torch.int8)
    words = "cache is int8; write_kv converts between float32, float16, bfloat16, float8_e4m3fn"
    assert words in refused(write_kv, ROWS, ROWS, *caches, SLOTS, error=Unsupported)
    caches = KEY.to(torch.float8_e4m3fn), VALUE.to(torch.float8_e4m3fn)
    options = {"error": Unsupported, "card": Card((8, 0), 108)}
    assert "sm_89 or newer" in refused(write_kv, ROWS, ROWS, *caches, SLOTS, **options)


# --- copying -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(0, 9)], "destination 9 is not one of 5 blocks, 0 to 4"),
        ([(-2, 1)], "source -2 is not one of 5 blocks"),
        ([(0, 1), (2, 1)], "block 1 is the destination of 2 pairs, not of one"),
        ([(0, 1, 2)], "pairs are torch.int64 (1, 3), not torch.int64 (num_pairs, 2)"),
        (torch.tensor([[0.0, 1.0]]), "pairs are torch.float32 (1, 2), not torch.int64"),
    ],
)
def test_pairs_that_cannot_be(pairs, words):
    assert words in refused(copy_blocks, KEY, VALUE, pairs)
    assert words in refused(swap_blocks, KEY, VALUE, pairs)


@pytest.mark.parametrize(
    ("caches", "words"),
    [
        ((KEY, VALUE.half()), "caches may differ in their number of blocks only"),
        ((KEY, VALUE[:, :8]), "caches may differ in their number of blocks only"),
        ((KEY[0], VALUE[0]), "a cache is (16, 2, 32), not [num_blocks, block_size"),
    ],
)
def test_caches_that_do_not_match(caches, words):
    assert words in refused(swap_blocks, *caches, [(0, 1)])


# --- merging -----------------------------------------------------------------------------------

LSE = torch.zeros(3, 4)


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (
            (QUERY, LSE[:2], QUERY, LSE),
            "lse_a is torch.float32 (2, 4) on cpu, not torch.float32 (3,",
        ),
        (
            (QUERY, LSE, QUERY.half(), LSE),
            "out_b is torch.float16 (3, 4, 32) on cpu, not torch.float",
        ),
        ((QUERY, LSE, QUERY, LSE.double()), "lse_b is torch.float64"),
    ],
)
def test_states_that_do_not_match(states, words):
    assert words in refused(merge_states, *states)


def test_states_that_no_kernel_merges():
    out = QUERY.double()
    words = "out is float64; merge_states takes float32, float16, bfloat16"
    assert words in refused(merge_states, out, LSE, out, LSE, error=Unsupported)
