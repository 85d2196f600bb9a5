"""Other people's kernels, as Numba compiles them: arrays, shared memory, atomics, mathematics."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from minipaged_cuda.emulator import Emulator, Function, OutOfBounds, Race, numba_arguments, parse

REASON = "needs numba-cuda: pip install 'minipaged[cuda]'"
cuda = pytest.importorskip("numba.cuda", reason=REASON)
types = pytest.importorskip("numba").types
FLOAT = np.float32
CAPABILITIES = [(9, 0), (10, 0)]


def array(dtype: type, num_dims: int = 1):
    from numba.np.numpy_support import from_dtype

    return types.Array(from_dtype(np.dtype(dtype)), num_dims, "C")


@cache
def compiled(
    function: Callable, signature: tuple, capability: tuple[int, int], fast: bool
) -> Function:
    try:
        ptx, _ = cuda.compile(
            function,
            signature,
            cc=capability,
            device=False,
            abi="numba",
            fastmath=fast,
            output="ptx",
        )
    except Exception as error:
        if "libNVVM" in str(error) or "NvvmSupportError" in type(error).__name__:
            pytest.skip("needs NVVM: pip install 'numba-cuda[cu13]'")
        raise
    return parse(ptx if isinstance(ptx, str) else ptx.decode()).entry()


def launch(function, grid, num_threads, *arguments, capability=(9, 0), fast=False, names=None):
    signature = tuple(
        array(x.dtype.type, x.ndim) if isinstance(x, np.ndarray) else types.float32
        for x in arguments
    )
    entry = compiled(function, signature, capability, fast)
    expanded = numba_arguments(entry, arguments)
    return Emulator().launch(entry, grid, num_threads, expanded, names=names)


def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def careless_saxpy(a, x, y):
    i = cuda.grid(1)
    if i <= x.size:
        y[i] = a * x[i] + y[i]


def matmul(a, b, c):
    left, right = cuda.shared.array((8, 8), FLOAT), cuda.shared.array((8, 8), FLOAT)
    x, y = cuda.grid(2)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    total = FLOAT(0)
    for tile in range(a.shape[1] // 8):
        left[row, column] = a[y, tile * 8 + column]
        right[row, column] = b[tile * 8 + row, x]
        cuda.syncthreads()
        for k in range(8):
            total += left[row, k] * right[k, column]
        cuda.syncthreads()
    c[y, x] = total


def careless_matmul(a, b, c):
    left, right = cuda.shared.array((8, 8), FLOAT), cuda.shared.array((8, 8), FLOAT)
    x, y = cuda.grid(2)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    total = FLOAT(0)
    for tile in range(a.shape[1] // 8):
        left[row, column] = a[y, tile * 8 + column]
        right[row, column] = b[tile * 8 + row, x]
        cuda.syncthreads()
        for k in range(8):
            total += left[row, k] * right[k, column]
    c[y, x] = total


def histogram(x, counts):
    mine = cuda.shared.array(16, np.int32)
    i, thread = cuda.grid(1), cuda.threadIdx.x
    if thread < 16:
        mine[thread] = 0
    cuda.syncthreads()
    if i < x.size:
        cuda.atomic.add(mine, x[i], 1)
    cuda.syncthreads()
    if thread < 16:
        cuda.atomic.add(counts, thread, mine[thread])


def total(x, out):
    value = x[cuda.grid(1)]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


def reversed_by_private_array(x, out):
    mine = cuda.local.array(8, FLOAT)
    i = cuda.grid(1)
    for j in range(8):
        mine[j] = x[i, j]
    start = int(x[i, 0]) % 8
    for j in range(8):
        out[i, j] = mine[(start + j) % 8]


def divided(x, y, quotient, rest):
    i = cuda.grid(1)
    if i < x.size:
        quotient[i] = x[i] // y[i]
        rest[i] = x[i] % y[i]


def mathematics(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i, 0], out[i, 1] = math.exp(x[i]), math.log(x[i])
        out[i, 2], out[i, 3] = math.tanh(x[i]), math.sin(x[i])
        out[i, 4], out[i, 5] = math.pow(x[i], 1.7), math.sqrt(x[i])
        out[i, 6], out[i, 7] = math.erf(x[i]), math.cos(x[i] * 10000)


def voted(x, out):
    i = cuda.grid(1)
    out[i, 0] = cuda.ballot_sync(0xFFFFFFFF, x[i] > 2)
    out[i, 1] = cuda.match_any_sync(0xFFFFFFFF, x[i])
    out[i, 2] = cuda.syncthreads_count(x[i])
    out[i, 3] = cuda.popc(x[i]) + cuda.clz(x[i]) + cuda.brev(x[i])


@pytest.fixture(params=CAPABILITIES, ids=lambda capability: f"sm_{capability[0]}{capability[1]}")
def capability(request) -> tuple[int, int]:
    return request.param


def test_saxpy(capability) -> None:
    x, y = np.arange(100, dtype=FLOAT), np.ones(100, FLOAT)
    counts = launch(saxpy, 4, 32, 2.5, x, y, capability=capability, names=["x", "y"])
    assert (y == 2.5 * x + 1).all()
    assert counts.loads["x"].bytes == counts.stores["y"].bytes == 400
    assert counts.loads["x"].sectors == 13


def test_an_index_too_far(capability) -> None:
    x, y = np.arange(100, dtype=FLOAT), np.ones(101, FLOAT)
    with pytest.raises(OutOfBounds, match=r"byte 400 of 'x'") as caught:
        launch(careless_saxpy, 4, 32, 2.5, x, y, capability=capability, names=["x", "y"])
    assert "CTA (3, 0, 0), thread 4" in str(caught.value)


def test_matmul(capability) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.random((16, 24), FLOAT), generator.random((24, 8), FLOAT)
    c = np.zeros((16, 8), FLOAT)
    launch(matmul, (1, 2), (8, 8), a, b, c, capability=capability, fast=True)
    np.testing.assert_allclose(c, a @ b, rtol=1e-6)
    with pytest.raises(Race, match="of 'shared memory', and nothing orders them"):
        launch(careless_matmul, (1, 2), (8, 8), a, b, c, capability=capability)


def test_histogram(capability) -> None:
    x = np.random.default_rng(0).integers(0, 16, 500).astype(np.int32)
    counts = np.zeros(16, np.int32)
    launch(histogram, 4, 128, x, counts, capability=capability)
    assert (counts == np.bincount(x, minlength=16)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sum_by_shuffles(capability, dtype: type) -> None:
    x = np.arange(128).astype(dtype)
    out = np.zeros(1, dtype)
    launch(total, 2, 64, x, out, capability=capability)
    assert out[0] == 127 * 64


def test_private_arrays_with_computed_indices(capability) -> None:
    x = np.random.default_rng(0).integers(0, 50, (32, 8)).astype(FLOAT)
    out = np.zeros_like(x)
    launch(reversed_by_private_array, 1, 32, x, out, capability=capability)
    for row, found in zip(x, out):
        assert (found == np.roll(row, -(int(row[0]) % 8))).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_division_and_remainder(capability, dtype: type) -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-1000, 1000, 64).astype(dtype)
    y = (generator.integers(1, 30, 64) * generator.choice([-1, 1], 64)).astype(dtype)
    quotient, rest = np.zeros(64, dtype), np.zeros(64, dtype)
    launch(divided, 2, 32, x, y, quotient, rest, capability=capability)
    assert (quotient == x // y).all()
    assert (rest == x % y).all()


@pytest.mark.parametrize(
    ("capability", "dtype", "error", "fast"),
    [
        ((9, 0), np.float32, 3e-6, False),
        ((9, 0), np.float64, 1e-14, False),
        ((10, 0), np.float32, 3e-5, True),
        ((10, 0), np.float64, 1e-14, False),
    ],
)
def test_library_functions(capability, dtype: type, error: float, fast: bool) -> None:
    x = np.linspace(0.1, 5, 32).astype(dtype)
    out = np.zeros((32, 8), dtype)
    launch(mathematics, 1, 32, x, out, capability=capability, fast=fast)
    exact = x.astype(np.float64)
    erf = np.array([math.erf(v) for v in exact])
    expected = [np.exp(exact), np.log(exact), np.tanh(exact), np.sin(exact)]
    expected += [exact**1.7, np.sqrt(exact), erf]
    for n, values in enumerate(expected):
        np.testing.assert_allclose(out[:, n], values, rtol=error, atol=error)
    if not fast:
        np.testing.assert_allclose(out[:, 7], np.cos(exact * 10000), atol=max(error, 1e-11))


def test_votes_and_bits(capability) -> None:
    x = np.arange(64, dtype=np.int32) % 5
    out = np.zeros((64, 4), np.int64)
    launch(voted, 1, 64, x, out, capability=capability)
    for i in range(64):
        warp = x[i // 32 * 32 :][:32]
        ballot = sum(1 << n for n in range(32) if warp[n] > 2)
        match = sum(1 << n for n in range(32) if warp[n] == x[i])
        assert out[i, 0] % 2**32 == ballot
        assert out[i, 1] % 2**32 == match
        assert out[i, 2] == (x != 0).sum()
