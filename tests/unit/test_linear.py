"""Products: the compiled forms are the plain one, up to rounding that is known."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import numba
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipaged.core import ModelError
from minipaged.linear import PLAIN, form_for
from minipaged.linear.microkernels import GROUP, ROWS, WIDTH

CPU = torch.device("cpu")
FORMS = {"float32": form_for(torch.float32, CPU), "int8": form_for(torch.int8, CPU)}
EDGES = [1, 2, WIDTH // 2, WIDTH - 1, WIDTH, WIDTH + 1, 3 * WIDTH + 5]
NUM_ROWS = [0, 1, 2, 3, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS + 7, 32 * ROWS + 3]
IN_SIZES = [1, 3, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP + 10]

problems = {
    "num_rows": st.sampled_from(NUM_ROWS),
    "in_size": st.sampled_from(IN_SIZES),
    "out_size": st.sampled_from(EDGES),
    "has_bias": st.booleans(),
    "seed": st.integers(0, 9),
}


def problem(num_rows, in_size, out_size, has_bias, seed):
    """X cut out of something wider that is NaN, W, and b."""
    dice = torch.Generator().manual_seed(seed)
    wide = torch.full((num_rows, in_size + 3), torch.nan)
    x = wide[:, 1 : in_size + 1]
    x.copy_(torch.randn(x.shape, generator=dice))
    weight = torch.randn(out_size, in_size, generator=dice)
    return x, weight, torch.randn(out_size, generator=dice) if has_bias else None


def steps(x):
    """Of each number, the distance between two that 8 bits can tell apart in its group."""
    padded = torch.nn.functional.pad(x.double(), (0, -x.shape[1] % GROUP))
    largest = padded.unflatten(1, (-1, GROUP)).abs().amax(2, keepdim=True)
    return (largest / 127).expand(-1, -1, GROUP).flatten(1)[:, : x.shape[1]]


def tolerance(kind, x, weight):
    """What rounding may cause: half a step of every number, and float32 sums."""
    a, b = x.double().abs(), weight.double().abs()
    sums = a @ b.T
    error = (x.shape[1] + 8) * 2.0**-24 * sums + 1e-30
    if kind == "int8":
        half_x, half_w = 0.5001 * steps(x), 0.5001 * steps(weight)
        error = error + half_x @ b.T + a @ half_w.T + half_x @ half_w.T
    return error


@pytest.mark.parametrize("kind", FORMS)
@given(**problems)
def test_a_product_is_that_of_float64_up_to_rounding(kind, **sizes):
    x, weight, bias = problem(**sizes)
    right = x.double() @ weight.double().T
    error = tolerance(kind, x, weight)
    if bias is not None:
        right += bias
        error += 2.0**-22 * (right.abs() + bias.abs())
    product = FORMS[kind].linear(weight, bias)
    assert ((product(x) - right).abs() <= error).all()
    out = torch.ones(len(x), len(weight) + 2)
    product.add_to(out[:, 1:-1], x)
    assert ((out[:, 1:-1] - right - 1).abs() <= error + 2.0**-22 * (right.abs() + 1)).all()
    assert (out[:, [0, -1]] == 1).all()


@pytest.mark.parametrize("kind", FORMS)
@given(**problems)
def test_a_gate_lets_through_what_the_plain_one_does(kind, **sizes):
    """silu' is at most 1.1, and silu(x) at most |x|."""
    x, weight, bias = problem(**sizes | {"out_size": 2 * sizes["out_size"]})
    plain = PLAIN.linear(weight.double(), None if bias is None else bias.double())
    gate, other = plain(x.double()).chunk(2, -1)
    error = tolerance(kind, x, weight) + 2.0**-20 * plain(x.double()).abs()
    of_gate, of_other = error.chunk(2, -1)
    allowed = 1.1 * of_gate * (other.abs() + of_other) + of_other * gate.abs() + 1e-6
    right = torch.nn.functional.silu(gate) * other
    assert ((FORMS[kind].gated(weight, bias)(x) - right).abs() <= allowed).all()


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("num_threads", [1, 2])
@settings(max_examples=30)
@given(**problems)
def test_a_row_depends_on_nothing_else_to_the_last_bit(kind, num_threads, **sizes):
    """Neither on the rows beside it, which may be NaN, nor on how many threads there are."""
    x, weight, bias = problem(**sizes)
    product = FORMS[kind].linear(weight, bias)
    alone = [product(row[None]) for row in x]
    strangers = torch.full((1, x.shape[1]), torch.nan)
    before = torch.get_num_threads()
    torch.set_num_threads(min(num_threads, numba.config.NUMBA_NUM_THREADS))
    try:
        together = product(torch.cat((strangers, x, strangers)))
    finally:
        torch.set_num_threads(before)
    assert together[[0, -1]].isnan().all()
    assert all(torch.equal(a[0], b) for a, b in zip(alone, together[1:-1], strict=True))


