"""The same kernels through numba-cuda-mlir compute the same; where it is missing, it is said so."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from minipaged_cuda.compile_mlir import compile_ptx
from minipaged_cuda.emulator import Emulator, parse
from minipaged_cuda.errors import DeviceError, KernelError
from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.kernels.copy_blocks import copy_blocks
from minipaged_cuda.launch import emulated
from minipaged_cuda.plan import CopySizes, plan_copy
from support.cuda_compiled import axpy, packed, wrong

HOPPER = (9, 0)


@pytest.fixture
def mlir():
    """Skips where the compiler is not installed."""
    pytest.importorskip("numba_cuda_mlir", reason="pip install 'numba-cuda-mlir[cu13]'")


def run(specialisation, grid, num_threads, arguments):
    """Compile and emulate."""
    entry = parse(compile_ptx(specialisation, HOPPER)).entry()
    assert entry.name == specialisation.name
    return Emulator().launch(entry, grid, num_threads, arguments)


@pytest.mark.usefixtures("mlir")
def test_helpers_and_module_numbers():
    x, y = np.arange(1, 5, dtype=np.float32), np.ones(8, dtype=np.float32)
    run(Specialisation.of(axpy, {"N": 3}), (1, 1, 1), 32, [y, x, np.float32(2), np.int32(4)])
    expected = np.ones(8)
    expected[:4] = 2 * (x * 3 / (x + 0.5) + 0.5) + 3
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.usefixtures("mlir")
@pytest.mark.parametrize(
    ("word", "expected"), [("pack_f16x2", 0x40003C00), ("pack_bf16x2", 0x40003F80)]
)
def test_constants_choose_a_primitive_and_a_type(word, expected):
    out, x = np.zeros(4, dtype=np.uint32), np.array([1, 2], dtype=np.float32)
    chosen = Specialisation.of(packed, {"WORDS": "uint32", "pack": word})
    run(chosen, (1, 1, 1), 1, [out, x, np.int64(2)])
    assert out.tolist() == [0, 0, expected, 0]


@pytest.mark.usefixtures("mlir")
def test_blocks_are_copied():
    plan = plan_copy(CopySizes(2, 3, 1, 1, 64, 4, is_aligned=True, has_values=True))
    key, value = np.random.default_rng(0).integers(0, 2**32, (2, 3, 5, 64), dtype=np.uint32)
    copied = [x.copy() for x in (key, value)]
    pairs = np.array([[0, 3], [2, 1]], dtype=np.int32)
    for x in copied:
        x[:, pairs[:, 1]] = x[:, pairs[:, 0]]
    strides = [np.int64(n) for n in (5 * 64, 64, 0, 0)]
    arguments = [key, value, key, value, pairs, *strides, *strides]
    run(
        Specialisation.of(copy_blocks, dict(plan.constants)), plan.grid, plan.num_threads, arguments
    )
    np.testing.assert_array_equal([key, value], copied)


@pytest.mark.slow
@pytest.mark.usefixtures("mlir")
@pytest.mark.parametrize(
    ("kernel", "wide"),
    [("decode_v0", False), ("decode_v1", False), ("decode_v2", False), ("decode_v3", True)],
)
def test_rungs_of_the_ladder_are_attention(monkeypatch, kernel, wide):
    cases = pytest.importorskip("support.cuda_kernels", reason="pip install torch")
    batch = pytest.importorskip("support.cuda_attention").problem([(1, 5), (1, 0), (2, 37)])
    cases.check(cases.attend(launcher(monkeypatch), kernel, batch, wide=wide), batch, kernel)


@pytest.mark.slow
@pytest.mark.usefixtures("mlir")
@pytest.mark.parametrize(("cache", "num_splits"), [("bfloat16", 1), ("float8_e4m3fn", 2)])
def test_the_tensor_core_kernel_is_attention(monkeypatch, cache, num_splits):
    torch = pytest.importorskip("torch", reason="pip install torch")
    cases = pytest.importorskip("support.cuda_attention")
    lengths, options = [(1, 5), (1, 0), (9, 70)], {"sinks": True, "kv_scales": "tensor"}
    batch = cases.problem(lengths, group=3, cache=getattr(torch, cache), **options)
    got = cases.attend(launcher(monkeypatch), batch, num_splits=num_splits)
    assert cases.worst(got, batch) <= 1


def launcher(monkeypatch):
    """An emulator for what this compiler makes."""
    monkeypatch.setattr(emulated, "_entry", lambda *what: parse(compile_ptx(*what)).entry())
    return emulated.EmulatedLauncher(HOPPER)


@pytest.mark.usefixtures("mlir")
def test_a_text_that_does_not_compile_is_named():
    with pytest.raises(KernelError, match="wrong for sm_90 does not compile"):
        compile_ptx(Specialisation.of(wrong), HOPPER)


def test_where_it_is_missing_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda_mlir.cuda", None)
    with pytest.raises(DeviceError, match=r"pip install 'numba-cuda-mlir\[cu13\]'"):
        compile_ptx(Specialisation.of(axpy, {"N": 3}), HOPPER)
