"""C7 compares four ways to compute one and the same thing."""

from __future__ import annotations

import pytest
import torch

from minipaged.claims import kernel
from minipaged.claims.kernel import Shape, Step


@pytest.mark.parametrize("shape", kernel.QUICK_SHAPES)
def test_all_ways_compute_the_same(shape):
    ways = Step.draw(shape, seed=1).ways(seed=2)
    assert tuple(ways) == kernel.WAYS
    expected = ways["torch"]()
    assert expected.std() > 0.01
    for name, work in ways.items():
        torch.testing.assert_close(work(), expected, atol=1e-5, rtol=1e-5, msg=name)


def test_contiguous_is_one_piece_per_sequence_and_permuted_is_out_of_order():
    step = Step.draw(Shape(3, 64), seed=0)
    order = torch.tensor([5, 3, 1, 0, 2, 4, 11, 10, 9, 8, 7, 6])
    whole, _ = step._in_blocks(64, torch.arange(3))
    apart, values = step._in_blocks(16, order)
    assert whole.shape == (3, 64, kernel.NUM_HEADS, kernel.HEAD_DIM)
    assert whole[1].transpose(0, 1).is_contiguous()
    torch.testing.assert_close(whole[1], step.keys[1].transpose(0, 1), atol=0, rtol=0)
    for i, block in enumerate(order.tolist()):
        seq, begin = divmod(16 * i, 64)
        expected = step.keys[seq, :, begin : begin + 16].transpose(0, 1)
        torch.testing.assert_close(apart[block], expected, atol=0, rtol=0)
        expected = step.values[seq, :, begin : begin + 16].transpose(0, 1)
        torch.testing.assert_close(values[block], expected, atol=0, rtol=0)


def test_the_excess_is_in_per_cent_of_contiguous():
    times = {Shape(8, 64): {"contiguous": 2.0, "identity": 2.1, "permuted": 2.6, "torch": 3.0}}
    of_shape, permuted, identity, torchs = kernel._rows(times, few=False)
    assert of_shape.measured == permuted.measured == pytest.approx(30)
    assert identity.measured == pytest.approx(5)
    assert torchs.measured == pytest.approx(50)
    assert [row.verdict for row in (of_shape, identity, torchs)] == ["measured"] * 3
    assert all(row.wall for row in (of_shape, permuted, identity, torchs))


@pytest.mark.parametrize(
    ("excess", "verdict", "why"),
    [
        (-0.1, "differs", "less than is said"),
        (0.0, "differs", "less than is said"),
        (0.23, "agrees", ""),
        (0.3, "differs", "a table costs more here"),
    ],
)
def test_twenty_to_twenty_six_per_cent_is_a_range_with_two_ends(excess, verdict, why):
    """A table that costs nothing does not confirm that it costs a fifth."""
    ways = {"contiguous": 1.0, "identity": 1.0, "permuted": 1.0 + excess, "torch": 2.0}
    _, judged, *_ = kernel._rows({Shape(8, 64): ways}, few=False)
    assert judged.said == "20 to 26 %"
    assert judged.verdict == verdict
    assert judged.note.startswith(why)


def test_ways_take_turns_in_changing_order_and_the_best_round_counts():
    calls: list[str] = []
    ways = {name: lambda name=name: calls.append(name) for name in "abc"}
    best = kernel.in_turns(ways, rounds=20, seed=0)
    rounds = [tuple(calls[i : i + 3]) for i in range(0, 60, 3)]
    assert {tuple(sorted(each)) for each in rounds} == {("a", "b", "c")}
    assert len(set(rounds)) > 3
    assert all(0 <= seconds < 1 for seconds in best.values())


def test_threads_are_given_back(monkeypatch):
    threads = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    during = []

    def work():
        with kernel.one_thread():
            during.append(torch.get_num_threads())
            raise InterruptedError

    with pytest.raises(InterruptedError):
        work()
    assert during == [1]
    assert threads[-1] == 2
