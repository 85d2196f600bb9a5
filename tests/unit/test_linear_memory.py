"""Weights that are kept side by side stay what they were, and no memory is given out twice."""

import gc
from itertools import pairwise

import pytest
import torch

from minipaged.linear import memory
from minipaged.linear.memory import LINE, kept


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(memory, "PIECE", 1 << 12)
    monkeypatch.setattr(memory, "_memory", memory._Memory())


def span(x):
    return x.data_ptr(), x.data_ptr() + x.nbytes


def test_copies_keep_their_numbers_beside_each_other():
    """More tensors than a piece holds, of several types, and one that is larger than a piece."""
    sizes = [1, 3, 700, 64, 3000, 5, 1023, 17]
    dtypes = [torch.float32, torch.int8, torch.int32]
    given = [torch.randint(-99, 99, (n,)).to(dtypes[n % 3]) for n in sizes]
    copies = [kept(x) for x in given]
    for x, copy in zip(given, copies, strict=True):
        assert copy.dtype == x.dtype
        assert torch.equal(copy, x)
        assert copy.data_ptr() % LINE == 0
    spans = sorted(map(span, copies))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_a_transposed_tensor_becomes_contiguous():
    x = torch.arange(12).view(3, 4).T
    copy = kept(x)
    assert copy.is_contiguous()
    assert torch.equal(copy, x)


def test_a_piece_goes_with_the_last_tensor_in_it():
    copy, last = kept(torch.ones(4)), kept(torch.ones(4))
    del copy
    gc.collect()
    assert memory._memory._piece() is not None
    assert last.sum() == 4
    del last
    gc.collect()
    assert memory._memory._piece() is None
    assert kept(torch.ones(2)).sum() == 2
