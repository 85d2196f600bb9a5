"""Every other error is provoked by the smallest kernel that has it, and says where and who."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import (
    BarrierDivergence,
    Deadlock,
    Misaligned,
    NotAnIndex,
    NotReadable,
    OutOfBounds,
    Pointer,
    ReadOnly,
    SharedMemoryLimit,
    ShuffleFromInactive,
    Simulator,
    Uninitialised,
    WrongMask,
    cuda,
)
from support.cuda_simulation import failure, quotes, zeros

FULL = 0xFFFFFFFF
f32 = np.float32


# --- barriers and masks --------------------------------------------------------------------------


def test_some_threads_return_before_the_barrier():
    def early(out):
        if cuda.threadIdx.x < 3:
            return
        cuda.syncthreads()

    message = failure(BarrierDivergence, early, 8, zeros())
    assert message.startswith("3 of 8 threads of CTA (0, 0, 0) have returned, such as thread 0")
    assert quotes(message, "cuda.syncthreads()")


def test_threads_at_different_barriers():
    def split(out):
        if cuda.threadIdx.x == 0:
            cuda.syncthreads()  # one
        else:
            cuda.syncthreads()  # two

    message = failure(BarrierDivergence, split, 2, zeros())
    assert "thread 0 in syncthreads at " in message
    assert "thread 1 in syncthreads at " in message
    assert quotes(message, "cuda.syncthreads()  # one", "cuda.syncthreads()  # two")


def test_a_lane_outside_its_mask():
    def outside(out):
        cuda.syncwarp(0b01)

    message = failure(WrongMask, outside, 2, zeros())
    assert "thread 1 of CTA (0, 0, 0) is lane 1" in message
    assert "syncwarp with mask 0x1, which does not name it" in message


def test_a_lane_that_has_returned_is_in_the_mask():
    def gone(out):
        if cuda.laneid < 30:
            out[cuda.laneid] = cuda.shfl_xor_sync(FULL, 1, 1)

    message = failure(WrongMask, gone, 32, zeros())
    assert "the mask names thread 30 (lane 30), which has returned" in message
    assert quotes(message, "out[cuda.laneid] = cuda.shfl_xor_sync(FULL, 1, 1)")


def test_lanes_of_a_warp_in_different_collectives():
    def torn(out):
        if cuda.laneid < 16:
            cuda.ballot_sync(FULL, 1)
        else:
            cuda.any_sync(FULL, 1)

    message = failure(WrongMask, torn, 32, zeros())
    assert "lanes of warp 0 of CTA (0, 0, 0) are in different collectives" in message
    assert quotes(message, "cuda.ballot_sync(FULL, 1)", "cuda.any_sync(FULL, 1)")


def test_a_shuffle_reads_a_lane_that_takes_no_part():
    def reach(out):
        if cuda.laneid < 4:
            out[cuda.laneid] = cuda.shfl_down_sync(0b1111, 1.0, 1)

    message = failure(ShuffleFromInactive, reach, 32, zeros())
    assert "lane 3 of its warp and reads lane 4, which takes no part" in message
    assert quotes(message, "out[cuda.laneid] = cuda.shfl_down_sync(0b1111, 1.0, 1)")


def test_half_a_warp_waits_for_the_barrier_and_half_for_the_warp():
    def circle(out):
        if cuda.laneid < 16:
            cuda.syncwarp()
        else:
            cuda.syncthreads()

    message = failure(Deadlock, circle, 32, zeros())
    assert "waits in syncwarp with mask 0xffffffff" in message
    assert quotes(message, "cuda.syncwarp()", "cuda.syncthreads()")


def test_spinning_on_a_flag_that_nobody_sets():
    def spin(flag):
        while cuda.atomic.cas(flag, 0, 1, 0) != 1:
            pass

    message = failure(Deadlock, spin, 2, np.zeros(1, np.int32))
    assert "spins at" in message
    assert quotes(message, "while cuda.atomic.cas(flag, 0, 1, 0) != 1:")


@pytest.mark.parametrize("fences", [False, True])
def test_spinning_on_a_plain_read(fences):
    def spin(flag, fences):
        if cuda.threadIdx.x == 1:
            flag[0] = 1
        while flag[0] == 0:
            if fences:
                cuda.threadfence()

    with pytest.raises(Deadlock) as caught:
        Simulator().launch(spin, 1, 2, (zeros(), fences))
    message = str(caught.value)
    assert message.startswith("thread 0 of CTA (0, 0, 0) waits for flag[0] to change")
    assert quotes(message, "while flag[0] == 0:")


def test_a_long_loop_is_no_spin(monkeypatch):
    """Not with other accesses, be it a private array's, nor where others are met."""

    def reduce(x, out, kind):
        mine = cuda.local.array(1, f32)
        mine[0] = 0
        for _ in range(50):
            if kind == 0:
                out[0] += x[0]
            elif kind == 1:
                mine[0] += x[0]
            elif kind == 2:
                mine = x[0]
                cuda.syncwarp()
            else:
                mine = x[0] * x[0]

    monkeypatch.setattr("minipaged_cuda.simulator.memory.MAX_REPEATS", 20)
    for kind in range(4):
        Simulator().launch(reduce, 1, 1, (zeros(), zeros(), kind))


