"""A failing case on disk shows the same failure again, to whoever opens it and with what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minipaged.attention import paged_attention
from minipaged.oracle import Contract, Failure, Features, Recipe, check_kernel, repro
from minipaged.oracle.conventions import CONVENTIONS, find_convention
from minipaged.oracle.counterexample import load
from minipaged.oracle.keeping import save
from minipaged.oracle.subject import Subject
from minipaged.oracle.truth import reference

KERNELS = """
import torch
from minipaged.attention import paged_attention as right
mended = False

def one_key_short(query, key_cache, value_cache, block_tables, seq_lens, starts, *, scale,
                  return_lse=False):
    lens = seq_lens if mended else (seq_lens - 1).clamp(min=0)
    return right(query, key_cache, value_cache, block_tables, lens, starts, scale=scale,
                 return_lse=return_lse)

def no_lse(query, key_cache, value_cache, block_tables, seq_lens, starts, *, scale):
    return right(query, key_cache, value_cache, block_tables, seq_lens, starts, scale=2 * scale)

def sees_poison(query, key_cache, value_cache, *rest, **options):
    out, lse = right(query, key_cache, value_cache, *rest, **options)
    return out + value_cache.isnan().any() * 0.5, lse

def forgets_rows(query, *rest, **options):
    out, lse = right(query, *rest, **options)
    new = torch.empty_like(out)
    new[:1] = out[:1]
    return new, lse

def drifts(query, *rest, **options):
    drifts.calls += 1
    found = right(query, *rest, **options)
    out = found[0] if options.get("return_lse") else found
    if drifts.calls % 2:
        out.copy_(torch.nextafter(out, out + 1))
    return found
