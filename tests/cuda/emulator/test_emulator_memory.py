"""Loads, stores, moves, calls and address spaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minipaged_cuda.emulator import Emulator, InvalidProgram, numba_arguments, parse
from support.cuda_ptx import each, element, kernel, run


def test_vectors_of_every_width() -> None:
    x = np.arange(64, dtype=np.uint32)
    out = np.zeros_like(x)
    body = f"""{element("x", 16, "%rd0")} {element("out", 16, "%rd1")}
        ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {{%r0, %r1, %r2, %r3}}, [%rd0];
        st.global.v2.b32 [%rd1+8], {{%r0, %r1}};
        mov.b64 %rd2, {{%r2, %r3}};
        st.global.cg.b64 [%rd1], %rd2;"""
    run(body, 16, {"x": x, "out": out})
    assert (out.reshape(-1, 4) == x.reshape(-1, 4)[:, [2, 3, 0, 1]]).all()


def test_narrow_loads_extend_and_narrow_stores_cut() -> None:
    x = np.array([0x80, 0xFF, 0x7F, 1], np.uint8)
    signed, unsigned = np.zeros(4, np.int64), np.zeros(4, np.uint64)
    low = np.zeros(4, np.uint8)
    body = f"""{element("x", 1, "%rd0")} ld.global.s8 %rd1, [%rd0]; ld.global.u8 %rd2, [%rd0];
        {element("s", 8, "%rd3")} st.global.s64 [%rd3], %rd1;
        {element("u", 8, "%rd3")} st.global.u64 [%rd3], %rd2;
        {element("low", 1, "%rd3")} st.global.u8 [%rd3], %rd1;"""
    run(body, 4, {"x": x, "s": signed, "u": unsigned, "low": low})
    assert signed.tolist() == [-128, -1, 127, 1]
    assert unsigned.tolist() == x.tolist()
    assert (low == x).all()


def test_moves_pack_and_unpack() -> None:
    a = np.array([0x1122334455667788], np.uint64)
    swapped = "mov.b64 {%r0, %r1}, %a; mov.b64 %d, {%r1, %r0};"
    assert each(swapped, np.uint64, a)[0] == 0x5566778811223344
    quarters = "mov.b64 {%h0, _, _, %h3}, %a; mov.b32 %d, {%h3, %h0};"
    assert each(quarters, np.uint32, a)[0] == 0x77881122
    assert each("mov.b32 %d, 0f3F800000;", np.float32, a)[0] == 1.0
    assert each("mov.f64 %d, 0dBFF8000000000000;", np.float64, a)[0] == -1.5
    assert each("mov.u32 %d, -1;", np.uint32, a)[0] == 0xFFFFFFFF


def test_a_packed_register_may_be_its_own_part() -> None:
    a = np.array([0x1122334455667788], np.uint64)
    text = "mov.b64 {%r0, %r1}, %a; mov.b64 %rd0, {%r0, %r1}; mov.b64 %d, %rd0;"
    assert each(text, np.uint64, a)[0] == a[0]


def test_special_registers() -> None:
    names = [
        "tid.x",
        "tid.y",
        "tid.z",
        "ntid.x",
        "ctaid.y",
        "nctaid.y",
        "laneid",
        "warpid",
        "lanemask_lt",
    ]
    out = np.zeros((2, 48, len(names)), np.uint32)
    stores = "".join(
        f"mov.u32 %r0, %{name}; st.global.u32 [%rd0+{4 * i}], %r0;" for i, name in enumerate(names)
    )
    index = """mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 8, %r2;
        mov.u32 %r1, %tid.z; mad.lo.u32 %r3, %r1, 24, %r3;
        mov.u32 %r1, %ctaid.y; mad.lo.u32 %r3, %r1, 48, %r3;"""
    body = index + element("out", 4 * len(names), "%rd0", "%r3") + stores
    Emulator().launch(kernel(body, "out"), (1, 2), (8, 3, 2), [out])
    thread = np.arange(48)
    expected = [thread % 8, thread // 8 % 3, thread // 24, 8, 1, 2, thread % 32, thread // 32]
    for i, values in enumerate(expected):
        assert (out[1, :, i] == values).all(), names[i]
    assert (out[1, :, 8] == [(1 << n % 32) - 1 for n in range(48)]).all()


def test_local_memory_belongs_to_a_thread() -> None:
    body = f"""{{ .local .align 8 .b8 depot[16]; .reg .b64 %SP, %SPL;
        mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;
        mov.u32 %r0, %tid.x; st.local.u32 [%SPL+4], %r0; bar.sync 0;
        ld.u32 %r1, [%SP+4]; {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r1; }}"""
    out = np.zeros(40, np.uint32)
    run(body, 40, {"out": out})
    assert (out == np.arange(40)).all()


def test_generic_addresses_reach_every_space() -> None:
    """Even threads load from shared memory and odd ones from global memory, in one instruction."""
    body = f"""mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;
        st.shared.u32 [%r2], %r0; cvt.u64.u32 %rd1, %r2; cvta.shared.u64 %rd1, %rd1;
        {element("x", 4, "%rd2")} cvta.global.u64 %rd2, %rd2;
        and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0; selp.b64 %rd3, %rd1, %rd2, %p0;
        ld.u32 %r4, [%rd3]; isspacep.shared %p1, %rd3; @%p1 add.u32 %r4, %r4, 1000;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r4;"""
    x, out = np.arange(64, dtype=np.uint32) * 10, np.zeros(64, np.uint32)
    run(body, 64, {"x": x, "out": out}, outside=".shared .align 4 .b8 tile[256];")
    n = np.arange(64)
    assert (out == np.where(n % 2 == 0, n + 1000, 10 * n)).all()


def test_module_variables_begin_as_written() -> None:
    outside = """.const .align 4 .u32 table[4] = {10, 20, 30};
        .global .align 4 .f32 scale = 0f40000000; .global .u32 counter;"""
    body = f"""mov.u32 %r0, %tid.x; mul.wide.u32 %rd0, %r0, 4; mov.u64 %rd1, table;
        add.s64 %rd1, %rd1, %rd0; ld.const.u32 %r1, [%rd1]; ld.const.u32 %r2, [table+4];
        ld.global.f32 %f0, [scale]; cvt.rzi.u32.f32 %r3, %f0;
        atom.global.add.u32 %r4, [counter], 1; mad.lo.u32 %r1, %r1, %r3, %r2;
        {element("out", 4, "%rd2")} st.global.u32 [%rd2], %r1;"""
    body += "st.global.u32 [%rd2+16], %r4;"
    entry, out = kernel(body, "out", outside=outside), np.zeros(8, np.uint32)
    for _ in range(2):  # the second launch finds them as the first did
        Emulator().launch(entry, 1, 4, [out])
        assert out.tolist() == [40, 60, 80, 20, 0, 1, 2, 3]


def test_functions_have_parameters_and_results() -> None:
    outside = """.func (.param .align 8 .b8 result[16]) both(.param .b32 x, .param .b64 y)
    { .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
      ld.param.u32 %r0, [x]; ld.param.u64 %rd0, [y]; setp.lt.u32 %p0, %r0, 3;
      @%p0 bra small; add.u32 %r0, %r0, 100;
      small: st.param.b32 [result+8], %r0; add.u64 %rd0, %rd0, 1; st.param.b64 [result+0], %rd0;
      ret; }"""
    body = f"""mov.u32 %r0, %tid.x; cvt.u64.u32 %rd0, %r0; mul.lo.u64 %rd0, %rd0, 7;
        {{ .param .b32 param0; .param .b64 param1; .param .align 8 .b8 retval0[16];
        st.param.b32 [param0+0], %r0; st.param.b64 [param1+0], %rd0;
        call.uni (retval0), both, (param0, param1);
        ld.param.b64 %rd1, [retval0+0]; ld.param.b32 %r1, [retval0+8]; }}
        cvt.u64.u32 %rd2, %r1; mad.lo.u64 %rd1, %rd1, 1000, %rd2;
        {element("out", 8, "%rd3")} st.global.u64 [%rd3], %rd1;"""
    out = np.zeros(5, np.uint64)
    run(body, 5, {"out": out}, outside=outside)
    assert out.tolist() == [(7 * n + 1) * 1000 + (n if n < 3 else n + 100) for n in range(5)]


def test_an_indexed_branch_chooses_a_label() -> None:
    body = f"""mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 1;
        ways: .branchtargets even, odd;
        brx.idx %r1, ways;
        even: mov.u32 %r2, 5; bra.uni both;
        odd: mov.u32 %r2, 9;
        both: {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r2;"""
    out = np.zeros(4, np.uint32)
    run(body, 4, {"out": out})
    assert out.tolist() == [5, 9, 5, 9]


def test_loops_of_different_lengths_meet_again() -> None:
    body = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, 0; mov.u32 %r2, 0;
        again: add.u32 %r2, %r2, %r1; add.u32 %r1, %r1, 1; setp.le.u32 %p0, %r1, %r0;
        @%p0 bra again;
        bar.sync 0;
        {element("out", 4, "%rd0")} st.global.u32 [%rd0], %r2;"""
    out = np.zeros(70, np.uint32)
    counts = run(body, 70, {"out": out})
    assert (out == [n * (n + 1) // 2 for n in range(70)]).all()
    assert counts.barriers == 1


def test_arguments_may_be_views_that_share_a_storage() -> None:
    """Thread n copies the element in front of its own, so views must be of one memory."""
    storage = torch.arange(20, dtype=torch.bfloat16)
    before = storage.clone()
    body = f"""{element("to", 4, "%rd0")} {element("from", 4, "%rd1")}
        ld.global.u16 %h0, [%rd1]; st.global.u16 [%rd0], %h0;"""
    entry = kernel(body, "to", "from")
    Emulator().launch(entry, 1, 8, [storage[3::2], storage[2::2]], names=["to", "from"])
    assert (storage[3:19:2] == before[2:18:2]).all()
    array = np.arange(20, dtype=np.uint16)
    Emulator().launch(entry, 1, 8, [array[3::2], array[2::2]], names=["to", "from"])
    assert (array[3:19:2] == np.arange(2, 18, 2)).all()
    assert (storage[2::2] == before[2::2]).all()


def test_arrays_without_elements_are_addresses_of_nothing() -> None:
    entry = kernel("setp.eq.u64 %p0, %a, 0; @%p0 trap; setp.eq.u64 %p0, %b, %c; @!%p0 ret;", *"abc")
    empty = torch.zeros(0)
    Emulator().launch(entry, 1, 1, [np.zeros(0, np.float32), empty, empty])


@pytest.mark.parametrize(
    ("type", "value", "found"),
    [
        ("u32", 7, 7),
        ("s32", -1, 0xFFFFFFFF),
        ("f32", 1.0, 0x3F800000),
        ("f32", 1, 0x3F800000),
        ("b32", np.float32(2.0), 0x40000000),
        ("b32", 1.0, 0x3F800000),
        ("u32", np.int64(9), 9),
    ],
)
def test_scalars_become_the_bits_of_their_parameter(type: str, value: object, found: int) -> None:
    text = f""".version 8.0
        .target sm_80
        .visible .entry k(.param .u64 out, .param .{type} value)
        {{ .reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd0, [out];
        ld.param.b32 %r0, [value]; st.global.b32 [%rd0], %r0; ret; }}"""
    out = np.zeros(1, np.uint32)
    Emulator().launch(parse(text).entry(), 1, 1, [out, value])
    assert out[0] == found


def test_wrong_arguments_are_refused_with_the_numbers() -> None:
    entry = kernel("", "a", "b")
    with pytest.raises(InvalidProgram, match="test has 2 parameters, not 1"):
        Emulator().launch(entry, 1, 1, [np.zeros(1)])
    with pytest.raises(InvalidProgram, match=r"does not fit b, a \.u64"):
        Emulator().launch(entry, 1, 1, [np.zeros(1), 1 << 70])
    with pytest.raises(InvalidProgram, match="8 with shapes and strides"):
        numba_arguments(entry, [np.zeros(3), 4])
    with pytest.raises(InvalidProgram, match="every size must be 1 or more"):
        Emulator().launch(entry, 0, 1, [0, 0])
    with pytest.raises(InvalidProgram, match="1024 is the most"):
        Emulator().launch(entry, 1, (32, 33), [0, 0])
    with pytest.raises(InvalidProgram, match="3 names for 2 arguments"):
        Emulator().launch(entry, 1, 1, [0, np.zeros(1)], names=["a", "b", "c"])
