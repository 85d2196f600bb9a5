"""Races: two threads, one element, at least one write, and nothing that says who comes first."""

from __future__ import annotations

import numpy as np
import pytest

from minipaged_cuda.simulator import Pointer, Race, Simulator, cuda
from support.cuda_simulation import failure, quotes, zeros

FULL = 0xFFFFFFFF
f32 = np.float32


def exchange(out):
    part = cuda.shared.array(64, f32)
    part[cuda.threadIdx.x] = 1
    out[cuda.threadIdx.x] = part[63 - cuda.threadIdx.x]


def late(out):
    part = cuda.shared.array(2, f32)
    part[cuda.threadIdx.x] = 1
    cuda.syncthreads()
    kept = part[1 - cuda.threadIdx.x]
    part[cuda.threadIdx.x] = kept + 1


def test_a_race_names_both_threads_and_both_lines():
    message = failure(Race, late, 2, zeros())
    assert message.startswith("race on part[0] in CTA (0, 0, 0): thread 1 reads it at ")
    assert "; thread 0 writes it at " in message
    assert message.endswith("; no syncthreads() or syncwarp() lies between")
    assert quotes(message, "kept = part[1 - cuda.threadIdx.x]", "part[cuda.threadIdx.x] = kept + 1")


def test_a_read_that_comes_before_the_write_is_a_race_too():
    message = failure(Race, exchange, 64, zeros())
    assert message.startswith("race on part[32] in CTA (0, 0, 0): thread 32 writes it at ")
    assert quotes(message, "part[cuda.threadIdx.x] = 1")


@pytest.mark.parametrize(
    ("num_threads", "missing"),
    [
        (32, "no syncthreads() or syncwarp() lies between"),
        (64, "no syncthreads() lies between (syncwarp() orders the lanes of one warp alone)"),
    ],
)
def test_a_race_says_what_would_order_the_two(num_threads, missing):
    def distant(out):
        part = cuda.shared.array(64, f32)
        part[cuda.threadIdx.x] = 1
        if cuda.blockDim.x == 64:
            cuda.syncwarp()
        out[cuda.threadIdx.x] = part[cuda.blockDim.x - 1 - cuda.threadIdx.x]

    assert failure(Race, distant, num_threads, zeros()).endswith("; " + missing)


def test_two_threads_that_write_one_element():
    def everybody(out):
        out[0] = 1

    message = failure(Race, everybody, 2, zeros())
    assert "race on out[0]" in message
    assert "nothing orders the two" in message
    assert message.endswith("two writes are a race even if they write the same value")


def test_ctas_that_share_an_element():
    def counter(out):
        out[0] += 1

    message = failure(Race, counter, 1, zeros(), grid=2)
    assert "thread 0 of CTA (1, 0, 0)" in message
    assert "thread 0 of CTA (0, 0, 0)" in message
    assert "CTAs run in any order" in message


def test_a_plain_read_races_with_an_atomic_update():
    def peek(out):
        cuda.atomic.add(out, 0, 1)
        out[1 + cuda.threadIdx.x] = out[0]

    assert "updates it" in failure(Race, peek, 2, zeros())


def test_an_atomic_update_races_with_a_plain_read_that_comes_later():
    def count_then_look(out):
        if cuda.blockIdx.x == 0:
            cuda.atomic.add(out, 0, 1)
        else:
            out[1] = out[0]

    with pytest.raises(Race, match=r"reads it at .* updates it at .* CTAs run in any order"):
        Simulator().launch(count_then_look, 2, 1, (zeros(),))


def test_a_shuffle_orders_no_memory():
    def trusting(out):
        out[cuda.threadIdx.x] = 1
        cuda.shfl_xor_sync(FULL, 1, 1)
        out[32 + cuda.threadIdx.x] = out[31 - cuda.threadIdx.x]

    failure(Race, trusting, 32, zeros())


def test_half_words_do_not_race_with_their_neighbours():
    def store(out):
        out[cuda.threadIdx.x] = 1

    Simulator().launch(store, 1, 8, (np.zeros(8, np.uint8),))


def test_two_windows_on_one_storage_are_one_place():
    def overlap(words, halves):
        if cuda.threadIdx.x == 0:
            words[1] = 7
        else:
            halves[2] = 7

    halves = np.zeros(8, np.uint16)
    arguments = Pointer(halves, np.uint32), halves
    assert "race on" in failure(Race, overlap, 2, *arguments)
    Simulator().launch(overlap, 1, 2, (Pointer(halves, np.uint32), halves[4:]))
