"""The tensor-core kernel as PTX, as NVVM made it: the same numbers, and every sector it reads."""

from __future__ import annotations

import pytest
import torch

from minipaged_cuda.launch.emulated import EmulatedLauncher
from support.cuda_attention import attend, problem, worst

pytest.importorskip("numba.cuda", reason="needs numba-cuda: pip install 'minipaged[cuda]'")

EVERY_LENGTH = [*((1, n) for n in range(66)), (1, 300)]  # the last: several tiles a warp


def sectors(launcher: EmulatedLauncher, name: str) -> int:
    """That the kernel, and not the merge after it, read of a buffer."""
    return launcher.history[0].loads[name].sectors


def test_every_length_in_one_launch_reads_each_key_once():
    launcher = EmulatedLauncher((9, 0))
    given = problem(EVERY_LENGTH, group=3, num_kv_heads=2)
    got = attend(launcher, given, one_query=True)
    assert worst(got, given) <= 1
    row_bytes = given["key_cache"].shape[-1] * given["key_cache"].itemsize
    fewest = sum(n for _, n in EVERY_LENGTH) * 2 * row_bytes // 32
    assert sectors(launcher, "key_cache") == sectors(launcher, "value_cache") == fewest


def test_every_option_and_many_rows_on_a_newer_card():
    launcher = EmulatedLauncher((10, 0))
    options = {"window": 20, "softcap": 2.0, "alibi": True, "sinks": True, "extra_rows": 3}
    lengths = [(5, 44), (1, 70), (20, 13), (0, 9), (3, 2), (17, 17)]
    given = problem(lengths, group=5, num_kv_heads=2, head_dim=96, dtype="float16", **options)
    assert worst(attend(launcher, given, num_splits=2), given) <= 1


def test_float8_and_a_window_read_what_is_seen():
    launcher = EmulatedLauncher((9, 0))
    lengths = [(1, n) for n in (1, 15, 16, 17, 33, 64, 300)]
    given = problem(lengths, group=8, cache=torch.float8_e4m3fn, window=21, kv_scales="tensor")
    assert worst(attend(launcher, given, one_query=True), given) <= 1
    fewest = sum(min(n, 21) for _, n in lengths) * 64 // 32
    assert sectors(launcher, "key_cache") == sectors(launcher, "value_cache") == fewest
