"""Every mistake ends the launch with a message that names the line, the threads and the bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minipaged_cuda.emulator import (
    BarrierDivergence,
    Emulator,
    InvalidProgram,
    Misaligned,
    NotReadable,
    OutOfBounds,
    ReadOnly,
    StepLimit,
    Trap,
    Uninitialised,
    UnknownInstruction,
    WrongMask,
    parse,
)
from support.cuda_ptx import element, kernel, run

X = np.arange(32, dtype=np.float32)
LOAD = element("x", 4, "%rd0") + "\nld.global.f32 %f0, [%rd0];"
TILE = ".shared .align 16 .b8 tile[64];"


def fails(error: type[Exception], *words: str, body: str, num_threads: int = 32, **arrays) -> None:
    """The body ends that way, and its message has all the words."""
    outside = arrays.pop("outside", "")
    with pytest.raises(error) as caught:
        run(body, num_threads, {"x": X.copy(), **arrays}, outside=outside)
    for word in (*words, "PTX line ", "CTA (0, 0, 0)"):
        assert word in str(caught.value), str(caught.value)


def test_off_by_one_is_out_of_bounds() -> None:
    words = ("a load of 4 bytes at byte 128 of 'x'", "threads 32, 33", "bytes 0 to 159")
    fails(OutOfBounds, *words, "ld.global.f32 %f0, [%rd0]", body=LOAD, num_threads=40)


def test_in_front_of_a_buffer() -> None:
    body = "st.global.f32 [%x+-4], 0f00000000;"
    fails(OutOfBounds, "a store of 4 bytes at byte -4 of 'x' (4 before its first", body=body)


def test_far_away_still_names_the_buffer() -> None:
    """A 32-bit product that wrapped is two gigabytes away."""
    body = "mov.u64 %rd1, -2147483648; add.s64 %rd0, %x, %rd1; ld.global.f32 %f0, [%rd0];"
    fails(OutOfBounds, "byte -2147483648 of 'x'", body=body)


def test_no_buffer_at_all() -> None:
    body = "mov.u64 %rd0, 0; ld.global.f32 %f0, [%rd0+16];"
    fails(OutOfBounds, "at address 0x10, where no buffer is", body=body)


def test_beyond_shared_and_local_memory() -> None:
    body = "mov.u32 %r0, tile; st.shared.u32 [%r0+64], %r0;"
    fails(OutOfBounds, "byte 64 of 'shared memory' (64 is how many", body=body, outside=TILE)
    body = """{ .local .align 8 .b8 depot[16]; .reg .b64 %q; mov.u64 %q, depot;
        ld.local.u32 %r0, [%q+16]; }"""
    fails(OutOfBounds, "byte 16 of 'local memory'", body=body)


def test_misaligned() -> None:
    body = "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x+8];"
    words = ("a load of 16 bytes at byte 8 of 'x'", "must be a multiple of 16")
    fails(Misaligned, *words, "float32 element x[2]", body=body)


def test_read_only() -> None:
    entry = kernel("st.global.f32 [%x], 0f00000000;", "x")
    with pytest.raises(ReadOnly, match=r"byte 0 of 'x', float32 element x\[0\], which is read-o"):
        Emulator().launch(entry, 1, 1, [X.copy()], names=["x"], read_only=["x"])
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(ReadOnly):
        Emulator().launch(entry, 1, 1, [frozen], names=["x"])


def test_elements_that_must_not_be_read() -> None:
    """A mask over a strided view; the elements between are nobody's business."""
    storage = torch.arange(32, dtype=torch.float32)
    view = storage.view(4, 8)[:, ::2]
    emulator = Emulator()
    emulator.readable(view, np.array([[True], [True], [False], [True]]))
    load = "add.u32 %r0, %r0, {}; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %x, %rd1;"
    load = "mov.u32 %r0, %tid.x;" + load + "ld.global.f32 %f0, [%rd0];"
    emulator.launch(kernel(load.format(0), "x"), 1, 16, [view])
    emulator.launch(kernel(load.format(17), "x"), 1, 1, [view])
    with pytest.raises(
        NotReadable, match=r"byte 64 of 'x', float32 element x\[2, 0\].*not be read"
    ):
        emulator.launch(kernel(load.format(15), "x"), 1, 2, [view], names=["x"])