drifts.calls = 0
"""
FEATURES = Features(
    head_dims=(2, 3), kv_len=(0, 9), query_len=(0, 3), num_seqs=(1, 2), left_window=False,
    right_window=False, dtypes=("float32",), softcap=False, alibi=False, sinks=False,
    causal=(True,),
)  # fmt: skip


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """The folder that a user stands in, with a module of kernels."""
    (tmp_path / "theirs.py").write_text(KERNELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    import theirs  # pyright: ignore[reportMissingImports]

    return theirs


def judged(kernel, **options):
    usual = {"level": 2, "max_examples": 5, "features": FEATURES, "max_failures": 1}
    return check_kernel(kernel, **{"save": "kept", "explain": False, **usual, **options})


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(path.with_suffix(".py"))]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_a_failure_is_kept_with_everything_that_matters(kernels):
    (failure,) = judged(kernels.one_key_short).failures
    assert failure.path.parent.name == "kept"
    found = load(failure.path)
    assert (found.kernel, found.convention) == ("theirs:one_key_short", "native")
    assert (found.check, found.message) == (failure.check, failure.message)
    assert found.recipe == failure.case
    assert found.features == FEATURES
    assert found.contract == find_convention("native").contract
    assert found.replay() == failure.message


def test_numpy_alone_can_read_it(kernels):
    (failure,) = judged(kernels.one_key_short).failures
    problem = failure.case.build().problem
    truth = reference(problem)
    with np.load(failure.path, allow_pickle=False) as data:
        assert np.array_equal(data["query_0"], problem.query[0])
        assert np.array_equal(data["key_0"], problem.key[0])
        assert np.array_equal(data["value_0"], problem.value[0])
        assert np.array_equal(data["out_0"], truth.out[0])
        assert np.array_equal(data["block_tables"], failure.case.build().table)
        assert json.loads(str(data["spec"]))["scale"] == problem.spec.scale
        assert json.loads(str(data["placement"]))["block_size"] == failure.case.block_size


def test_the_script_needs_nothing_of_ours_and_takes_another_kernel(kernels, capsys):
    (failure,) = judged(kernels.one_key_short).failures
    source = failure.path.with_suffix(".py").read_text(encoding="utf-8")
    assert "hypothesis" not in source
    assert "import minipaged" not in source
    assert "from minipaged" not in source
    done = run_script(failure.path)
    assert done.returncode == 1, done.stderr
    assert "times the bound" in done.stdout
    assert repro.main(str(failure.path), ["minipaged.attention:paged_attention"]) == 0
    assert "now: right" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["no_lse", "sees_poison", "forgets_rows"])
def test_faults_of_other_kinds_show_in_the_script_too(kernels, name):
    """Without lse; in a changed placement only; in memory that nobody wrote."""
    features = FEATURES.only(lse=name != "no_lse")
    (failure,) = judged(getattr(kernels, name), features=features).failures
    assert "from minipaged" not in failure.path.with_suffix(".py").read_text(encoding="utf-8")
    with np.load(failure.path, allow_pickle=False) as data:
        assert repro.judge(data, getattr(kernels, name))
        if name != "no_lse":
            assert repro.judge(data, paged_attention) is None


def test_so_do_those_in_formats_that_numpy_does_not_know(kernels):
    features = FEATURES.only(dtypes=("bfloat16",), kv_forms=("float8_e4m3fn",))

    def kernel(*args, **options):
        out, lse = kernels.right(*args, **options)
        return out * 1.1, lse

    (failure,) = judged(kernel, features=features).failures
    assert failure.check == "bound"
    with np.load(failure.path, allow_pickle=False) as data:
        assert "times the bound" in (repro.judge(data, kernel) or "")
        assert repro.judge(data, kernels.right) is None


def test_what_shows_only_between_calls_is_replayed_with_minipaged(kernels):
    (failure,) = judged(kernels.drifts).failures
    assert failure.check in ("variants", "repeatable")
    assert "from minipaged" in failure.path.with_suffix(".py").read_text(encoding="utf-8")
    assert "numbers of the output" in (load(failure.path).replay() or "")


def test_kept_cases_come_first_and_mended_ones_are_reported(kernels):
    (first,) = judged(kernels.one_key_short).failures
    (again,) = judged(kernels.one_key_short).failures
    assert again.path == first.path
    assert again.calls < first.calls or again.calls <= 3
    kernels.mended = True
    report = judged(kernels.one_key_short)
    assert report.passed
    assert report.figures["counterexamples fixed"] == [str(first.path)]


def test_a_kernel_that_returns_nonsense_is_kept_too(kernels):
    async def kernel(*args, **options): ...

    with pytest.warns(RuntimeWarning, match="never awaited"):
        (failure,) = judged(kernel, name="it").failures
    assert failure.check == "shape"
    assert failure.path.exists()


def test_cases_of_another_kernel_are_left_alone(kernels):
    judged(kernels.one_key_short)
    report = judged(paged_attention)
    assert report.passed
    assert "counterexamples fixed" not in report.figures


def test_a_kernel_without_an_address_is_known_by_its_name(kernels):
    kernel = lambda *args, **options: kernels.forgets_rows(*args, **options)  # noqa: E731
    (failure,) = judged(kernel, name="mine").failures
    assert load(failure.path).kernel == ""
    assert load(failure.path).replay(kernel)
    assert repro.main(str(failure.path), []) == 2


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "a.npz").write_text("not a zip")
    np.savez(tmp_path / "b.npz", x=1)
    for name in ("a.npz", "b.npz", "none.npz"):
        with pytest.raises(ValueError, match="is not a counterexample"):
            load(tmp_path / name)
    assert judged(paged_attention, save=tmp_path).passed


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_can_keep_a_case(name, tmp_path):
    how = find_convention(name)
    kernel = how.example()
    features = how.features
    recipe = Recipe(
        ((features.query_len[0] or 1, max(3, features.kv_len[0])),),
        head_dim=features.head_dims[0],
        block_size=features.block_sizes[0],
        dtype=features.dtypes[0],
        num_kv_heads=features.num_kv_heads[0],
        group=features.groups[0],
        latent=features.latent,
        value_head_dim=features.value_head_dims[0] if features.latent else 0,
    )
    subject = Subject(how.fit(kernel)[0], how, features, how.contract)
    path = save(Failure("bound", 1, "it is off", recipe), subject, kernel, tmp_path, "it")
    found = load(path)
    assert found.recipe == recipe
    assert found.contract == how.contract
    assert isinstance(found.contract, Contract)
    assert found.replay(kernel) is None
