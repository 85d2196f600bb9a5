"""What the lanes of a warp, and the threads of a CTA, tell each other."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.emulator import Emulator
from support.cuda_ptx import each, element, kernel, run

N = 64  # two warps
VALUES = np.random.default_rng(0).integers(0, 1 << 32, N, dtype=np.uint32)


def shuffled(mode: str, lane: int, by: int, width: int) -> tuple[int, bool]:
    """CUDA's words: the lane read, inside a segment of `width` lanes, and whether it exists."""
    segment = lane // width * width
    if mode == "idx":
        return segment + by % width, True
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by}[mode]
    inside = source >= segment if mode == "up" else source < segment + width
    return (source, True) if inside else (lane, False)


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("by", [0, 1, 3, 16])
def test_shuffles(mode: str, width: int, by: int) -> None:
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    text = f"shfl.sync.{mode}.b32 %r0|%p0, %a, {by}, {clamp}, -1;"
    value = each(text + "mov.b32 %d, %r0;", np.uint32, VALUES)
    inside = each(text + "selp.b32 %d, 1, 0, %p0;", np.uint32, VALUES)
    for thread in range(N):
        lane, exists = shuffled(mode, thread % 32, by, width)
        assert value[thread] == VALUES[thread // 32 * 32 + lane]
        assert inside[thread] == exists


def test_a_shuffle_may_read_from_a_lane_of_its_own_choice() -> None:
    by = (np.arange(N, dtype=np.uint32) * 7) % 32
    found = each("shfl.sync.idx.b32 %d, %a, %b, 31, 0xffffffff;", np.uint32, VALUES, by)
    assert (found == VALUES[np.arange(N) // 32 * 32 + by]).all()


def test_lanes_that_give_nothing_are_poison() -> None:
    body = f"""mov.u32 %r0, %laneid; setp.lt.u32 %p0, %r0, 16; mov.u32 %r2, 0;
        @!%p0 bra skip; shfl.sync.down.b32 %r2, %r0, 8, 31, 0xffff;
        skip: {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r2;"""
    out = np.zeros(32, np.uint32)
    run(body, 32, {"out": out})
    assert out[:8].tolist() == list(range(8, 16))
    assert (out[8:16] == 0xFFFFFFFF).all()


def test_votes() -> None:
    a = np.where(np.arange(N) < 32, 1, np.arange(N) % 2).astype(np.uint32)
    vote = "setp.ne.u32 %p0, %a, 0; vote.sync.{} %p1, %p0, -1; selp.b32 %d, 1, 0, %p1;"
    found = {kind: each(vote.format(kind), np.uint32, a) for kind in ("all", "any", "uni")}
    assert (found["all"] == np.repeat([1, 0], 32)).all()
    assert (found["any"] == 1).all()
    assert (found["uni"] == np.repeat([1, 0], 32)).all()
    ballot = each("setp.ne.u32 %p0, %a, 0; vote.sync.ballot.b32 %d, !%p0, -1;", np.uint32, a)
    assert (ballot == np.repeat([0, 0x55555555], 32)).all()


def test_matches() -> None:
    a = np.arange(N, dtype=np.uint32) % 3
    found = each("match.any.sync.b32 %d, %a, -1;", np.uint32, a)
    for thread in range(N):
        warp = a[thread // 32 * 32 :][:32]
        assert found[thread] == sum(1 << n for n in range(32) if warp[n] == a[thread])
    a = np.where(np.arange(N) < 32, 7, np.arange(N)).astype(np.uint64)
    text = "match.all.sync.b64 %r0|%p0, %a, -1; selp.b32 %d, %r0, 5, %p0;"
    assert (each(text, np.uint32, a) == np.repeat(np.uint32([0xFFFFFFFF, 5]), 32)).all()


@pytest.mark.parametrize("name", ["add", "min", "max"])
def test_reductions_of_a_warp(name: str) -> None:
    compute = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]
    for type, dtype in (("u32", np.uint32), ("s32", np.int32)):
        expected = compute.reduce(VALUES.view(dtype).reshape(2, 32), axis=1, dtype=dtype)
        found = each(f"redux.sync.{name}.{type} %d, %a, -1;", dtype, VALUES.view(dtype))
        assert (found == expected.repeat(32)).all()


def test_the_lanes_that_are_here() -> None:
    body = f"""mov.u32 %r0, %laneid; setp.gt.u32 %p0, %r0, 3; mov.u32 %r1, 0;
        @%p0 bra skip; activemask.b32 %r1;
        skip: {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r1;"""
    out = np.zeros(8, np.uint32)
    run(body, 8, {"out": out})
    assert out.tolist() == [15] * 4 + [0] * 4


def test_one_lane_is_elected() -> None:
    text = "elect.sync %r0|%p0, 0xffffffff; selp.b32 %d, 1, 0, %p0;"
    assert each(text, np.uint32, VALUES).tolist() == ([1] + [0] * 31) * 2


def test_a_warp_instruction_waits_for_lanes_that_come_by_another_way() -> None:
    """The odd lanes' detour stands behind the shuffle in the text."""
    body = f"""mov.u32 %r0, %laneid; and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 1; mov.u32 %r2, 7;
        @%p0 bra detour;
        meet: shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r3; ret;
        detour: mov.u32 %r2, 8; bra.uni meet;"""
    out = np.zeros(32, np.uint32)
    run(body, 32, {"out": out})
    assert out.tolist() == [8, 7] * 16


def test_halves_of_a_warp_may_shuffle_by_themselves() -> None:
    body = f"""mov.u32 %r0, %laneid; setp.lt.u32 %p0, %r0, 16;
        selp.b32 %r1, 0xffff, 0xffff0000, %p0;
        shfl.sync.bfly.b32 %r2, %r0, 1, 31, %r1;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r2;"""
    out = np.zeros(32, np.uint32)
    run(body, 32, {"out": out})
    assert (out == np.arange(32) ^ 1).all()


@pytest.mark.parametrize("spelling", ["bar.red", "barrier.cta.red", "barrier.red"])
def test_barriers_that_count(spelling: str) -> None:
    body = f"""mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 70;
        {spelling}.popc.u32 %r1, 0, %p0; {spelling}.and.pred %p1, 0, %p0;
        {spelling}.or.pred %p2, 0, !%p0;
        selp.b32 %r2, 1000, 0, %p1; selp.b32 %r3, 100000, 0, %p2;
        add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r1;"""
    out = np.zeros(96, np.uint32)
    assert run(body, 96, {"out": out}).barriers == 3
    assert (out == 100070).all()


def test_a_part_of_the_cta_may_meet_at_a_barrier_of_its_own() -> None:
    """Warp 0 and warp 1 exchange through shared memory; warps 2 and 3 do not take part."""
    body = f"""mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 64; @%p0 bra done;
        shl.b32 %r1, %r0, 2; mov.u32 %r2, tile; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %r0;
        bar.sync 1, 64; xor.b32 %r3, %r0, 32; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r2;
        ld.shared.u32 %r4, [%r3]; {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r4;
        done: ret;"""
    out = np.zeros(64, np.uint32)
    run(body, 128, {"out": out}, outside=".shared .align 4 .b8 tile[256];")
    assert (out == np.arange(64) ^ 32).all()


def test_a_cta_that_is_no_whole_number_of_warps() -> None:
    body = f"""mov.u32 %r0, %laneid; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; bar.sync 0;
        vote.sync.ballot.b32 %r2, 1, -1; add.u32 %r2, %r2, %r1;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r2;"""
    out = np.zeros(40, np.uint32)
    Emulator().launch(kernel(body, "out"), 1, 40, [out])
    assert (out == np.repeat(np.uint32([0xFFFFFFFF, 0xFF]), [32, 8])).all()
