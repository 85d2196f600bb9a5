"""Counts are exact: instructions of warps, bytes of threads, sectors of warp instructions."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.emulator import Emulator, Traffic
from support.cuda_ptx import element, kernel, run


@pytest.mark.parametrize(
    ("stride", "size", "sectors"),
    [(4, 4, 4), (8, 4, 8), (128, 4, 32), (16, 16, 16), (0, 4, 1), (1, 1, 1)],
)
def test_sectors_of_a_warp(stride: int, size: int, sectors: int) -> None:
    x = np.zeros(32 * 128, np.uint8)
    load = {1: "ld.global.u8 %r0", 4: "ld.global.u32 %r0"}.get(size)
    load = load or "ld.global.v4.u32 {%r0, %r1, %r2, %r3}"
    counts = run(f"{element('x', stride, '%rd0')} {load}, [%rd0];", 32, {"x": x})
    assert counts.loads == {"x": Traffic(1, 32 * size, sectors)}


def test_warps_are_counted_one_by_one() -> None:
    """Three warps read one sector each, the same one."""
    x = np.zeros(8, np.uint32)
    counts = run("ld.global.u32 %r0, [%x];", 70, {"x": x}, grid=2)
    assert counts.loads["x"] == Traffic(requests=6, bytes=2 * 70 * 4, sectors=6)
    assert counts.opcodes["ld.global.u32"] == 6


def test_lanes_that_are_switched_off_ask_for_nothing() -> None:
    body = f"""mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 8;
        {element("x", 4, "%rd0")} @%p0 st.global.u32 [%rd0], %r0;"""
    counts = run(body, 64, {"x": np.zeros(64, np.uint32)})
    assert counts.stores["x"] == Traffic(requests=1, bytes=32, sectors=1)
    assert counts.opcodes["st.global.u32"] == 2  # both warps issue it


def test_divergent_warps_issue_both_sides() -> None:
    body = """mov.u32 %r0, %laneid; setp.lt.u32 %p0, %r0, 8; @%p0 bra less;
        add.u32 %r1, %r0, 1; bra.uni end;
        less: sub.u32 %r1, %r0, 1;
        end: mul.lo.u32 %r1, %r1, %r1;"""
    counts = run(body, 64, {})
    assert [counts.opcodes[f"{name}.u32"] for name in ("add", "sub", "mul.lo")] == [2, 2, 2]


def test_nothing_is_carried_into_the_next_launch() -> None:
    body = "ld.global.u32 %r0, [%x]; bar.sync 0; bar.sync 0;"
    entry, x = kernel(body, "x"), np.zeros(32, np.uint32)
    first, second = (Emulator().launch(entry, 1, 32, [x]) for _ in range(2))
    assert first == second
    assert first.barriers == 2


def test_a_table_for_people() -> None:
    body = "ld.global.u32 %r0, [%x]; bar.sync 0; red.global.add.u32 [%x], 1;"
    table = run(body, 1, {"x": np.zeros(4, np.uint32)}).table().splitlines()
    assert table[0].split() == ["buffer", "access", "requests", "bytes", "sectors"]
    assert table[1].split() == ["x", "loads", "1", "4", "1"]
    assert table[2].split() == ["x", "atomics", "1", "4", "1"]
    assert table[3] == "5 warp instructions, 1 barriers"