# --- addresses -----------------------------------------------------------------------------------


def test_an_index_behind_the_end():
    def behind(out):
        out[cuda.grid(1)] = 1

    message = failure(OutOfBounds, behind, 4, zeros(6), grid=2)
    assert message.startswith("thread 2 of CTA (1, 0, 0) writes out[6], which has 6 elements")
    assert quotes(message, "out[cuda.grid(1)] = 1")


@pytest.mark.parametrize("space", ["global", "shared", "local", "pointer"])
def test_minus_one_is_not_the_last_element(space):
    def last(x, space):
        shared, local = cuda.shared.array(4, f32), cuda.local.array(4, f32)
        array = x if space == 0 else shared if space == 1 else local
        return array[-1]

    x = Pointer(zeros()[8:]) if space == "pointer" else zeros()
    message = failure(OutOfBounds, last, 1, x, {"shared": 1, "local": 2}.get(space, 0))
    assert "[-1], which has" in message
    assert "does not count from the end" in message


@pytest.mark.parametrize("wide", [False, True])
def test_an_index_that_is_no_integer(wide):
    def half(x, wide):
        i = cuda.blockDim.x / 2
        return x.load(i, 1) if wide else x[i]

    message = failure(NotAnIndex, half, 3, Pointer(zeros()), wide)
    assert "of CTA (0, 0, 0) indexes x with 1.5, which is no integer" in message
    assert quotes(message, "return x.load(i, 1) if wide else x[i]")


@pytest.mark.parametrize("how", ["plain", "wide", "atomic"])
def test_a_read_only_array(how):
    def write(x, how):
        if how == 0:
            x[2] = 1
        elif how == 1:
            x.store(2, (1,))
        else:
            cuda.atomic.add(x, 2, 1)

    x = zeros()
    x.flags.writeable = False
    number = ["plain", "wide", "atomic"].index(how)
    message = failure(ReadOnly, write, 1, x, number)
    verb = "updates" if how == "atomic" else "writes"
    assert f"thread 0 of CTA (0, 0, 0) {verb} x[2], which is a read-only array's" in message
    assert ".py:" in message


def test_an_index_of_several_dimensions():
    def corner(x):
        return x[1, 3]

    message = failure(OutOfBounds, corner, (1, 2), np.zeros((2, 3)))
    assert "thread 0 of CTA (0, 0, 0) reads x[1, 3], which has shape (2, 3)" in message


def test_a_wide_access_is_aligned_to_its_size():
    def wide(x):
        return x.load(2, 4)

    message = failure(Misaligned, wide, 1, Pointer(zeros()))
    assert "accesses 16 bytes at x[2], but byte 8 of its storage is no multiple of 16" in message


def test_a_wide_access_stays_inside():
    def wide(x):
        x.store(4, (1, 2, 3, 4))

    assert "writes 4 elements from x[4], which has 6" in failure(OutOfBounds, wide, 1, zeros(6))


def test_a_shared_array_is_aligned_to_its_elements_only():
    def wide(out):
        part = cuda.shared.array(8, np.uint32)
        part.store(0, (1, 2, 3, 4))

    def aligned(out):
        part = cuda.shared.array(8, np.uint32, alignment=16)
        part.store(0, (1, 2, 3, 4))

    assert "the array itself is aligned to 4" in failure(Misaligned, wide, 1, zeros())
    Simulator().launch(aligned, 1, 1, (zeros(),))


def test_words_begin_at_multiples_of_their_size():
    def nothing(x):
        pass

    x = Pointer(np.zeros(8, np.uint16)[1:], np.uint32)
    message = "x begins at byte 2 of its storage, which is no multiple of the 4 bytes of uint32"
    assert message in failure(Misaligned, nothing, 1, x)


# --- what may be read ----------------------------------------------------------------------------


def test_shared_memory_starts_as_garbage():
    def fresh(out):
        part = cuda.shared.array(4, f32)
        out[0] = part[2]

    message = failure(Uninitialised, fresh, 1, zeros())
    assert "thread 0 of CTA (0, 0, 0) reads part[2] before anyone wrote it" in message
    assert quotes(message, "out[0] = part[2]")


