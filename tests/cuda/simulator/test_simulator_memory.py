"""What arguments, pointers and arrays do under an index: as NumPy and torch say, checks apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minipaged_cuda.simulator import (
    Misaligned,
    NotReadable,
    OutOfBounds,
    Pointer,
    Race,
    ReadOnly,
    Simulator,
    cuda,
)
from minipaged_cuda.simulator.numbers import Bool, Int32


def run(kernel, *arguments, grid=1, num_threads=1, **options):
    return Simulator().launch(kernel, grid, num_threads, arguments, **options)


def add_one(x):
    x[cuda.threadIdx.y, cuda.threadIdx.x] += 1


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[1:4, ::2],
        lambda x: x[:, 3:],
        lambda x: x.T,
    ],
    ids=["whole", "steps", "columns", "transposed"],
)
@pytest.mark.parametrize("library", [np, torch])
def test_any_strides(view, library):
    whole = library.arange(48).reshape(6, 8) * 1.0
    expected = np.asarray(whole).copy()
    view(expected)[:2, :2] += 1
    run(add_one, view(whole), num_threads=(2, 2))
    assert (np.asarray(whole) == expected).all()


def test_numpy_arrays_that_run_backwards():
    x = np.arange(4)
    run(lambda x: x.__setitem__(0, 9), x[::-1])
    assert x.tolist() == [0, 1, 2, 9]


def test_what_an_array_says_of_itself():
    said = []
    x = np.zeros((3, 4, 5), np.float32)[:, 1:]
    run(lambda x: said.extend([x.shape, x.strides, x.ndim, x.size, len(x), x.dtype]), x)
    assert said == [x.shape, x.strides, x.ndim, x.size, len(x), x.dtype]


def test_slices_are_views():
    def kernel(x, out):
        row = x[1]
        out[0] = row[2]
        out[1] = x[:, 1][2]
        out[2] = x[1:, ::2][0, 1]
        x[0, 1:3] = 7
        x[2] = x[1]
        for i, value in enumerate(x[1]):
            out[3 + i] = value

    x, out = np.arange(12).reshape(3, 4), np.zeros(7)
    run(kernel, x, out)
    assert out.tolist() == [6, 9, 6, 4, 5, 6, 7]
    assert x.tolist() == [[0, 7, 7, 3], [4, 5, 6, 7], [4, 5, 6, 7]]


def test_a_view_ends_where_it_ends():
    with pytest.raises(OutOfBounds, match=r"x\[2\], which has 2 elements"):
        run(lambda x: x[1:3][2], np.zeros(8))
    with pytest.raises(OutOfBounds, match=r"x\[3\]: shape is \(3, 4\)"):
        run(lambda x: x[3], np.zeros((3, 4)))


def test_numbers_are_numbas():
    kinds = []
    arguments = 3, 2.5, np.int32(3), np.float32(2.5), True
    run(lambda a, b, c, d, e: kinds.extend(map(type, (a, b, c, d, e))), *arguments)
    assert kinds == [np.int64, np.float64, Int32, np.float32, Bool]


def test_integers_wrap():
    x = np.zeros(2, np.uint32)

    def kernel(x):
        x[0] = -1
        x[1] = np.uint32(1 << 31) * np.uint32(3)

    run(kernel, x)
    assert x.tolist() == [2**32 - 1, 2**31]


# --- pointers ------------------------------------------------------------------------------------


def test_a_pointer_sees_the_storage_from_the_first_element():
    storage = torch.arange(20, dtype=torch.float32)
    view = storage[:16].view(4, 4)[1:3, 2:]

    def kernel(p, out):
        out[0] = p[0]
        out[1] = p[4]
        out[2] = p[13]
        p[1] = -1

    out = np.zeros(3)
    run(kernel, Pointer(view), out)
    assert out.tolist() == [6, 10, 19]
    assert storage[7] == -1
    with pytest.raises(OutOfBounds, match=r"p\[-1\], which has 14 elements"):
        run(lambda p: p[-1], Pointer(view))
    with pytest.raises(OutOfBounds, match=r"p\[14\], which has 14 elements"):
        run(lambda p: p[14], Pointer(view))
    with pytest.raises(AttributeError, match="shape"):
        run(lambda p: p.shape, Pointer(view))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_words_of_a_type_that_numpy_lacks(dtype):
    x = torch.randn(64).to(dtype)
    words = np.zeros(16, np.uint32)
    run(
        lambda p, out: [out.store(4 * i, p.load(4 * i, 4)) for i in range(2)],
        Pointer(x, np.uint32),
        words,
    )
    expected = x.view(torch.uint8).numpy().view(np.uint32)[:8]
    assert (words[:8] == expected).all()


def test_bfloat16_arrays_are_refused():
    message = r"x is a tensor of torch.bfloat16.*Pointer\(x, np.uint16\)"
    with pytest.raises(TypeError, match=message):
        run(lambda x: None, torch.zeros(4, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="needs a dtype"):
        run(lambda x: None, Pointer(torch.zeros(4, dtype=torch.bfloat16)))


def test_wide_accesses():
    def kernel(x, out):
        shared = cuda.shared.array(8, np.float32, alignment=16)
        shared.store(4, x.load(4, 4))
        out.store(0, shared.load(4, 4))
        out.store(4, x.load(2, 2))

    x, out = np.arange(8, dtype=np.float32), np.zeros((2, 4), np.float32)
    run(kernel, Pointer(x), out)
    assert out.tolist() == [[4, 5, 6, 7], [2, 3, 0, 0]]
    with pytest.raises(Misaligned):
        run(lambda x: x.load(0, 2), np.zeros((4, 4), np.float32)[:, :2].T)


def test_a_wide_access_races_with_each_of_its_elements():
    def kernel(x):
        if cuda.threadIdx.x == 0:
            x.store(0, (1, 2, 3, 4))
        else:
            x[3] = 1

    with pytest.raises(Race, match=r"race on x\[3\]"):
        run(kernel, np.zeros(8, np.uint32), num_threads=2)


def test_arguments_that_cannot_be_written():
    x = np.zeros(4)
    x.flags.writeable = False
    with pytest.raises(ReadOnly):
        run(lambda x: x.__setitem__(0, 1), x)


def test_empty_tensors():
    run(lambda a, b: None, np.zeros((0, 3)), torch.zeros(0))
    with pytest.raises(OutOfBounds, match="which has 0 elements"):
        run(lambda a: a[0], torch.zeros(0))


def test_names_may_be_given():
    with pytest.raises(OutOfBounds, match=r"key_cache\[9\]"):
        run(lambda x: x[9], np.zeros(3), names=["key_cache"])


def test_views_that_overlap_are_one_memory():
    def kernel(a, b):
        if cuda.threadIdx.x == 0:
            a[2] = 1
        else:
            b[0] = 1

    data = bytearray(32)
    a, b = np.frombuffer(data, np.uint32, 6), np.frombuffer(data, np.uint32, 6, offset=8)
    with pytest.raises(Race, match=r"race on b\[0\]"):
        run(kernel, a, b, num_threads=2)


# --- readable ------------------------------------------------------------------------------------


def test_a_mask_counts_for_views_and_their_padding():
    storage = torch.zeros(4, 8)
    cache = storage[:, :6]
    simulator = Simulator()
    simulator.readable(cache, torch.tensor([True, True, False, True])[:, None])

    def read(p, i):
        return p[i]

    for i in (0, 5, 15, 22, 23, 24):  # padding is not the tensor's
        simulator.launch(read, 1, 1, (Pointer(cache), i))
    for i in (16, 21):
        with pytest.raises(NotReadable, match=rf"reads p\[{i}\]"):
            simulator.launch(read, 1, 1, (Pointer(cache), i))
    simulator.launch(lambda p: p.__setitem__(16, 1), 1, 1, (Pointer(cache),))


def test_a_word_is_readable_if_all_of_it_is():
    halves = np.zeros(4, np.uint16)
    simulator = Simulator()
    simulator.readable(halves, [True, True, True, False])
    words = Pointer(halves, np.uint32)
    simulator.launch(lambda p: p[0], 1, 1, (words,))
    with pytest.raises(NotReadable, match=r"reads p\[1\]"):
        simulator.launch(lambda p: p[1], 1, 1, (words,))
