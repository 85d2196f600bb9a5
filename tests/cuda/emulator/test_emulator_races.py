"""A missing barrier is found whatever the order in which threads happened to run."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.emulator import Emulator, Race
from support.cuda_ptx import element, kernel, run

TILE = ".shared .align 16 .b8 tile[512];"
OWN = """mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
    xor.b32 %r3, %r0, {}; mad.lo.u32 %r3, %r3, 4, %r1;"""


def exchange(between: str, distance: int = 32, **kwargs) -> None:
    """Each thread writes its word of shared memory and reads one of thread n ^ distance."""
    body = OWN.format(distance) + f"st.shared.u32 [%r2], %r0;\n{between}\nld.shared.u32 %r4, [%r3];"
    run(body, 64, kwargs, outside=TILE)


def test_a_barrier_between_a_write_and_a_read() -> None:
    exchange("bar.sync 0;")
    with pytest.raises(Race) as caught:
        exchange("")
    message = str(caught.value)
    assert "thread 0 and thread 32 access byte 128 of 'shared memory'" in message
    assert "st.shared.u32 [%r2], %r0 (thread 32, earlier)" in message
    assert "ld.shared.u32 %r4, [%r3]" in message
    assert "CTA (0, 0, 0), thread 0" in message


def test_a_warp_barrier_orders_a_warp_and_no_other() -> None:
    exchange("bar.warp.sync -1;", distance=1)
    with pytest.raises(Race):
        exchange("", distance=1)
    with pytest.raises(Race):
        exchange("bar.warp.sync -1;", distance=32)
    only_the_other_warp = """setp.ge.u32 %p0, %r0, 32; @!%p0 bra skip;
        bar.warp.sync -1;
        skip:"""
    with pytest.raises(Race):
        exchange(only_the_other_warp, distance=1)
    with pytest.raises(Race):
        exchange("shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;", distance=1)


def test_a_barrier_between_a_read_and_a_write() -> None:
    """A prefix sum that reads its neighbour and then writes its own."""
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
        st.shared.u32 [%r2], %r0; setp.eq.u32 %p0, %r0, 0; mov.u32 %r5, 0; bar.sync 0;
        ld.shared.u32 %r4, [%r2]; @!%p0 ld.shared.u32 %r5, [%r2+-4];
        {} add.u32 %r4, %r4, %r5; st.shared.u32 [%r2], %r4;"""
    run(body.format("bar.sync 0;"), 64, {}, outside=TILE)
    with pytest.raises(Race):
        run(body.format(""), 64, {}, outside=TILE)


@pytest.mark.parametrize("writer", [0, 31, 63])
def test_a_word_that_all_read_hides_no_reader(writer: int) -> None:
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, tile; setp.eq.u32 %p0, %r0, {writer};
        @%p0 st.shared.u32 [%r1], %r0; bar.sync 0; ld.shared.u32 %r2, [%r1];
        @%p0 st.shared.u32 [%r1], %r2;"""
    with pytest.raises(Race):
        run(body, 64, {}, outside=TILE)


def test_parts_of_a_word_are_told_apart() -> None:
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, {}, %r1;
        st.shared.{} [%r2], %r0;"""
    run(body.format(1, "u8"), 64, {}, outside=TILE)
    run(body.format(2, "u16"), 64, {}, outside=TILE)
    with pytest.raises(Race):
        run(body.format(0, "u8"), 64, {}, outside=TILE)
    wide = """mov.u32 %r1, tile; mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0;
        @%p0 st.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0}; @!%p0 st.shared.u8 [%r1+15], %r0;"""
    with pytest.raises(Race):
        run(wide, 2, {}, outside=TILE)


def test_two_threads_may_not_store_to_one_word() -> None:
    x = np.zeros(4, np.uint32)
    with pytest.raises(Race, match=r"threads? .* uint32 element x\[0\]"):
        run("mov.u32 %r0, %tid.x; st.global.u32 [%x], %r0;", 2, {"x": x})


def test_global_memory_between_threads_of_a_cta() -> None:
    body = f"""{element("x", 4, "%rd0")} mov.u32 %r0, %tid.x; xor.b32 %r1, %r0, 33;
        {element("x", 4, "%rd1", "%r1")}
        st.global.u32 [%rd0], %r0; {{}} ld.global.u32 %r2, [%rd1];"""
    run(body.replace("{}", "bar.sync 0;"), 64, {"x": np.zeros(64, np.uint32)})
    with pytest.raises(Race):
        run(body.replace("{}", ""), 64, {"x": np.zeros(64, np.uint32)})


def test_global_memory_between_ctas() -> None:
    store = f"mov.u32 %r0, %ctaid.x; {element('x', 4, '%rd0', '%r0')} st.global.u32 [%rd0], %r0;"
    run(store, 1, {"x": np.zeros(4, np.uint32)}, grid=4)
    look_back = store + "@%p0 ld.global.u32 %r1, [%rd0+-4];"
    look_back = "mov.u32 %r2, %ctaid.x; setp.ne.u32 %p0, %r2, 0;" + look_back
    with pytest.raises(Race, match="thread 0 of another CTA"):
        run(look_back, 1, {"x": np.zeros(4, np.uint32)}, grid=4)
    one_reads_one_writes = """mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 0;
        @%p0 ld.global.u32 %r1, [%x]; @!%p0 st.global.u32 [%x], %r0;"""
    with pytest.raises(Race, match="another CTA"):
        run(one_reads_one_writes, 1, {"x": np.zeros(4, np.uint32)}, grid=2)
    read_then_write = "ld.global.u32 %r0, [%x]; bar.sync 0; st.global.u32 [%x], %r0;"
    with pytest.raises(Race, match="another CTA"):
        run(read_then_write, 1, {"x": np.zeros(4, np.uint32)}, grid=2)


