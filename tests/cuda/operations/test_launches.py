"""What the operations launch, and with which arguments; nothing runs, so it is exact and fast."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from minipaged_cuda import copy_blocks, merge_states, paged_attention, swap_blocks, write_kv
from minipaged_cuda.plan import Card
from support.cuda_operations import Recorder, batch


def attend(*tensors, launcher=None, **options):
    launcher = launcher or Recorder()
    paged_attention(*tensors, scale=0.1, launcher=launcher, **options)
    return launcher


# --- nothing waits for the card ----------------------------------------------------------------


def test_no_operation_reads_a_value():
    """A meta tensor has no values: whoever asked for one would be told so."""
    launcher = Recorder()
    tensors = [x.to("meta") for x in batch((1, 40), (2, 9), dtype=torch.float16)]
    query, key, value, *_ = tensors
    vector = torch.empty(4, device="meta")
    options = {"window": 3, "softcap": 2.0, "alibi_slopes": vector, "sinks": vector}
    attend(*tensors, launcher=launcher, **options, k_scale=0.5, v_scale=vector[:2])
    attend(*tensors, launcher=launcher, num_splits=2, causal=False)
    rows, slots = key[0], torch.empty(16, dtype=torch.int64, device="meta")
    write_kv(rows, rows, key, value, slots, launcher=launcher)
    write_kv(rows, rows, key, value, slots, k_scale=0.5, launcher=launcher)
    pairs = torch.empty(3, 2, dtype=torch.int64, device="meta")
    copy_blocks(key, value, pairs, launcher=launcher)
    swap_blocks(key, value, pairs, launcher=launcher)
    lse = torch.empty(query.shape[:2], device="meta")
    merge_states(query, lse, query, lse, launcher=launcher)
    names = [specialisation.kernel.__name__ for specialisation, _, _ in launcher.calls]
    attending, writing, copying = (
        ["attention"] * 2 + ["merge"],
        ["write_kv"] * 2,
        ["copy_blocks"] * 2,
    )
    assert names == [*attending, *writing, *copying, "merge_states"]


def test_other_lengths_and_tables_are_the_same_launch():
    """So a captured graph may be replayed with them."""
    first = batch((1, 40), (1, 9), (1, 33), seed=1)
    lens = torch.tensor([0, 15, 47], dtype=torch.int32)
    again = *first[:3], first[3].flip(0), lens, first[5]
    one, two = (attend(*x, max_query_len=1, num_splits=2) for x in (first, again))
    assert one.calls == two.calls


# --- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "dtype", "query_unit", "cache_unit"),
    [
        ("decode_v3", torch.float32, 4, 4),
        ("decode_v3", torch.bfloat16, 2, 4),  # K and V in words of two numbers
        ("decode_v1", torch.bfloat16, 2, 2),
        ("attention", torch.bfloat16, 4, 4),
    ],
)
def test_strides_count_what_the_pointer_points_to(kernel, dtype, query_unit, cache_unit):
    tensors = batch((1, 40), (2, 9), dtype=dtype)
    (arguments,) = attend(*tensors, kernel=kernel, num_splits=1).arguments
    for name, tensor, unit in zip(
        ("query", "key", "value"), tensors, (query_unit, *[cache_unit] * 2)
    ):
        axes = ("token", "head") if name == "query" else ("block", "token", "head")
        found = [arguments[f"{name}_{axis}_stride"] * unit for axis in axes]
        assert found == [stride * tensor.element_size() for stride in tensor.stride()[:-1]]


def test_a_cache_that_is_not_aligned_is_read_number_by_number():
    query, key, value, *rest = batch((1, 40), head_dim=32, dtype=torch.bfloat16)
    wider = torch.cat([key, key[..., :1]], -1)
    for cache, wide in ((key, 1), (wider[..., :32], 0)):
        launcher = attend(query, cache, value, *rest, kernel="decode_v3", num_splits=1)
        assert launcher.calls[0][0].numbers["WIDE"] == wide


def test_a_scale_for_the_keys_alone_comes_with_ones_for_the_values():
    (arguments,) = attend(*batch((1, 9)), k_scale=0.5).arguments
    assert arguments["k_scale"].tolist() == [0.5, 0.5]
    assert arguments["v_scale"].tolist() == [1.0, 1.0]


def test_a_window_beyond_32_bits_is_one_beyond_every_sequence():
    (arguments,) = attend(*batch((1, 9)), window=2**40).arguments
    assert arguments["window"] == 2**30


def test_the_table_and_the_lengths_may_be_views():
    *tensors, tables, lens, starts = batch((1, 40), (2, 9))
    wide = torch.stack([tables, tables], -1)
    (arguments,) = attend(
        *tensors, wide[..., 0], lens[:, None].repeat(1, 2)[:, 0], starts
    ).arguments
    assert torch.equal(arguments["block_tables"], tables)
    assert arguments["table_stride"] == tables.shape[1]
    assert arguments["seq_lens"].is_contiguous()


def test_splits_go_through_partial_results_in_float32():
    tensors = batch((1, 400), dtype=torch.bfloat16)
    attending, merging = attend(*tensors, sinks=torch.zeros(4)).arguments
    assert attending["out"] is merging["partial_out"]
    assert attending["out"].shape == (1, 4, 6, 32)
    assert (attending["out"].dtype, merging["out"].dtype) == (torch.float32, torch.bfloat16)


def test_nothing_is_launched_for_nothing():
    launcher = Recorder()
    tensors = batch((0, 5))
    out, lse = paged_attention(*tensors, scale=1.0, return_lse=True, launcher=launcher)
    assert (out.shape, lse.shape) == ((0, 4, 32), (0, 4))
    without_strides = tensors[0].as_strided((0, 4, 32), (0, 0, 0))
    attend(without_strides, *tensors[1:], launcher=launcher)
    key = tensors[1]
    write_kv(key[0, :0], key[0, :0], key, key, torch.empty(0, dtype=torch.int64), launcher=launcher)
    copy_blocks(key, key, [], launcher=launcher)
    merge_states(key[:0], key[:0, ..., 0], key[:0], key[:0, ..., 0], launcher=launcher)
    assert launcher.calls == []


# --- copies ------------------------------------------------------------------------------------


def copied(*caches, pairs, **options):
    launcher = Recorder()
    copy_blocks(*caches, pairs, launcher=launcher, **options)
    return launcher


CACHE = torch.zeros(3, 6, 4, 2, 8)  # [num_layers, num_blocks, block_size, num_kv_heads, head_dim]


@pytest.mark.parametrize(
    ("pairs", "launches"),
    [
        ([(0, 1), (2, 3)], 1),
        ([(0, 1), (0, 2)], 1),
        ([(0, 1), (1, 2)], 2),
        ([(0, 1), (1, 0)], 2),
        ([(3, 3), (3, 1)], 1),
        ([(-1, -1), (3, 1)], 1),
        ([(3, 3)], 0),
    ],
)
def test_only_a_chain_goes_by_way_of_a_second_place(pairs, launches):
    assert len(copied(CACHE, CACHE.clone(), pairs=pairs).calls) == launches


def test_all_layers_of_keys_and_values_are_one_launch_of_16_byte_words():
    launcher = copied(CACHE, CACHE.clone(), pairs=[(0, 1), (2, 3)])
    ((specialisation, grid, num_threads),) = launcher.calls
    assert specialisation.numbers == {
        "TOKENS": 1,
        "HEADS": 1,
        "ROW": 16,
        "WIDE": 1,
        "VALUES": 1,
    }
    assert (grid, num_threads) == ((1, 2, 3), 32)


def test_values_that_lie_otherwise_are_a_launch_of_their_own():
    other = torch.zeros(3, 6, 2, 4, 8).transpose(2, 3)
    assert len(copied(CACHE, other, pairs=[(0, 1)]).calls) == 1  # blocks of one piece, all alike
    padded = torch.zeros(3, 6, 4, 3, 8)[..., :2, :]
    first, second = (c[0].numbers for c in copied(CACHE, padded, pairs=[(0, 1)]).calls)
    assert (first["ROW"], second["ROW"]) == (16, 2)
    assert (second["TOKENS"], second["HEADS"], second["VALUES"]) == (4, 2, 0)


def test_more_pairs_than_a_grid_has_room_for_are_several_launches():
    many = torch.zeros(140_000, 1, 1, 1)
    pairs = torch.arange(140_000).reshape(2, -1).T
    assert [grid[1] for _, grid, _ in copied(many, many.clone(), pairs=pairs).calls] == [
        65535,
        4465,
    ]


# --- imports -----------------------------------------------------------------------------------


def test_importing_the_package_loads_neither_torch_nor_numba():
    code = (
        "import sys, minipaged_cuda; print({'torch', 'numba', 'greenlet'} & set(sys.modules));"
        "print(minipaged_cuda.paged_attention.__name__, 'write_kv' in dir(minipaged_cuda))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", "paged_attention True"]


def test_a_name_that_the_package_does_not_have_is_an_attribute_error():
    import minipaged_cuda

    with pytest.raises(AttributeError, match="no attribute 'attend'"):
        minipaged_cuda.attend  # noqa: B018


def test_no_launcher_and_no_gpu_says_what_to_do():
    from minipaged_cuda.errors import DeviceError

    with pytest.raises(DeviceError, match=r"the tensors are on cpu: .*SimulatedLauncher"):
        paged_attention(*batch((1, 3)), scale=1.0)


def test_an_old_card_gets_the_kernels_that_it_can_run():
    launcher = attend(*batch((1, 9), dtype=torch.float16), launcher=Recorder(Card((7, 5), 40)))
    assert launcher.calls[0][0].kernel.__name__ == "decode_v3"
