"""The reference against attention in scalars, and its bounds against what may happen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minipaged.oracle import Features, NumericModel, Problem, Recipe, Spec, reference
from minipaged.oracle.strategies import recipes
from minipaged.oracle.truth import FORMATS, rounded

EVERYTHING = Features(
    head_dims=(1, 2, 3, 5),
    value_head_dims=(1, 2, 4),
    kv_forms=("float8_e4m3fn", "int8", "int4"),
    kv_scales=("tensor", "head", "token"),
    masks=("tree", "random"),
    alignments=("bottom-right", "top-left"),
    kv_len=(0, 9),
    query_len=(0, 5),
    num_seqs=(1, 2),
    groups=(1, 2),
    num_kv_heads=(1, 2),
)


def attend_in_scalars(problem: Problem, s: int, i: int, h: int) -> tuple[list[float], float]:
    """One row of output and its lse, in Python floats and `math` alone."""
    spec, kv_len, query_len = problem.spec, problem.kv_lens[s], problem.query_lens[s]
    position = i + (kv_len - query_len if spec.alignment == "bottom-right" else 0)
    kv_head = h // (problem.num_heads // problem.num_kv_heads)
    terms: list[tuple[float, list[float]]] = []
    for j in range(kv_len):
        if spec.causal and j > position:
            continue
        if spec.window[0] is not None and j < position - spec.window[0]:
            continue
        if spec.window[1] is not None and j > position + spec.window[1]:
            continue
        if spec.masks is not None and not spec.masks[s][i, j]:
            continue
        key = problem.key[s][j, kv_head].tolist()
        score = spec.scale * math.fsum(
            a * b for a, b in zip(problem.query[s][i, h].tolist(), key, strict=True)
        )
        if spec.softcap is not None:
            score = spec.softcap * math.tanh(score / spec.softcap)
        if spec.alibi_slopes is not None:
            score += float(spec.alibi_slopes[h]) * (j - position)
        terms.append((score, problem.value[s][j, kv_head].tolist()))
    if spec.sinks is not None:
        terms.append((float(spec.sinks[h]), [0.0] * problem.value_head_dim))
    if not terms:
        return [0.0] * problem.value_head_dim, -math.inf
    top = max(score for score, _ in terms)
    total = math.fsum(math.exp(score - top) for score, _ in terms)
    out = [
        math.fsum(math.exp(score - top) * value[d] for score, value in terms) / total
        for d in range(problem.value_head_dim)
    ]
    return out, top + math.log(total)


@given(recipes(EVERYTHING))
def test_the_reference_is_attention_written_out_in_scalars(recipe):
    problem = recipe.build().problem
    truth = reference(problem)
    for s in range(problem.num_seqs):
        for i in range(problem.query_lens[s]):
            for h in range(problem.num_heads):
                out, lse = attend_in_scalars(problem, s, i, h)
                np.testing.assert_allclose(truth.out[s][i, h], out, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(truth.lse[s][i, h], lse, rtol=1e-9, atol=1e-9)


def one_head(spec: Spec, query_len: int = 3, kv_len: int = 3) -> Problem:
    """All scores 0, so that the output is the mean of the values 1, 2, 4, ... that are seen."""
    values = 2.0 ** np.arange(kv_len)[:, None, None]
    return Problem((np.zeros((query_len, 1, 1)),), (np.zeros((kv_len, 1, 1)),), (values,), spec)


@pytest.mark.parametrize(
    ("spec", "means"),
    [
        (Spec(1.0), [1, 3 / 2, 7 / 3]),
        (Spec(1.0, causal=False), [7 / 3, 7 / 3, 7 / 3]),
        (Spec(1.0, window=(0, None)), [1, 2, 4]),
        (Spec(1.0, window=(1, None)), [1, 3 / 2, 6 / 2]),
        (Spec(1.0, causal=False, window=(0, 1)), [3 / 2, 6 / 2, 4]),
        (Spec(1.0, causal=False, window=(None, 0)), [1, 3 / 2, 7 / 3]),
        (Spec(1.0, sinks=np.zeros(1)), [1 / 2, 3 / 3, 7 / 4]),
    ],
    ids=["causal", "full", "only itself", "itself and one before", "one after", "right 0", "sink"],
)
def test_which_keys_are_seen(spec, means):
    assert reference(one_head(spec)).out[0].ravel().tolist() == pytest.approx(means)


def test_bottom_right_and_top_left_differ_where_queries_are_fewer_than_keys():
    newest = reference(one_head(Spec(1.0), query_len=2)).out[0].ravel()
    oldest = reference(one_head(Spec(1.0, alignment="top-left"), query_len=2)).out[0].ravel()
    assert newest.tolist() == pytest.approx([3 / 2, 7 / 3])
    assert oldest.tolist() == pytest.approx([1, 3 / 2])


def test_a_query_before_the_first_key_sees_nothing():
    truth = reference(one_head(Spec(1.0), query_len=4, kv_len=2))
    assert truth.out[0].ravel().tolist() == pytest.approx([0, 0, 1, 3 / 2])
    assert truth.lse[0].ravel().tolist() == pytest.approx([-math.inf, -math.inf, 0, math.log(2)])


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
@given(seed=st.integers(0, 10_000))
def test_rounding_is_what_the_machine_does(name, seed):
    dtype = getattr(torch, name)
    exponents = np.random.default_rng(seed).uniform(-30, 20, 200)
    numbers = np.random.default_rng(seed + 1).choice([-1, 1], 200) * 2.0**exponents
    numbers = torch.tensor(numbers).float().clamp(-FORMATS[name].max, FORMATS[name].max)
    expected = numbers.to(dtype).double().numpy()
    assert rounded(numbers.double().numpy(), name).tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_a_byte_has_the_values_that_the_machine_gives_it(name):
    every = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).double()
    assert FORMATS[name].values.tolist() == every[every.isfinite()].unique().tolist()


MODELS = {
    "float32": NumericModel(),
    "bfloat16": NumericModel(p="bfloat16"),
    "float16": NumericModel(p="float16"),
}


def kernel_in(problem: Problem, s: int, h: int, generator: np.random.Generator) -> np.ndarray:
    """An honest kernel's output of one head: float32 sums in any order, weights rounded."""
    dtype = getattr(torch, problem.dtype)
    group = problem.num_heads // problem.num_kv_heads
    order = generator.permutation(problem.kv_lens[s])
    q, k, v = (
        torch.tensor(x).float()
        for x in (
            problem.query[s][:, h],
            problem.key[s][order, h // group],
            problem.value[s][order, h // group],
        )
    )
    scores = (q @ k.T) * problem.spec.scale
    scores[torch.tensor(~problem.visible(s)[:, order])] = -torch.inf
    top = scores.amax(1, keepdim=True).nan_to_num(neginf=0.0)
    weights = torch.exp(scores - top)
    total = weights.sum(1, keepdim=True)
    out = (weights.to(dtype).float() @ v) / total
    return out.nan_to_num(0.0).to(dtype).double().numpy()


@pytest.mark.parametrize("dtype", MODELS)
@given(data=st.data())
def test_an_honest_kernel_is_never_out_of_bounds(dtype, data):
    features = Features(dtypes=(dtype,), softcap=False, alibi=False, sinks=False, kv_len=(1, 60))
    recipe = data.draw(recipes(features))
    problem = recipe.build().problem
    truth = reference(problem, MODELS[dtype])
    for s in range(problem.num_seqs):
        for h in range(problem.num_heads):
            got = kernel_in(problem, s, h, np.random.default_rng(recipe.content))
            error = np.abs(got - truth.out[s][:, h])
            assert (error <= truth.out_bound[s][:, h]).all(), str(recipe)


@given(seed=st.integers(0, 10_000), spread=st.sampled_from([0.3, 3.0, 30.0]))
def test_the_bound_holds_for_the_worst_errors_of_the_scores(seed, spread):
    """Scores wrong by as much as the model allows, in the direction that hurts one element most."""
    recipe = Recipe(lengths=((1, 7),), values="normal", content=seed, head_dim=3)
    problem = recipe.build().problem
    problem.query[0][:] = rounded(problem.query[0] * spread, "float32")
    truth = reference(problem)
    q, k, v = problem.query[0][0, 0], problem.key[0][:, 0], problem.value[0][:, 0]
    scores = problem.spec.scale * (k @ q)
    u = 2.0**-24
    magnitudes = problem.spec.scale * (np.abs(k) @ np.abs(q))
    delta = (3 + 4) * u * magnitudes + 4 * u * np.abs(scores)
    for d in range(v.shape[1]):
        pushed = scores + delta * np.sign(v[:, d] - truth.out[0][0, 0, d])
        weights = np.exp(pushed - pushed.max())
        out = (weights @ v[:, d]) / weights.sum()
        assert abs(out - truth.out[0][0, 0, d]) <= truth.out_bound[0][0, 0, d]


def test_numbers_that_vanish_are_nobodys_error():
    """A weight of 2^-127 may be taken for zero, as processors do with subnormal numbers."""
    far = np.array([[[0.0]], [[-127 * math.log(2)]]])
    problem = Problem((np.ones((1, 1, 1)),), (far,), (np.array([[[0.0]], [[1.0]]]),), Spec(1.0))
    truth = reference(problem)
    assert 0 < truth.out[0][0, 0, 0] < truth.out_bound[0][0, 0, 0] < 1e-37


@pytest.mark.parametrize("dtype", MODELS)
def test_the_bound_sees_one_key_of_sixty_dropped(dtype):
    recipe = Recipe(lengths=((1, 60),), values="counting", head_dim=16, block_size=16, dtype=dtype)
    problem = recipe.build().problem
    truth = reference(problem, MODELS[dtype])
    short = Problem(problem.query, (problem.key[0][:-1],), (problem.value[0][:-1],), problem.spec)
    short = reference(Problem(short.query, short.key, short.value, Spec(problem.spec.scale, False)))
    error = np.abs(rounded(short.out[0], dtype) - truth.out[0])
    assert (error > truth.out_bound[0]).any()


def test_the_statistic_expects_what_roundings_give():
    """Mean squared error over predicted variance is near 1 for bfloat16, far above for a bias."""
    recipe = Recipe(lengths=((8, 500),), head_dim=64, block_size=16, dtype="bfloat16")
    problem = recipe.build().problem
    truth = reference(problem, MODELS["bfloat16"])
    got = kernel_in(problem, 0, 0, np.random.default_rng(0))
    honest = ((got - truth.out[0][:, 0]) ** 2 / truth.out_variance[0][:, 0]).mean()
    assert 0.2 < honest < 2
    biased = ((got * 1.01 - truth.out[0][:, 0]) ** 2 / truth.out_variance[0][:, 0]).mean()
    assert biased > 4


def test_sizes_that_do_not_fit_are_named():
    q, k, v = np.zeros((1, 3, 2)), np.zeros((4, 2, 2)), np.zeros((4, 2, 2))
    with pytest.raises(ValueError, match=r"query \(1, 3, 2\).*multiple of num_kv_heads"):
        Problem((q,), (k,), (v,), Spec(1.0))
