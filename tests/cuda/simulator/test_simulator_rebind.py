"""Which names of a kernel's text mean something else in the simulator, and which do not."""

from __future__ import annotations

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from minipaged_cuda.simulator import Simulator, collective

placeholder = SimpleNamespace()  # stands in kernel text, and has none of the things it names
cuda = placeholder


def double(x):
    return 2 * x


def load(pointer, i):
    raise AssertionError("a binding stands in its place")


def place():
    return cuda.threadIdx.x


def place_of_place(depth):
    return place_of_place(depth - 1) if depth else place()


def kernel(out):
    out[cuda.threadIdx.x] = cuda.blockDim.x


def launch(kernel, *arguments, num_threads=2, **options):
    out = np.zeros(num_threads)
    Simulator(**options).launch(kernel, 1, num_threads, (out, *arguments))
    return out.tolist()


def test_whatever_is_called_cuda_is_the_simulated_one():
    assert launch(kernel) == [2, 2]


def test_the_kernel_itself_stays_as_it_is():
    launch(kernel)
    assert kernel.__globals__["cuda"] is placeholder
    with pytest.raises(AttributeError):
        kernel(np.zeros(2))


def test_functions_that_a_kernel_calls_are_rebound_once():
    called = []

    def outer(out):
        called.append(double)
        out[place_of_place(3)] = double(place())

    assert launch(outer) == [0, 2]
    assert called[0] is called[1] is not double, "its literals have types, as the kernel's"


def test_closures_and_factories():
    def make(scale):
        helper = lambda: cuda.threadIdx.x * scale  # noqa: E731

        def scaled(out):
            out[cuda.threadIdx.x] = later() + helper()

        def later():
            return cuda.blockDim.x

        return scaled

    assert launch(make(3)) == [2, 5]
    assert launch(make(5)) == [2, 7]


def test_defaults_stay():
    def scaled(out, scale=4, *, offset=1):
        out[cuda.threadIdx.x] = scale + offset

    def outer(out):
        scaled(out)

    assert launch(outer) == [5, 5]


def test_bindings_replace_names_in_all_functions():
    def twice(pointer, i):
        return load(pointer, i) + load(pointer, i)

    def outer(out, x):
        out[cuda.threadIdx.x] = twice(x, cuda.threadIdx.x) + SIZE  # noqa: F821  # a constant

    bindings = {"load": lambda pointer, i: pointer[i], "SIZE": 10, "cuda": None}
    assert launch(outer, np.array([3, 4]), bindings=bindings) == [16, 18]


def test_math_returns_what_a_card_does():
    def outer(out):
        out[0], out[1] = math.exp(1000.0), math.log(0.0)
        cuda.syncwarp()

    out = np.zeros(2)
    Simulator().launch(outer, 1, 1, (out,))
    assert out.tolist() == [math.inf, -math.inf]


def test_literals_and_ranges_have_numbas_types():
    def outer(out, x, n):
        half = lambda y: y * 0.5  # noqa: E731
        if cuda.threadIdx.x:
            return
        out[0], out[1] = 0.1 * x[0], half(x[0])
        for i in range(n):
            out[2] = i + n * 2147483647

    x = np.array([0.1], np.float32)
    expected = [0.1 * float(x[0]), 0.5 * float(x[0]), 2 + 3 * (2**31 - 1)]
    assert launch(outer, x, np.int32(3), num_threads=4)[:3] == expected


def test_primitives_see_the_lanes_of_the_warp():
    def rotate(lanes):
        return {lane: lanes[(lane + 1) % len(lanes)] for lane in lanes}

    def outer(out):
        out[cuda.threadIdx.x] = collective("rotate", 0xFF, cuda.threadIdx.x, rotate)

    assert launch(outer, num_threads=8) == [1, 2, 3, 4, 5, 6, 7, 0]


def test_a_kernel_is_a_function():
    with pytest.raises(TypeError, match="a kernel is a Python function or a Numba dispatcher"):
        Simulator().launch(3, 1, 1, ())


def test_importing_the_simulator_loads_neither_torch_nor_numba():
    code = (
        "import sys, minipaged_cuda.simulator\n"
        "assert not {'torch', 'numba', 'numba_cuda', 'minipaged.cache'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
