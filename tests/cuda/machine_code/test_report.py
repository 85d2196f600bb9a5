"""What a report says is what was written: registers, memory, instructions by kind, hot loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

import minipaged_cuda.machine_code.tools as tools
from minipaged_cuda.compile import compile_cubin, compile_ptx
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.machine_code import assemble, report, reports
from minipaged_cuda.machine_code.__main__ import main
from support.cuda_compiled import axpy, need_numba_cuda, need_tools

need_tools()

HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
SUM = """
.visible .entry {name}(.param .u64 out, .param .u64 in, .param .u32 n)
{{
    .reg .pred %p; .reg .b32 %i, %n; .reg .b64 %in, %out; .reg .f32 %a<4>, %s; .reg .f64 %d;
    .shared .align 16 .b8 area[{shared}];
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n];
    cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;
    mov.f32 %s, 0f00000000; mov.u32 %i, 0;
    st.shared.f32 [area], %s;
loop:
    .pragma "nounroll";
    ld.global.v4.f32 {{%a0, %a1, %a2, %a3}}, [%in];
    bar.sync 0;
    fma.rn.f32 %s, %a0, %a1, %s; fma.rn.f32 %s, %a2, %a3, %s;
    add.u64 %in, %in, 16; add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, %n;
    @%p bra loop;
    {tail}
    st.global.f32 [%out], %s;
    ret;
}}
"""
PLAIN = HEAD + SUM.format(name="plain", shared=32, tail="")
DOUBLE = SUM.format(
    name="double", shared=64, tail="cvt.f64.f32 %d, %s; mul.f64 %d, %d, %d; cvt.rn.f32.f64 %s, %d;"
)
ARCHITECTURES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]


@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_a_small_kernel_on_every_architecture(capability):
    found = report(PLAIN, capability)
    assert (found.name, found.spill_bytes, found.stack_bytes) == ("plain", 0, 0)
    assert (found.num_float64, found.num_local) == (0, 0)
    assert 8 <= found.registers <= 40
    assert (found.shared_bytes, found.count("LDG", "128"), found.count("LDG")) == (32, 1, 1)
    assert (found.count("FFMA"), found.count("BAR"), found.count("STS")) == (2, 1, 1)
    loop = [instruction.mnemonic for instruction in found.code.hot_loop]
    assert loop.count("LDG") == 1
    assert loop.count("FFMA") == 2
    assert found.hot_loop_len < found.num_instructions


def test_every_kernel_of_a_file_has_a_report():
    found = reports(PLAIN + DOUBLE, (9, 0))
    assert set(found) == {"plain", "double"}
    assert found["double"].num_float64 >= 3  # two conversions and a product
    assert found["double"].shared_bytes == 64
    assert found["plain"] == report(PLAIN + DOUBLE, (9, 0), "plain")
    with pytest.raises(KernelError, match=r"which kernel\? None is none of \['double', 'plain'\]"):
        report(PLAIN + DOUBLE, (9, 0))


def test_too_few_registers_are_seen_as_spills_and_local_memory():
    names = [f"%x{i}" for i in range(64)]
    loads = "".join(f"ld.global.f32 {x}, [%in+{4 * i}];" for i, x in enumerate(names))
    sums = "".join(f"fma.rn.f32 %s, {x}, {y}, %s;" for x, y in zip(names, reversed(names)))
    crowded = SUM.format(name="crowded", shared=16, tail=loads + "bar.sync 0;" + sums)
    crowded = crowded.replace(".reg .f32", ".reg .f32 %x<64>; .reg .f32")
    free = report(HEAD + crowded, (9, 0))
    assert (free.spill_bytes, free.num_local) == (0, 0)
    tight = report(HEAD + crowded.replace("u32 n)", "u32 n)\n.maxnreg 24"), (9, 0))
    assert tight.registers <= 24
    assert tight.spill_bytes
    assert tight.num_local
    assert tight.stack_bytes


@pytest.mark.parametrize("capability", [(7, 5), (8, 6)])
def test_a_cubin_has_the_same_report_but_for_what_only_the_assembler_knew(capability):
    assembled = report(PLAIN, capability)
    known = report(assemble(PLAIN, capability).cubin, capability)
    assert known.spill_bytes is None
    assert replace(known, spill_bytes=0) == assembled


def test_the_linker_of_the_launcher_makes_the_code_that_is_counted_here():
    need_numba_cuda()
    kernel = Specialisation.of(axpy, {"N": 3})
    for capability in ((8, 0), (9, 0)):
        counted = report(compile_ptx(kernel, capability), capability)
        launched = report(compile_cubin(kernel, capability), capability)
        assert launched.registers == counted.registers
        assert launched.opcodes == counted.opcodes


# --- errors and the command --------------------------------------------------------------------


def test_text_that_the_assembler_refuses():
    with pytest.raises(
        KernelError, match=r"ptxas -arch=sm_80 refuses this PTX:\nptxas kernel\.ptx, line"
    ):
        assemble(PLAIN.replace(".reg .pred %p;", ".reg .nonsense %p;"), (8, 0))


def test_text_of_a_newer_compiler():
    with pytest.raises(KernelError, match="pip install -U nvidia-cuda-nvcc"):
        assemble(PLAIN.replace(".version 8.0", ".version 99.0"), (8, 0))


def test_bytes_that_are_no_cubin():
    with pytest.raises(KernelError, match="cannot read these 5 bytes"):
        report(b"12345", (9, 0))


def test_a_tool_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(tools, "_nvidia_folders", lambda: [tmp_path])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="ptxas is not installed: pip install nvidia-cuda-nvcc"):
        tools.find_tool.__wrapped__("ptxas")


def test_the_command_prints_every_kernel(tmp_path, capsys):
    file = tmp_path / "kernels.ptx"
    file.write_text(PLAIN + DOUBLE)
    assert main([str(file), "--arch", "120"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("registers of a thread") == 2
    assert "LDG.128                         1\n" in printed
    file.write_bytes(assemble(PLAIN, (8, 9)).cubin)
    assert main([str(file)]) == 0
    assert "spilled                         unknown" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    file = tmp_path / "kernel.ptx"
    for content, words in (
        (b"nonsense", "refuses this PTX"),
        (b"\xff\xfe\x00", "kernel.ptx is neither PTX text nor a cubin\n"),
        (b"\x7fELF", "cannot read these 4 bytes"),
        (HEAD.encode(), "kernel.ptx has no kernel: no .entry"),
        (PLAIN.replace("sm_75", "sm_100").encode(), "for sm_100: --arch 100 or newer\n"),
        (PLAIN.replace("sm_75", "sm_90a").encode(), "for sm_90a: --arch 90a\n"),
    ):
        file.write_bytes(content)
        assert main([str(file)]) == 1
        assert words in capsys.readouterr().err
    for path, words in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        assert main([str(path)]) == 1
        assert f"{path} cannot be read: {words}" in capsys.readouterr().err


def test_the_command_takes_architectures_as_everybody_writes_them(tmp_path, capsys):
    file = tmp_path / "kernel.ptx"
    file.write_text(PLAIN.replace(".version 8.0\n.target sm_75", ".version 8.8\n.target sm_90a"))
    for arch in ("90a", "sm_90a"):
        assert main([str(file), "--arch", arch]) == 0
    file.write_text(PLAIN)
    assert main([str(file), "--arch", "sm_90"]) == 0
    capsys.readouterr()
    for arch in ("9", "hopper"):
        with pytest.raises(SystemExit, match="2"):
            main([str(file), "--arch", arch])
        assert f"{arch!r} is no architecture such as 80" in capsys.readouterr().err
