"""What is compiled does what the text says, once; whatever it depends on is part of its key."""

from __future__ import annotations

import re
import sys
import threading
from types import FunctionType

import numpy as np
import pytest

import minipaged_cuda.compile as compiler
from minipaged_cuda.compile import compile_cubin, compile_ptx
from minipaged_cuda.disk_cache import kept
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Specialisation
from support import cuda_compiled
from support.cuda_compiled import axpy, emulate, need_numba_cuda, packed, wrong

need_numba_cuda()

AXPY = Specialisation.of(axpy, {"N": 3})
HOPPER = (9, 0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of our own."""
    monkeypatch.setenv("MINIPAGED_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch):
    """What was compiled in place of what was kept; a text tells its number."""
    calls = []

    def compile_(specialisation, capability):
        calls.append((specialisation.name, capability))
        return f"// text {len(calls)}\n"

    monkeypatch.setattr(compiler, "_compile", compile_)
    return calls


# --- what comes out ----------------------------------------------------------------------------


def test_kernel_helpers_and_module_numbers_compute_what_the_text_says():
    x, y = np.arange(1, 5, dtype=np.float32), np.ones(8, dtype=np.float32)
    emulate(AXPY, 32, [y, x, np.float32(2), np.int32(4)])
    expected = np.ones(8)
    expected[:4] = 2 * (x * 3 / (x + 0.5) + 0.5) + 3
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_names_are_readable_and_arithmetic_is_fast_in_helpers_too():
    ptx = compile_ptx(AXPY, HOPPER)
    assert re.findall(r"\.entry (\w+)\(", ptx) == ["axpy_N3"]
    assert "_ZN" not in ptx
    assert ".f64" not in ptx
    assert "div.approx.ftz.f32" in ptx
    assert ".target sm_90" in ptx


def test_constants_choose_a_primitive_and_a_type():
    for word, expected in (("pack_f16x2", 0x40003C00), ("pack_bf16x2", 0x40003F80)):
        out, x = np.zeros(4, dtype=np.uint32), np.array([1, 2], dtype=np.float32)
        emulate(
            Specialisation.of(packed, {"WORDS": "uint32", "pack": word}), 1, [out, x, np.int64(2)]
        )
        assert out.tolist() == [0, 0, expected, 0]


def test_a_limit_of_registers_is_part_of_the_text():
    limited = Specialisation.of(axpy, {"N": 3}, max_registers=40)
    assert re.search(r"\)\s*\.maxnreg 40\s*\{", compile_ptx(limited, HOPPER))


def test_machine_code_of_the_linker_is_an_elf_file():
    assert compile_cubin(AXPY, (8, 6)).startswith(b"\x7fELF")


# --- errors ------------------------------------------------------------------------------------


def test_a_text_that_does_not_compile_is_named_and_numba_says_why():
    with pytest.raises(KernelError, match=r"wrong for sm_90 does not[\s\S]*no_such_thing"):
        compile_ptx(Specialisation.of(wrong), HOPPER)


def test_an_architecture_that_the_compiler_does_not_know():
    with pytest.raises(KernelError, match="axpy_N3 for sm_32 does not compile"):
        compile_ptx(AXPY, (3, 2))


def test_a_constant_that_names_nothing():
    unknown = Specialisation.of(packed, {"WORDS": "uint32", "pack": "pack_f64x2"})
    with pytest.raises(KernelError, match="packed: constant pack is 'pack_f64x2', which"):
        compile_ptx(unknown, HOPPER)


def test_text_that_the_linker_refuses(monkeypatch):
    monkeypatch.setattr(compiler, "_compile", lambda *_: ".version 9.0\n.target sm_90\nnonsense")
    with pytest.raises(KernelError, match=r"axpy_N3 for sm_90 does not[\s\S]*syntax error"):
        compile_cubin(AXPY, HOPPER)


def test_without_numba_cuda_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "minipaged_cuda.primitives.numba_cuda", None)
    monkeypatch.delattr("minipaged_cuda.primitives.numba_cuda")
    with pytest.raises(DeviceError, match=r"needs numba-cuda .*pip install 'minipaged\[cuda\]'"):
        compiler._numba_cuda.__wrapped__()


# --- the key -----------------------------------------------------------------------------------


def twin_of(function, **replaced):
    """The same function with other globals."""
    scope = {**function.__globals__, **replaced}
    twin = FunctionType(function.__code__, scope, function.__name__)
    twin.__annotations__ = function.__annotations__
    twin.__qualname__ = function.__qualname__
    return twin


def another_helper(x):
    return x


def kernel_with(shifted):
    """The kernel with another helper."""
    return Specialisation.of(twin_of(axpy, shifted=shifted), {"N": 3})


OTHERS = {
    "a constant": lambda: (Specialisation.of(axpy, {"N": 4}), HOPPER),
    "a name": lambda: (Specialisation.of(axpy, {"N": 3, "pack": "pack_f16x2"}), HOPPER),
    "the registers": lambda: (Specialisation.of(axpy, {"N": 3}, max_registers=32), HOPPER),
    "the architecture": lambda: (AXPY, (8, 0)),
    "the kernel": lambda: (Specialisation.of(packed, {"N": 3, "WORDS": "uint32"}), HOPPER),
    "a helper": lambda: (kernel_with(another_helper), HOPPER),
    "a number of a helper's module": lambda: (
        kernel_with(twin_of(cuda_compiled.shifted, OFFSET=np.float32(0.25))),
        HOPPER,
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_whatever_changes_the_code_changes_the_key(what, compiled):
    assert compile_ptx(AXPY, HOPPER) == compile_ptx(AXPY, HOPPER) == "// text 1\n"
    assert compile_ptx(*OTHERS[what]()) == "// text 2\n"
    assert compile_ptx(*OTHERS[what]()) == "// text 2\n"


def test_so_do_the_compilers_and_our_own_files(compiled, monkeypatch, tmp_path):
    compile_ptx(AXPY, HOPPER)
    monkeypatch.setattr(compiler, "_version", lambda package: "another")
    assert compile_ptx(AXPY, HOPPER) == "// text 2\n"
    (tmp_path / "primitives.py").write_text("other primitives")
    monkeypatch.setattr(compiler, "OWN_FILES", (tmp_path / "primitives.py",))
    assert compile_ptx(AXPY, HOPPER) == "// text 3\n"


# --- the disk ----------------------------------------------------------------------------------


def damaged(data):
    """The ways in which a file may have suffered."""
    return {"empty": b"", "cut": data[:-1], "longer": data + b"x", "noise": bytes(range(256))}


@pytest.mark.parametrize("how", ["empty", "cut", "longer", "noise"])
def test_a_damaged_file_is_made_anew(how, folder):
    assert kept("a", lambda: b"first\n\x00") == b"first\n\x00"
    file = folder / "a"
    file.write_bytes(damaged(file.read_bytes())[how])
    assert kept("a", lambda: b"second") == b"second"
    assert kept("a", lambda: b"third") == b"second"


def test_a_directory_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINIPAGED_CACHE_DIR", str(tmp_path / "file"))
    assert kept("a", lambda: b"1") == b"1"
    assert kept("a", lambda: b"2") == b"2"


def test_nothing_is_kept_of_what_failed(folder):
    with pytest.raises(ZeroDivisionError):
        kept("a", lambda: bytes([1 // 0]))
    assert not folder.exists()


def test_writers_at_the_same_time_leave_one_whole_file(folder):
    together, results = threading.Barrier(8), []

    def make(i):
        together.wait()
        return bytes([i]) * 100_000

    def work(i):
        results.append(kept("a", lambda: make(i)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 8  # each has what it made, and one of them is kept
    assert kept("a", lambda: b"none") in results
    assert [file.name for file in folder.iterdir()] == ["a"]


def test_without_a_choice_the_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("MINIPAGED_CACHE_DIR")
    from minipaged_cuda.disk_cache import cache_dir

    assert cache_dir().parts[-2:] == ("minipaged", "cuda")
