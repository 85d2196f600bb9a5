"""Atomic operations lose nothing, whoever meets whom."""

from __future__ import annotations

import numpy as np
import pytest

from support.cuda_ptx import element, run

VALUES = np.random.default_rng(0).integers(0, 1000, 128).astype(np.uint32)
LOAD = element("x", 4, "%rd0") + "ld.global.b32 %r0, [%rd0];"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("add.u32", VALUES.sum()),
        ("max.u32", VALUES.max()),
        ("min.s32", 0),
        ("and.b32", 0),
        ("or.b32", np.bitwise_or.reduce(VALUES)),
        ("xor.b32", np.bitwise_xor.reduce(VALUES)),
    ],
)
@pytest.mark.parametrize("name", ["red", "atom"])
def test_all_threads_on_one_word(name: str, operation: str, expected: int) -> None:
    total = np.zeros(1, np.uint32)
    destination = "%r1, " if name == "atom" else ""
    body = f"{LOAD} {name}.global.{operation} {destination}[%total], %r0;"
    counts = run(body, 64, {"x": VALUES, "total": total}, grid=1)
    counts = run(body, 64, {"x": VALUES[64:].copy(), "total": total}, grid=1)
    assert total[0] == expected
    assert counts.atomics["total"].requests == 2
    assert counts.atomics["total"].bytes == 256


def test_every_thread_sees_another_count() -> None:
    out, counter = np.zeros(96, np.uint32), np.zeros(1, np.uint32)
    body = f"""atom.global.add.u32 %r0, [%counter], 1; {element("out", 4, "%rd0", "%r0")}
        mov.u32 %r1, %tid.x; st.global.u32 [%rd0], %r1;"""
    run(body, 96, {"out": out, "counter": counter})
    assert (np.sort(out) == np.arange(96)).all()
    assert counter[0] == 96


def test_floats_in_shared_memory() -> None:
    body = f"""mov.u32 %r1, %tid.x; setp.ne.u32 %p0, %r1, 0; mov.u32 %r2, sum;
        @!%p0 st.shared.f32 [%r2], 0f00000000; bar.sync 0;
        cvt.rn.f32.u32 %f0, %r1; red.shared.add.f32 [%r2], %f0; bar.sync 0;
        ld.shared.f32 %f1, [sum]; {element("out", 4, "%rd0")} st.global.f32 [%rd0], %f1;"""
    out = np.zeros(64, np.float32)
    run(body, 64, {"out": out}, outside=".shared .align 4 .f32 sum;")
    assert (out == 63 * 32).all()


def test_pairs_of_halves() -> None:
    total = np.zeros(2, np.float16)
    body = "mov.b32 %r0, 0x3C004000; red.global.add.noftz.f16x2 [%total], %r0;"
    run(body, 32, {"total": total})
    assert total.tolist() == [64, 32]


def test_wrapping_counters() -> None:
    up, down = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    run("red.global.inc.u32 [%up], 4; red.global.dec.u32 [%down], 4;", 7, {"up": up, "down": down})
    assert up[0] == 7 % 5
    assert down[0] == -7 % 5


def test_compare_and_swap_has_one_winner() -> None:
    lock, out = np.zeros(1, np.uint64), np.zeros(64, np.uint64)
    body = f"""mov.u32 %r0, %tid.x; cvt.u64.u32 %rd1, %r0; add.u64 %rd1, %rd1, 1;
        atom.global.cas.b64 %rd2, [%lock], 0, %rd1;
        {element("out", 8, "%rd0")} st.global.u64 [%rd0], %rd2;"""
    run(body, 64, {"lock": lock, "out": out})
    assert (out == 0).sum() == 1
    assert lock[0] == np.flatnonzero(out == 0)[0] + 1


def test_exchange_passes_a_value_on() -> None:
    cell, out = np.array([999], np.uint32), np.zeros(32, np.uint32)
    body = f"""mov.u32 %r0, %tid.x; atom.exch.b32 %r1, [%cell], %r0;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r1;"""
    run(body, 32, {"cell": cell, "out": out})
    assert sorted([*out.tolist(), int(cell[0])]) == [*range(32), 999]