def test_shared_memory_is_forgotten_between_ctas():
    def keep(out):
        part = cuda.shared.array(1, f32)
        if cuda.blockIdx.x == 0:
            part[0] = 1
        out[cuda.blockIdx.x] = part[0]

    failure(Uninitialised, keep, 1, zeros(), grid=2)


def test_unwritten_is_over_when_a_kernel_has_written():
    def read(x, out):
        out[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    def write(x):
        x[cuda.threadIdx.x] = 3

    x, out, simulator = zeros(4), zeros(4), Simulator()
    simulator.unwritten(x)
    assert "reads x[0] before" in failure(Uninitialised, read, 4, x, out, simulator=simulator)
    simulator.launch(write, 1, 3, (x,))
    simulator.launch(read, 1, 3, (x, out))
    assert "reads x[3] before" in failure(Uninitialised, read, 4, x, out, simulator=simulator)


def test_a_mask_says_what_may_be_read():
    def read(words, x, out):
        i = cuda.threadIdx.x
        out[i] = words[i] if words.dtype == np.uint32 else x[0, i]

    x = np.zeros((2, 8), np.uint16)
    simulator = Simulator()
    simulator.readable(x, np.array([[True], [False]]))
    simulator.launch(read, 1, 4, (Pointer(x, np.uint32), x, zeros()))
    message = failure(NotReadable, read, 5, Pointer(x, np.uint32), x, zeros(), simulator=simulator)
    assert message.startswith("thread 4 of CTA (0, 0, 0) reads words[4], which it may not")
    simulator.readable(x, True)
    simulator.launch(read, 1, 5, (Pointer(x, np.uint32), x, zeros()))


def test_a_mask_has_the_tensors_shape():
    with pytest.raises(ValueError, match=r"shape \(3,\) does not broadcast .* tensor's \(2, 8\)"):
        Simulator().readable(np.zeros((2, 8)), np.ones(3, bool))


def test_arrays_of_a_known_shape_have_a_limit_of_their_own():
    def much(out):
        a = cuda.shared.array(20_000, f32)
        a[0] = 1

    def dynamic(out):
        a = cuda.shared.array(0, f32)
        a[19_999] = 1

    message = failure(SharedMemoryLimit, much, 1, zeros())
    assert "80000 bytes of shared arrays; a kernel may declare 49152" in message
    assert quotes(message, "a = cuda.shared.array(20_000, f32)")
    Simulator().launch(dynamic, 1, 1, (zeros(),), dynamic_shared=80_000)


def test_shared_memory_has_a_limit():
    def much(out):
        a = cuda.shared.array(3000, f32)
        b = cuda.shared.array(0, f32)
        a[0] = b[0] = 1

    simulator = Simulator(shared_limit=16_000)
    message = failure(SharedMemoryLimit, much, 1, zeros(), simulator=simulator, dynamic_shared=4096)
    assert "12000 bytes of shared arrays and 4096 dynamic ones are 16096" in message
    assert "a CTA may have 16000" in message


# --- everything else -----------------------------------------------------------------------------


def test_an_exception_of_the_kernels_own_keeps_its_type():
    def broken(x):
        return {}["key"]

    with pytest.raises(KeyError) as caught:
        Simulator().launch(broken, 1, (2, 2), (zeros(),))
    (note,) = caught.value.__notes__
    assert note.startswith("in thread 0 of CTA (0, 0, 0) at test_simulator_errors.py:")
    assert quotes(note, 'return {}["key"]')


def test_threads_of_a_plane_are_named_by_their_place():
    def broken(x):
        if cuda.threadIdx.y == 1:
            x[-1] = 1

    assert "thread (0, 1, 0) of CTA" in failure(OutOfBounds, broken, (2, 2), zeros())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "takes 1 arguments"),
        (("text",), "a kernel takes NumPy arrays, torch tensors"),
    ],
)
def test_wrong_arguments(arguments, message):
    def nothing(x):
        pass

    with pytest.raises(TypeError, match=message):
        Simulator().launch(nothing, 1, 1, arguments)


def test_wrong_sizes():
    def nothing(x):
        pass

    with pytest.raises(ValueError, match="a CTA has at most 1024 threads, not 1025"):
        Simulator().launch(nothing, 1, 1025, (zeros(),))
    with pytest.raises(ValueError, match="grid is one to three whole numbers from 1 on, not 0"):
        Simulator().launch(nothing, 0, 1, (zeros(),))
    with pytest.raises(ValueError, match=r"whole numbers from 1 on, not 1\.5"):
        Simulator().launch(nothing, 1.5, 1, (zeros(),))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schedule is one of"):
        Simulator(schedule="sideways")  # type: ignore[arg-type]