@given(scale=st.sampled_from([1e-18, 1e-3, 1.0, 1e15]), **problems)
def test_a_norm_is_that_of_float64_up_to_rounding(scale, **sizes):
    x, weight, _ = problem(**sizes)
    x, weight, epsilon = x * scale, weight[0] if sizes["has_bias"] else None, 1e-5
    right = x.double() / (x.double().square().mean(1, keepdim=True) + epsilon).sqrt()
    right *= 1 if weight is None else weight
    out = FORMS["float32"].normalise(x, weight, epsilon)
    assert ((out - right).abs() <= 1e-6 * right.abs() + 1e-30).all()
    rows = [FORMS["int8"].normalise(row[None], weight, epsilon)[0] for row in x]
    assert all(torch.equal(a, b) for a, b in zip(rows, out, strict=True))


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_does_not_vanish(kind, value):
    x, weight, _ = problem(3, GROUP + 1, WIDTH, False, 0)
    x[1, -1] = value
    out = FORMS[kind].linear(weight)(x)
    assert out[[0, 2]].isfinite().all()
    assert not out[1].isfinite().any()


def test_rows_are_those_of_the_weight():
    _, weight, _ = problem(1, 70, WIDTH + 5, False, 0)
    index = torch.tensor([0, WIDTH, WIDTH + 4, 3, 3])
    for name, form in {**FORMS, "plain": PLAIN}.items():
        rows = form.linear(weight).rows(index)
        allowed = 0.5001 * steps(weight)[index] if name == "int8" else 0
        assert ((rows - weight[index]).abs() <= allowed).all()


def test_weights_of_zero_and_rows_of_zero_have_no_scale():
    x, weight, _ = problem(2, GROUP, WIDTH, False, 0)
    weight[3], x[1] = 0, 0
    out = FORMS["int8"].linear(weight)(x)
    assert out[:, 3].tolist() == [0, 0]
    assert out[1].tolist() == [0] * WIDTH


def test_a_quarter_of_the_bytes():
    weight = torch.randn(WIDTH, 4 * GROUP)
    small, large = (FORMS[kind].linear(weight).nbytes for kind in ("int8", "float32"))
    assert large == weight.nbytes
    assert small == weight.nbytes // 4 * (1 + 8 / GROUP)  # and a scale and an offset per group


def test_eight_bits_are_for_a_cpu():
    with pytest.raises(ModelError, match="int8 weights are for a CPU, not for cuda"):
        form_for(torch.int8, torch.device("cuda"))


@pytest.mark.parametrize(
    ("name", "features"), [("haswell", "+avx,+avx2,+fma"), ("nehalem", "+sse4.2")]
)
@pytest.mark.slow
def test_older_processors_compute_the_same(name, features):
    """Without the newest instructions: other tiles, and bytes multiplied one by one."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("names of x86 processors")
    environment = os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    again = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", __file__]
    subprocess.run([*again, "-m", "not slow"], env=environment, check=True, timeout=280)