def test_atomics_do_not_race_with_each_other() -> None:
    x = np.zeros(1, np.uint32)
    run("red.global.add.u32 [%x], 1;", 64, {"x": x}, grid=3)
    assert x[0] == 192
    with pytest.raises(Race):
        run("red.global.add.u32 [%x], 1; ld.global.u32 %r0, [%x];", 64, {"x": x})
    run("red.global.add.u32 [%x], 1; ld.relaxed.gpu.global.u32 %r0, [%x];", 64, {"x": x})


LAST_CTA = f"""mov.u32 %r0, %ctaid.x; {element("x", 4, "%rd0", "%r0")} st.global.u32 [%rd0], %r0;
    {{before}} atom.global.add.u32 %r1, [%done], 1; setp.ne.u32 %p0, %r1, 2; @%p0 bra end;
    {{after}} ld.global.u32 %r2, [%x]; ld.global.u32 %r3, [%x+4]; add.u32 %r2, %r2, %r3;
    st.global.u32 [%total], %r2;
    end: ret;"""


@pytest.mark.parametrize(("before", "after"), [(True, True), (False, True), (True, False)])
def test_the_last_cta_may_read_what_the_others_fenced(before: bool, after: bool) -> None:
    names = ("x", "done", "total")
    arrays = {name: np.zeros(3, np.uint32) for name in names}
    fences = {"before": "membar.gl;" * before, "after": "fence.acq_rel.gpu;" * after}
    body = LAST_CTA.format(**fences)
    if before and after:
        run(body, 1, arrays, grid=3)
        assert arrays["total"][0] == 1
    else:
        with pytest.raises(Race, match="another CTA"):
            run(body, 1, arrays, grid=3)


COPY = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1;
    {element("x", 16, "%rd0")} cp.async.cg.shared.global.L2::128B [%r2], [%rd0], 16;
    cp.async.commit_group; {{}} ld.shared.u32 %r3, [%r2];
    {element("out", 4, "%rd1")} st.global.u32 [%rd1], %r3;"""


def copied(between: str) -> np.ndarray:
    x, out = np.arange(128, dtype=np.uint32), np.zeros(32, np.uint32)
    run(COPY.format(between), 32, {"x": x, "out": out}, outside=TILE)
    return out


def test_copies_arrive_when_they_are_waited_for() -> None:
    assert (copied("cp.async.wait_group 0;") == np.arange(0, 128, 4)).all()
    assert (copied("cp.async.wait_all;") == np.arange(0, 128, 4)).all()
    for too_early in ("", "cp.async.wait_group 1;", "bar.sync 0;"):
        with pytest.raises(Race, match=r"before the cp\.async of line .* has been waited for"):
            copied(too_early)


def test_a_copy_that_arrived_is_its_own_threads_write() -> None:
    """Thread n reads what thread n ^ 1 copied: after the wait there must be a barrier."""
    neighbour = "cp.async.wait_group 0; {} xor.b32 %r2, %r2, 16;"
    assert (copied(neighbour.format("bar.sync 0;")) == (np.arange(32) ^ 1) * 4).all()
    with pytest.raises(Race, match=r"cp\.async"):
        copied(neighbour.format(""))


def test_the_newest_groups_may_stay_under_way() -> None:
    body = """mov.u32 %r1, tile;
        cp.async.ca.shared.global [%r1], [%x], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r1+4], [%x+4], 4; cp.async.commit_group;
        cp.async.wait_group 1; ld.shared.u32 %r2, [%r1+{}]; st.global.u32 [%out], %r2;"""
    arrays = {"x": np.array([7, 8], np.uint32), "out": np.zeros(1, np.uint32)}
    run(body.format(0), 1, arrays, outside=TILE)
    assert arrays["out"][0] == 7
    with pytest.raises(Race):
        run(body.format(4), 1, arrays, outside=TILE)


def test_a_short_copy_is_filled_with_zeros() -> None:
    body = """mov.u32 %r1, tile; cp.async.cg.shared.global [%r1], [%x], 16, 8; cp.async.wait_all;
        ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1];
        st.global.v4.u32 [%out], {%r2, %r3, %r4, %r5};"""
    arrays = {"x": np.array([7, 8, 9, 10], np.uint32), "out": np.ones(4, np.uint32)}
    run(body, 1, arrays, outside=TILE)
    assert arrays["out"].tolist() == [7, 8, 0, 0]


def test_races_need_not_be_looked_for() -> None:
    entry = kernel("mov.u32 %r0, %tid.x; st.global.u32 [%x], %r0;", "x")
    x = np.zeros(1, np.uint32)
    Emulator(check_races=False).launch(entry, 1, 4, [x])
    assert x[0] == 3


def test_launches_are_ordered() -> None:
    entry = kernel("mov.u32 %r0, %ctaid.x; add.u32 %r0, %r0, 5; st.global.u32 [%x], %r0;", "x")
    x, emulator = np.zeros(1, np.uint32), Emulator()
    for _ in range(2):
        emulator.launch(entry, 1, 1, [x])
    assert x[0] == 5
