"""The two launchers without a card: how arguments arrive, what strict finds, what they keep."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged_cuda.kernel import Specialisation
from minipaged_cuda.launch.slots import readable_slots
from support.cuda_operations import batch, emulated_launcher, simulated_launcher
from support.cuda_tiny_kernels import add_scaled, sum_of_a_block


@pytest.fixture(scope="module", params=[simulated_launcher, emulated_launcher])
def launcher(request):
    return request.param()


def adding(**constants):
    types = {"X": "uint16", "load_x": "load_bfloat16", "SCALED": 1}
    return Specialisation.of(add_scaled, types | constants)


# --- arguments ---------------------------------------------------------------------------------


def test_arguments_come_by_name_as_the_types_that_the_kernel_declares(launcher):
    """A view of bfloat16 from its first element on, an integer as an f32, in any order."""
    x = torch.arange(8, dtype=torch.bfloat16)[2:]
    out = torch.full((4,), torch.nan)
    arguments = {"factor": 2, "out": out, "n": 4, "scale": torch.tensor([0.5]), "x": x}
    launcher(adding(), (1, 1, 1), 32, arguments)
    assert out.tolist() == [2.5, 3.5, 4.5, 5.5]


def test_a_null_pointer_may_be_passed_and_not_be_followed(launcher):
    x, out = torch.ones(4, dtype=torch.bfloat16), torch.zeros(4)
    arguments = {"out": out, "x": x, "scale": None, "factor": 1.0, "n": 4}
    launcher(adding(SCALED=0), (1, 1, 1), 32, arguments)
    assert out.tolist() == [1.0] * 4
    with pytest.raises(Exception, match=r"scale\[0\]|address 0x0"):
        launcher(adding(SCALED=1), (1, 1, 1), 32, arguments)


def test_what_each_launch_did_is_kept(launcher):
    x, out = torch.ones(4, dtype=torch.bfloat16), torch.zeros(4)
    before = len(launcher.history)
    launcher(
        adding(SCALED=0), (1, 1, 1), 32, {"out": out, "x": x, "scale": None, "factor": 1, "n": 4}
    )
    assert len(launcher.history) == before + 1
    assert "x" in launcher.last.table()


def test_what_is_not_readable_may_not_be_read(launcher):
    x, out = torch.ones(4, dtype=torch.bfloat16), torch.zeros(4)
    launcher.readable(x, np.array([True, True, False, True]))
    arguments = {"out": out, "x": x, "scale": None, "factor": 1, "n": 2}
    launcher(adding(SCALED=0), (1, 1, 1), 32, arguments)
    with pytest.raises(Exception, match="x"):
        launcher(adding(SCALED=0), (1, 1, 1), 32, arguments | {"n": 4})


# --- strict ------------------------------------------------------------------------------------


def test_a_kernel_that_reads_beyond_the_end_of_a_sequence_is_found(launcher):
    """The slot holds a number, so no poison would have told: a stale token of somebody else."""
    _, key, value, tables, lens, starts = batch((1, 16), head_dim=1, num_kv_heads=1)
    specialisation = Specialisation.of(sum_of_a_block, {"BS": 16, "CAUSAL": 1})
    arguments = {
        "out": torch.zeros(1),
        "key_cache": key,
        "value_cache": value,
        "block_tables": tables,
        "seq_lens": lens,
        "query_start_loc": starts,
    }
    launcher(specialisation, (1, 1, 1), 1, arguments)
    with pytest.raises(Exception, match="key_cache"):
        launcher(specialisation, (1, 1, 1), 1, arguments | {"seq_lens": lens - 1})


def test_a_position_that_has_no_block_is_stored_nowhere():
    """So a launch of such a batch ends in what the kernel reads, not in this bookkeeping."""
    tables, lens, starts = np.array([[1, -1], [99, 0]]), np.array([4, 9]), np.array([0, 1, 2])
    found = readable_slots(3, 2, tables, lens, starts)
    assert found.tolist() == [[True, True], [True, True], [False, False]]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=3),
    window=st.none() | st.integers(1, 5),
    block_size=st.integers(1, 4),
)
def test_readable_slots_are_those_that_some_query_sees(lengths, window, block_size):
    """Against the definition: every row of every sequence looks at every position."""
    _, key, _, tables, lens, starts = batch(*lengths, head_dim=1, block_size=block_size)
    expected = np.zeros(key.shape[:2], bool)
    for s, (query_len, seq_len) in enumerate(lengths):
        for position in range(seq_len - query_len, seq_len):
            oldest = 0 if window is None else position - window + 1
            for p in range(max(0, oldest), seq_len):
                expected[tables[s, p // block_size], p % block_size] = True
    found = readable_slots(*key.shape[:2], tables, lens, starts, window=window)
    assert np.array_equal(found, expected)
