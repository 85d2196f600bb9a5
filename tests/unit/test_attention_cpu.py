"""The compiled path beyond the laws: its numbers, its threads, its writer, what it leaves alone."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from minipaged.attention import cpu, cpu_plan, cpu_primitives
from minipaged.attention.cpu import cpu_paged_attention, cpu_write_kv, warm_up
from support.attention_problems import Spec

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@numba.njit
def _exp_all(x):
    return np.array([cpu_primitives.exp(n) for n in x])


@numba.njit
def _tanh_all(x):
    return np.array([cpu_primitives.tanh(n) for n in x])


@numba.njit
def _widen_all(x):
    return np.array([cpu_primitives.widen(n) for n in x])


def test_exp_is_right_to_a_few_units_in_the_last_place():
    x = np.concatenate([np.linspace(-86.99, 0, 100_001), -np.logspace(-9, 1, 1001)]).astype("f4")
    exact = np.exp(x.astype("f8"))
    assert (np.abs(_exp_all(x) - exact) / exact).max() < 3e-7
    assert _exp_all(np.array([0, -0.0, -88, -1e30, -np.inf], "f4")).tolist() == [1, 1, 0, 0, 0]
    assert np.isnan(_exp_all(np.array([np.nan], "f4")))
    assert _exp_all(np.array([-1.0])) == math.exp(-1)


def test_tanh_is_right_to_an_absolute_error():
    x = np.concatenate([np.linspace(-20, 20, 100_001), np.logspace(-9, 1, 1001)]).astype("f4")
    assert np.abs(_tanh_all(x) - np.tanh(x.astype("f8"))).max() < 2e-7
    assert _tanh_all(np.array([0, 1e30, -1e30], "f4")).tolist() == [0, 1, -1]


@pytest.mark.parametrize(("half", "bits"), [(torch.float16, "u2"), (torch.bfloat16, "i2")])
def test_every_half_precision_number_is_widened_exactly(half, bits):
    every = np.arange(2**16, dtype="u4").astype("u2").view(bits)
    expected = torch.from_numpy(every.view("i2").copy()).view(half).float().numpy()
    np.testing.assert_array_equal(_widen_all(every), expected)


@pytest.fixture
def two_threads():
    """Two threads where there are two; torch has one in tests."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one processor: NUMBA_NUM_THREADS is 1")
    before = torch.get_num_threads()
    cpu.num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


LARGE = {
    "one long decode, whose splits are shared out": Spec(((1, 2000),), 2, 3, 64, 64, 16),
    "a few prompts": Spec(((150, 150), (40, 300)), 3, 2, 32, 48, 16, window=70, sinks=True),
    "a ragged decode": Spec(tuple((1, n) for n in range(0, 700, 37)), 2, 4, 32, 32, 8, "bfloat16"),
}


@pytest.mark.parametrize("name", LARGE)
def test_threads_change_no_bit(name, two_threads, monkeypatch):
    problem = LARGE[name].build()
    assert cpu.num_threads() == 2
    out, lse = problem(cpu_paged_attention)
    torch.set_num_threads(1)
    assert cpu.num_threads() == 1
    out_1, lse_1 = problem(cpu_paged_attention)
    assert torch.equal(out, out_1)
    assert torch.equal(lse, lse_1)


def test_a_long_decode_is_split_up_for_threads_and_small_work_is_not(two_threads, monkeypatch):
    plans = []

    def spy(problem, work, num_threads, attend=cpu_plan.attend):
        sound = attend(problem, work, num_threads)
        plans.append((bool(problem["split_up"][0]), int(problem["num_items"][0])))
        return sound

    monkeypatch.setattr(cpu_plan, "attend", spy)
    spec = LARGE["one long decode, whose splits are shared out"]
    spec.build()(cpu_paged_attention)
    replace(spec, lengths=((1, 300),)).build()(cpu_paged_attention)
    assert plans == [(True, 2 * 8), (False, 2)]