def test_elements_that_nobody_has_written() -> None:
    store = kernel(element("x", 4, "%rd0") + "st.global.f32 [%rd0], 0f3F800000;", "x")
    load = kernel(LOAD, "x")
    emulator, x = Emulator(), X.copy()
    emulator.unwritten(x)
    emulator.launch(store, 1, 8, [x])
    emulator.launch(load, 1, 8, [x])
    with pytest.raises(Uninitialised, match=r"element x\[8\], which nobody has written") as caught:
        emulator.launch(load, 1, 9, [x], names=["x"])
    assert "CTA (0, 0, 0), thread 8" in str(caught.value)


def test_shared_memory_that_nobody_has_written() -> None:
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 4, %r1;
        setp.eq.u32 %p0, %r0, 3; @!%p0 st.shared.u32 [%r1], %r0; ld.shared.u32 %r2, [%r1];"""
    words = ("byte 12 of 'shared memory', which nobody has written", "thread 3")
    fails(Uninitialised, *words, body=body, num_threads=8, outside=TILE)


def test_each_cta_has_shared_memory_of_its_own() -> None:
    body = """mov.u32 %r1, tile; mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 0;
        @%p0 st.shared.u32 [%r1], 5; ld.shared.u32 %r2, [%r1];"""
    with pytest.raises(Uninitialised, match=r"CTA \(1, 0, 0\)"):
        run(body, 1, {"x": X.copy()}, grid=2, outside=TILE)


def test_a_barrier_that_not_all_reach() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 20; @%p0 bra wait; ret;
        wait: bar.sync 0;"""
    fails(BarrierDivergence, "20 of 32 threads wait at a barrier that 12 others", body=body)


def test_different_barriers() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 20;
        @%p0 bra here;
        bar.sync 0;
        ret;
        here: bar.sync 0;"""
    fails(BarrierDivergence, "32 of 32 threads wait at different barriers, lines", body=body)


@pytest.mark.parametrize(
    "instruction",
    [
        "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1",
        "vote.sync.ballot.b32 %r1, 1, 0xffffffff",
        "match.any.sync.b32 %r1, %r0, -1",
        "bar.warp.sync -1",
        "redux.sync.add.u32 %r1, %r0, -1",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2}, {%r3}, "
        "{%f0, %f1, %f2, %f3}",
    ],
)
def test_lanes_that_do_not_come(instruction: str) -> None:
    body = f"""mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 40; @!%p0 bra done;
        {instruction};
        done: ret;"""
    words = (instruction.split()[0], "40, 41", "are in the mask and do not come")
    fails(WrongMask, *words, body=body, num_threads=64)


def test_lanes_that_a_guard_switches_off_do_not_come() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 31;
        {} shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;"""
    fails(WrongMask, "31 are in the mask and do not come", body=body.format("@%p0"))
    run(body.format("@!%p0").replace("31;", "0;"), 32, {})


def test_a_lane_outside_its_own_mask() -> None:
    body = "mov.u32 %r0, %tid.x; shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;"
    fails(WrongMask, "16, 17", "are not in their own mask", body=body)


