"""The rungs of the ladder are attention: in the simulator under three orders, and as PTX.

Whatever no query may see is NaN, and reading it is an error besides.
"""

from __future__ import annotations

import pytest
import torch

from support.attention_problems import Spec
from support.cuda_kernels import arguments, attend, check, make_launcher

RUNGS = ["decode_v0", "decode_v1", "decode_v2", "decode_v3"]
RAGGED = ((2, 5), (0, 4), (2, 1), (1, 0))  # many rows, no rows, more rows than keys, no keys
EVERY_LENGTH = tuple((1, n) for n in range(66))
EVERY_OPTION = {"window": 3, "softcap": 2.0, "alibi": True, "sinks": True, "kv_scales": "tensor"}
FLOAT8 = torch.float8_e4m3fn


def problem(lengths: tuple[tuple[int, int], ...], dim: int, block_size: int, **options) -> Spec:
    sizes = {"head_dim": dim, "value_head_dim": dim, "block_size": block_size}
    return Spec(lengths=lengths, **sizes, **options)


def run(where: str, rung: str, spec: Spec, cache: torch.dtype | None = None, **how) -> None:
    """Run a rung on a problem, and compare."""
    given = arguments(spec.build(), cache)
    check(attend(make_launcher(where), rung, given, **how), given, f"{rung} {spec}")


# --- every rung --------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    ("schedule", "layout", "group", "block_size", "dim"),
    [("forward", "NHD", 1, 1, 5), ("reverse", "HND", 3, 3, 8), ("random", "padded", 4, 16, 33)],
)
def test_a_ragged_batch_in_the_simulator(rung, schedule, layout, group, block_size, dim):
    group = 1 if dim == 33 and rung == "decode_v1" else group  # a thread for every dimension
    spec = problem(RAGGED, dim, block_size, layout=layout, group=group, extra_rows=1)
    run(schedule, rung, spec, heads=group)


@pytest.mark.parametrize(
    ("rung", "dim", "block_size", "dtype", "cache", "num_lengths"),
    [
        ("decode_v0", 32, 1, "float32", FLOAT8, 12),
        ("decode_v1", 96, 3, "float32", FLOAT8, 12),
        ("decode_v2", 80, 3, "bfloat16", None, 34),
        ("decode_v3", 64, 16, "float32", None, 34),
    ],
)
def test_every_length_as_ptx_and_how_often_each_key_is_read(
    rung, dim, block_size, dtype, cache, num_lengths
):
    lengths = EVERY_LENGTH[:num_lengths]
    given = arguments(problem(lengths, dim, block_size, group=2, dtype=dtype).build(), cache)
    launcher = make_launcher("sm_90")
    check(attend(launcher, rung, given, heads=2, wide=rung == "decode_v3"), given, rung)
    row_bytes = dim * given["key_cache"].itemsize  # a multiple of 32, which a card moves at once
    least = sum(n for _, n in lengths) * row_bytes // 32
    # A thread of rung 0 asks for 1 byte at a time, and each time a whole sector is moved. Its
    # neighbour has the group's other head, and asks for the same; rung 3 loads it once for both.
    times = {"decode_v0": 32, "decode_v3": 1}.get(rung, 2)
    for name in ("key_cache", "value_cache"):
        assert launcher.last.loads[name].sectors == times * least


def test_an_older_card():
    spec = problem(((1, 37), (1, 4), (1, 0)), 64, 16, group=2, layout="HND")
    run("sm_75", "decode_v3", spec, heads=2, wide=True)


FLOAT8_SIZES = [("decode_v0", 32, 1), ("decode_v1", 96, 3), ("decode_v2", 16, 2)]
FLOAT8_SIZES += [("decode_v3", 16, 2)]


@pytest.mark.parametrize(("rung", "dim", "block_size"), FLOAT8_SIZES)
def test_a_ragged_batch_as_ptx(rung, dim, block_size):
    spec = problem(RAGGED, dim, block_size, layout="padded", num_kv_heads=2, group=2, extra_rows=2)
    run("sm_90", rung, spec, FLOAT8, heads=2)


@pytest.mark.parametrize(("rung", "dim", "block_size"), FLOAT8_SIZES)
def test_offsets_beyond_2_to_the_31_elements(rung, dim, block_size):
    two_blocks = problem(((1, block_size + 1),), dim, block_size, group=2)
    given = arguments(two_blocks.build(), FLOAT8)
    memory = torch.empty(2**31 + 4096, dtype=FLOAT8)  # of which a few pages are ever touched
    for name, start in (("key_cache", 0), ("value_cache", 2048)):
        near = given[name][given["block_tables"][0, :2].long()]
        given[name] = memory[start:].as_strided(near.shape, (2**31, *near.stride()[1:]))
        given[name].copy_(near)
    given["block_tables"] = torch.tensor([[0, 1]], dtype=torch.int32)
    launcher = make_launcher("sm_90")
    launcher.strict = launcher.check_races = False  # both would take memory for each element
    check(attend(launcher, rung, given, heads=2), given, rung)


# --- the last rung -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "causal", "dim", "cache"),
    [
        ("random", False, 20, None),
        pytest.param("sm_90", True, 48, FLOAT8, marks=pytest.mark.slow),
    ],
)
def test_every_option_at_once(where, causal, dim, cache):
    spec = problem(RAGGED, dim, 3, causal=causal, group=2, extra_rows=1, **EVERY_OPTION)
    wide = cache is not None
    run(where, "decode_v3", spec, cache, heads=1 if wide else 2, wide=wide)


@pytest.mark.parametrize(
    "option",
    [{"window": 2}, {"softcap": 0.5}, {"alibi": True}, {"sinks": True}, {"kv_scales": "tensor"}],
    ids=lambda option: next(iter(option)),
)
def test_each_option_alone(option):
    run("reverse", "decode_v3", problem(((2, 5), (1, 0)), 6, 2, num_kv_heads=2, **option))


SPLIT_LENGTHS = ((1, 0), (1, 17), (2, 50))  # fewer tiles than splits, too


def test_splits_that_are_merged():
    spec = problem(SPLIT_LENGTHS, 8, 16, sinks=True, window=40, extra_rows=1)
    run("forward", "decode_v3", spec, num_splits=3)


@pytest.mark.parametrize("num_splits", [2, 5])
def test_splits_and_options_as_ptx(num_splits):
    lengths = (*SPLIT_LENGTHS, (1, 1), (2, 33), (1, 16))
    options = EVERY_OPTION | {"window": 40, "alibi": False}  # whose large scores need a wider check
    spec = problem(lengths, 32, 16, dtype="bfloat16", extra_rows=1, **options)
    run("sm_90", "decode_v3", spec, num_splits=num_splits, wide=True)


@pytest.mark.parametrize(
    ("where", "dtype", "cache", "dim"),
    [
        ("forward", "bfloat16", None, 24),
        ("reverse", "float32", None, 12),
        ("random", "float16", FLOAT8, 48),
    ],
)
def test_loads_of_16_bytes(where, dtype, cache, dim):
    spec = problem(((1, 19), (1, 4)), dim, 16, dtype=dtype, layout="HND", kv_scales="tensor")
    run(where, "decode_v3", spec, cache, wide=True)


def test_one_query_per_sequence_needs_no_search():
    spec = problem(((1, 0), (1, 20)), 8, 4, sinks=True, extra_rows=1)
    run("forward", "decode_v3", spec, one_query=True)
    run("forward", "decode_v3", spec, one_query=True, num_splits=2)