def in_a_new_process(code: str) -> list[str]:
    """The words it prints, where the environment does not limit threads as it does here."""
    environment = {k: x for k, x in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", code]
    options = {"cwd": Path(__file__).parents[2], "env": environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    return done.stdout.split()


def test_torch_keeps_its_threads_when_numba_starts():
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from minipaged.attention import cpu\n"
        "print(cpu.num_threads(), torch.get_num_threads())"
    )
    assert in_a_new_process(code) == ["1", "1"]


def test_importing_attention_does_not_import_numba():
    code = "import minipaged.attention, sys; print('numba' in sys.modules)"
    assert in_a_new_process(code) == ["False"]


def test_warm_up_says_how_long_it_took():
    assert warm_up(torch.float32) > 0
    assert warm_up(torch.float32) < 1  # nothing is left to compile


ROOT = Path(cpu.__file__).parents[1]
COMPILED = {
    path.stem: path
    for path in (
        *ROOT.glob("attention/cpu_*.py"),
        ROOT / "linear/kernels.py",
        ROOT / "linear/microkernels.py",
        ROOT / "models/cpu_step.py",
    )
}


def compiled_into(stem: str) -> set[str]:
    """The files of compiled code that this one imports, and those that they import."""
    nodes = ast.walk(ast.parse(COMPILED[stem].read_text()))
    names = {
        name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minipaged")
        for name in (node.module.rpartition(".")[2], *(alias.name for alias in node.names))
    }
    near = names & {*COMPILED}
    return near.union(*map(compiled_into, near))


@pytest.mark.parametrize("stem", ["cpu_kernels", "kernels", "cpu_step"])
def test_the_cache_of_compiled_code_knows_all_its_sources(stem):
    """Numba sees a change only in the file of what it caches; `version_of` must name the others."""
    named = set(re.findall(r"\b(\w+)\.__file__", COMPILED[stem].read_text()))
    assert named | {"cpu_primitives"} == compiled_into(stem) | {"cpu_primitives"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("storage", ["NHD", "HND", "interleaved"])
def test_what_is_written_is_there_and_nothing_else(dtype, storage):
    num_blocks, block_size, num_heads, dim = 3, 4, 2, 5
    shape = {
        "NHD": (2, num_blocks, block_size, num_heads, dim),
        "HND": (2, num_blocks, num_heads, block_size, dim),
        "interleaved": (num_blocks, 2, block_size, num_heads, dim),
    }[storage]
    stored = torch.full(shape, torch.nan, dtype=dtype)
    caches = stored.transpose(0, 1) if storage == "interleaved" else stored
    caches = caches.transpose(2, 3) if storage == "HND" else caches
    key = torch.randn(4, 3 * num_heads, dim).to(dtype)[:, :num_heads]  # a slice of a fused output
    value = torch.randn(4, num_heads, dim).to(dtype)
    cpu_write_kv(key, value, *caches, torch.tensor([7, -1, 0, 11]))
    for rows, cache in zip((key, value), caches):
        slots = cache.reshape(num_blocks * block_size, num_heads, dim)
        assert torch.equal(slots[[7, 0, 11]], rows[[0, 2, 3]])
        assert slots.isnan().all(dim=-1).sum() == 9 * num_heads


def test_a_write_rounds_to_the_type_of_the_cache():
    caches = torch.zeros(2, 1, 2, 1, 3, dtype=torch.bfloat16)
    token = torch.randn(1, 1, 3)
    cpu_write_kv(token, token.expand(1, 1, 3), *caches, torch.tensor([1]))
    assert torch.equal(caches[0, 0, 1], token[0].bfloat16())


def test_a_write_of_nothing():
    caches = torch.zeros(2, 1, 2, 1, 3)
    cpu_write_kv(*torch.ones(2, 0, 1, 3), *caches, torch.tensor([], dtype=torch.int64))
    cpu_write_kv(*torch.ones(2, 2, 1, 3), *caches, torch.tensor([-1, -1]))
    assert not caches.any()


def test_a_query_may_be_a_slice_of_a_fused_projection():
    problem = Spec(((3, 9),), 2, 2, 8, 8).build()
    query = problem.arguments["query"]
    fused = torch.cat([query, torch.full_like(query, torch.nan)], dim=1)
    assert torch.equal(
        problem(cpu_paged_attention)[0], problem(cpu_paged_attention, query=fused[:, :4])[0]
    )
    scattered = torch.stack([query, torch.full_like(query, torch.nan)], dim=-1)[..., 0]
    assert scattered.stride(2) == 2
    assert torch.equal(
        problem(cpu_paged_attention)[0], problem(cpu_paged_attention, query=scattered)[0]
    )


def test_float32_queries_may_read_a_half_precision_cache():
    problem = Spec(((3, 9),), 2, 2, 8, 8, dtype="bfloat16").build()
    query = problem.arguments["query"].float() * 1.001
    out = cpu_paged_attention(**(problem.arguments | {"query": query}))
    assert out.dtype == torch.float32
    wide = {name: problem.arguments[name].float() for name in ("key_cache", "value_cache")}
    assert torch.equal(out, cpu_paged_attention(**(problem.arguments | {"query": query} | wide)))


def test_float64_queries_may_read_a_float32_cache():
    problem = Spec(((3, 9),), 2, 2, 8, 8, window=4).build()
    wide = {n: problem.arguments[n].double() for n in ("query", "key_cache", "value_cache")}
    out, lse = problem(cpu_paged_attention, query=wide["query"])
    assert (out.dtype, lse.dtype) == (torch.float64, torch.float64)
    out_wide, lse_wide = problem(cpu_paged_attention, **wide)
    assert torch.equal(out, out_wide)
    assert torch.equal(lse, lse_wide)
