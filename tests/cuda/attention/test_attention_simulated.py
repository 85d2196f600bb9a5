"""The tensor-core kernel's text, lane by lane: every shape, every option, races and stray reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from minipaged_cuda.launch.simulated import SimulatedLauncher
from support.cuda_attention import attend, problem, worst

FLOAT8 = torch.float8_e4m3fn
MIXED = [(3, 5), (1, 40), (0, 7), (9, 20), (1, 0), (3, 2)]  # (query_len, seq_len)
DECODE = [(1, 1), (1, 37), (1, 16), (1, 0)]

SHAPES: dict[str, dict[str, Any]] = {
    "decode, a head each": {"lengths": DECODE, "group": 1, "one_query": True},
    "decode, 8 heads and splits": {
        "lengths": DECODE,
        "group": 8,
        "num_splits": 2,
        "one_query": True,
    },
    "decode, two tiles of heads": {"lengths": [(1, 19)], "group": 20, "one_query": True},
    "mixed": {"lengths": MIXED, "group": 3, "extra_rows": 2},
    "mixed, splits": {
        "lengths": MIXED[:4],
        "group": 4,
        "head_dim": 32,
        "extra_rows": 2,
        "num_splits": 2,
    },
    "a prompt": {"lengths": [(40, 40)], "group": 4, "head_dim": 32, "dtype": "float16"},
    "many tiles a warp": {"lengths": [(2, 210)], "group": 2, "head_dim": 32},
    "half a load": {"lengths": [(3, 5), (2, 19)], "group": 3, "head_dim": 96, "dtype": "float16"},
    "keys and values side by side": {"lengths": [(2, 41)], "group": 8, "head_dim": 128},
    "values in the keys' place": {
        "lengths": [(2, 41)],
        "group": 3,
        "head_dim": 256,
        "num_splits": 2,
    },
    "the same and half a load": {"lengths": [(2, 41)], "group": 3, "head_dim": 160},
    "float8, half a load": {
        "lengths": [(3, 18)],
        "group": 6,
        "cache": FLOAT8,
        "kv_scales": "tensor",
    },
    "float8": {
        "lengths": [(2, 33)],
        "group": 16,
        "head_dim": 128,
        "cache": FLOAT8,
        "dtype": "float16",
    },
    "float8, both, splits": {
        "lengths": [(1, 41)],
        "head_dim": 192,
        "cache": FLOAT8,
        "num_splits": 2,
    },
    "larger blocks": {
        "lengths": [(2, 90)],
        "group": 2,
        "head_dim": 32,
        "block_size": 48,
        "num_splits": 3,
    },
}
ARGUMENTS = ("num_splits", "one_query")
SCHEDULES = ("forward", "reverse", "random")


def run(schedule: Any = "forward", *, lengths: list[tuple[int, int]], **changes: Any):
    """The problem, and what the kernel made of it."""
    chosen = {name: changes.pop(name) for name in ARGUMENTS if name in changes}
    given = problem(lengths, **changes)
    return given, attend(SimulatedLauncher(schedule=schedule), given, **chosen)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_computed_to_rounding(name):
    given, got = run(SCHEDULES[list(SHAPES).index(name) % 3], **SHAPES[name])
    assert worst(got, given) <= 1


OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"window": 20},
    "short window": {"window": 1},
    "everything is seen": {"causal": False},
    "the future and a window": {"causal": False, "window": 9},
    "a window far behind": {"lengths": [(2, 410)], "window": 150, "num_splits": 2, "group": 1},
    "softcap": {"softcap": 2.0},
    "ALiBi": {"alibi": True},
    "sinks": {"sinks": True, "extra_rows": 1},
    "sinks, splits": {"sinks": True, "extra_rows": 1, "num_splits": 2, "group": 2},
    "scales": {"kv_scales": "tensor", "num_kv_heads": 2, "group": 2},
    "all": {
        "window": 20,
        "softcap": 2.0,
        "alibi": True,
        "sinks": True,
        "kv_scales": "float",
        "num_splits": 2,
        "group": 2,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_computed_to_rounding(name):
    usual: dict[str, Any] = {"lengths": [(3, 44), (3, 2)], "group": 5, "head_dim": 32}
    given, got = run(**(usual | OPTIONS[name]))
    assert worst(got, given) <= 1


@pytest.mark.parametrize("layout", ["NHD", "HND", "interleaved"])
def test_a_cache_may_be_stored_in_any_way(layout):
    given, got = run(lengths=[(3, 35)], group=2, num_kv_heads=3, layout=layout, head_dim=32)
    assert worst(got, given) <= 1


def test_no_schedule_changes_a_bit():
    results = [run(schedule, **SHAPES["larger blocks"])[1] for schedule in SCHEDULES]
    for out, lse in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(lse, results[0][1])


@pytest.mark.parametrize("window", [None, 21])
def test_neither_a_chunk_nor_a_neighbour_changes_a_bit(window):
    """A row's bits follow from its own query, keys and position, and the number of splits."""
    given, (out, lse) = run(
        lengths=[(2, 7), (9, 90)], group=3, head_dim=32, window=window, num_splits=2
    )
    for row, one_query in ((4, False), (10, True)):
        alone = given | {"query": given["query"][row : row + 1]}
        alone |= {"block_tables": given["block_tables"][1:]}
        alone |= {"seq_lens": torch.tensor([90 - 10 + row], dtype=torch.int32)}
        alone |= {"query_start_loc": torch.tensor([0, 1], dtype=torch.int32)}
        one = attend(SimulatedLauncher(), alone, num_splits=2, one_query=one_query)
        assert torch.equal(one[0][0], out[row])
        assert torch.equal(one[1][0], lse[row])