def test_a_shuffle_in_a_branch_waits_for_lanes_that_are_at_a_barrier() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 8; @!%p0 bra meet;
        shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;
        meet: bar.sync 0;"""
    fails(WrongMask, "do not come", body=body)


def test_what_the_emulator_does_not_know() -> None:
    body = "wgmma.fence.sync.aligned;"
    with pytest.raises(UnknownInstruction, match=r"not know 'wgmma' of 'wgmma\.fence") as why:
        run(body, 1, {"x": X.copy()})
    assert "PTX line" in str(why.value)
    assert "it knows" in str(why.value)
    with pytest.raises(UnknownInstruction, match="m16n8k16 and m16n8k8"):
        run("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r0}, {%f0};", 32, {})
    with pytest.raises(UnknownInstruction, match=r"does not know '\.almost' of 'setp\.almost"):
        run("setp.almost.f32 %p0, %f0, %f1;", 1, {})
    with pytest.raises(UnknownInstruction, match=r"'\.xorsign' of 'min\.xorsign\.abs\.f32'"):
        run("min.xorsign.abs.f32 %f0, %f0, %f1;", 1, {})
    with pytest.raises(UnknownInstruction, match="is none of add, and"):
        run("red.global.lo.f32 [%x], 0f00000000;", 1, {"x": X.copy()})


def test_a_function_without_a_body_is_an_error_when_it_is_called() -> None:
    outside = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"
    body = """setp.ne.u32 %p0, 0, {}; @%p0 bra yes; ret;
        yes: {{ .param .b32 r0; call.uni (r0), vprintf, (); }}"""
    run(body.format(0), 1, {}, outside=outside)
    with pytest.raises(UnknownInstruction, match="cannot call vprintf, which has no body"):
        run(body.format(1), 1, {}, outside=outside)


def test_endless_loops_end() -> None:
    fails(StepLimit, "has executed 20000 instructions", body="again: bra.uni again;")


def test_a_trap_is_an_error() -> None:
    fails(Trap, "the program stopped itself", "trap", body="trap;")


def test_text_that_is_no_ptx() -> None:
    with pytest.raises(InvalidProgram, match="has no end"):
        parse(".version 8.0\n.visible .entry k()\n{ ret;")
    with pytest.raises(InvalidProgram, match=r"PTX line 2: 'add\.u32 %r1, %r2, 3' stands outside"):
        parse(".version 8.0\nadd.u32 %r1, %r2, 3;")
    with pytest.raises(InvalidProgram, match="'%nobody' in test was never declared"):
        run("mov.u32 %r0, %nobody;", 1, {})
    with pytest.raises(InvalidProgram, match=r"no kernel 'b'; the module has \['a'\]"):
        parse(".visible .entry a() { ret; }").entry("b")
    with pytest.raises(InvalidProgram, match=r"which kernel\? .* the module has 'a', 'b'"):
        parse(".visible .entry a() { ret; } .visible .entry b() { ret; }").entry()
    with pytest.raises(InvalidProgram, match=r"which kernel\? .* the module has none"):
        parse("").entry()


@pytest.mark.parametrize(
    "body",
    [
        "bra NOWHERE;",
        "here: ts: .branchtargets here, NOWHERE; brx.idx %r0, ts;",
        "brx.idx %r0, NOWHERE;",
    ],
)
def test_a_branch_needs_its_label(body: str) -> None:
    with pytest.raises(InvalidProgram, match=r"PTX line \d+: .*: test has no label 'NOWHERE'"):
        run(body, 1, {})


@pytest.mark.parametrize(
    ("type", "value", "message"),
    [
        ("u32", 2.5, r"parameter n is a \.u32, an integer: 2\.5 is a float"),
        ("s64", 2.0, r"is a \.s64, an integer: 2\.0 is a float"),
        ("f32", [1], r"is a \.f32: \[1\] is neither a number nor an array"),
        ("u64", None, r"is a \.u64: None is neither"),
        ("u32", X, r"is a \.u32: an array was given, not a number"),
        ("f64", X, r"is a \.f64: an array was given"),
    ],
)
def test_an_argument_fits_its_parameter(type: str, value: object, message: str) -> None:
    entry = parse(f".visible .entry k(.param .{type} n) {{ ret; }}").entry()
    with pytest.raises(InvalidProgram, match=message):
        Emulator().launch(entry, 1, 1, [value])


def test_a_mask_has_the_tensors_shape() -> None:
    with pytest.raises(InvalidProgram, match=r"shape \(3,\) does not broadcast .*\(32,\)"):
        Emulator().readable(X, np.ones(3, bool))


def test_declared_shared_memory_has_a_limit() -> None:
    """Only what the kernel uses counts."""
    outside = ".shared .align 4 .b8 a[30000]; .shared .align 4 .b8 b[30000];"
    run("mov.u32 %r0, a;", 1, {}, outside=outside)
    with pytest.raises(InvalidProgram, match=r"test declares 60000 bytes .* 49152 are the most"):
        run("mov.u32 %r0, a; mov.u32 %r1, b;", 1, {}, outside=outside)


def test_lines_are_those_of_the_text() -> None:
    text = (
        "// a comment\n.version 8.0\n/* two\nlines */\n.visible .entry k()\n{\n  trap; // here\n}\n"
    )
    assert parse(text).entry().instructions[0].line == 7
    with pytest.raises(Trap, match="PTX line 7: trap"):
        Emulator().launch(parse(text).entry(), 1, 1, [])
