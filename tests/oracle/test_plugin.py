"""In pytest the judge is one test per check; unused, it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import minipaged.oracle.check  # noqa: F401 - before pytester takes a picture of `sys.modules`
from minipaged.oracle.plugin import conformance

pytest_plugins = "pytester"
ROOT = Path(__file__).parents[2]
KERNELS = """
from minipaged.attention import paged_attention

calls = 0

def right(*args, **options):
    global calls
    calls += 1
    return paged_attention(*args, **options)

def wrong(query, key_cache, value_cache, block_tables, seq_lens, starts, *, scale,
          return_lse=False):
    return paged_attention(query, key_cache, value_cache, block_tables, seq_lens, starts,
                           scale=scale * 1.1, return_lse=return_lse)

def raises(*args, **options):
    raise RuntimeError("no such device")
"""


@pytest.fixture
def run(pytester, request):
    """Runs pytest in an empty folder with a module of kernels in it."""
    pytester.makepyfile(thekernels=KERNELS)
    pytester.syspathinsert()
    pytester.makeini("[pytest]\npython_files = test_*.py\n")
    known = request.config.pluginmanager.has_plugin("minipaged")
    plugin = () if known else ("-p", "minipaged.oracle.plugin")

    def go(*words: str):
        quick = ("--minipaged-max-examples", "2", "-p", "no:cacheprovider")
        return pytester.runpytest_inprocess(*plugin, *quick, *words)

    return go


def test_a_kernel_named_on_the_command_line_is_a_test_per_check(run):
    found = run("--minipaged-check", "thekernels:right", "--minipaged-level", "1", "-v")
    found.assert_outcomes(passed=4)
    found.stdout.fnmatch_lines(["*thekernels:right::L1-lse-bound PASSED*"])


def test_a_failing_check_tells_its_story_without_our_traceback(run):
    found = run("--minipaged-check", "thekernels:wrong", "--minipaged-level", "1")
    found.assert_outcomes(passed=2, failed=2)
    found.stdout.fnmatch_lines(["*bound (level 1): sequence 0, *", "Recipe(lengths=*"])
    found.stdout.no_fnmatch_line("*Traceback*")
    found.stdout.no_fnmatch_line("*plugin.py*")


def test_after_a_kernel_that_raises_the_rest_is_skipped(run):
    found = run("--minipaged-check", "thekernels:raises", "--minipaged-level", "1")
    found.assert_outcomes(failed=1, skipped=3)


def test_a_decorated_function_is_a_test_per_check_and_the_kernel_is_judged_once(run, pytester):
    pytester.makepyfile(
        test_mine="""
        import thekernels
        from minipaged.oracle import Features
        from minipaged.oracle.plugin import conformance

        FEW = Features(kv_len=(0, 9), right_window=False, head_dims=(2,), dtypes=("float32",))

        @conformance(level=1, features=FEW)
        def test_factory():
            return thekernels.right

        test_kernel = conformance("native", level=0)(thekernels.wrong)

        def test_judged_once():
            before = thekernels.calls
            assert before > 0
        """
    )
    found = run("-v")
    assert found.ret == 0
    names = [line for line in found.outlines if "::" in line and "%]" in line]
    assert any("test_factory[L1-lse-bound] PASSED" in name for name in names)
    assert any("test_kernel[L0-finite] PASSED" in name for name in names)
    assert sum("test_kernel[" in name for name in names) == 2
    only = run("-v", "-k", "test_factory and L0")
    only.assert_outcomes(passed=2, deselected=len(names) - 2)


def test_known_failures_are_expected_and_an_unexpected_pass_is_loud(run, pytester):
    pytester.makefile(
        ".txt",
        xfails="""
        # what is known
        L1-bound  # scale is off, issue 7
        thekernels:wrong[L1-lse-bound]  # the same
        L0-finite  # was wrong once
        """,
    )
    words = "--minipaged-check", "thekernels:wrong", "--minipaged-level", "1"
    found = run(*words, "--minipaged-xfails-file", "xfails.txt", "-rxX")
    found.assert_outcomes(xfailed=2, passed=1, failed=1)
    found.stdout.fnmatch_lines(["*XPASS(strict)*was wrong once*"])
    found.stdout.fnmatch_lines(["*XFAIL*scale is off, issue 7*"])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("L1-bound", "a reason is missing, as in: L1-bound  # reason, issue"),
        ("L1-bond  # a typo", "no check L1-bond"),
    ],
)
def test_a_waiver_needs_a_reason_and_a_check(run, pytester, line, sentence):
    pytester.makefile(".txt", xfails=line)
    found = run("--minipaged-check", "thekernels:wrong", "--minipaged-xfails-file", "xfails.txt")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert any(sentence in text for text in (*found.errlines, *found.outlines))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["thekernels:rigth"], "thekernels has no 'rigth'; the nearest: right"),
        (["thekernels:right", "--minipaged-convention", "vlm"], "no convention 'vlm'"),
        (["thekernels:right", "--minipaged-level", "9"], "0 to 6 exist"),
        (["thekernels:right", "--minipaged-contract", "x=1"], "Contract has no 'x'"),
        (["thekernels:right", "--minipaged-features", "x=1"], "Features has no 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(run, words, sentence):
    found = run("--minipaged-check", *words)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert any(sentence in line for line in (*found.errlines, *found.outlines))


def test_without_hypothesis_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setattr("minipaged.oracle.plugin._can_judge", lambda: False)
    found = run("--minipaged-check", "thekernels:right")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert any("pip install 'minipaged[testing]'" in line for line in found.errlines)
    with pytest.raises(ImportError, match="minipaged"):
        conformance()


def test_unused_it_loads_nothing(tmp_path, request):
    """Not even with Hypothesis missing does it disturb anybody's tests."""
    (tmp_path / "conftest.py").write_text(
        "import sys\nsys.modules['hypothesis'] = None\n\n"
        "def pytest_unconfigure():\n"
        "    heavy = {'torch', 'numpy', 'numba', 'typer'} & set(sys.modules)\n"
        "    print('loaded:', sorted(heavy))\n"
    )
    (tmp_path / "test_theirs.py").write_text("def test_theirs(): pass\n")
    known = request.config.pluginmanager.has_plugin("minipaged")
    plugin = [] if known else ["-p", "minipaged.oracle.plugin"]
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import pytest; pytest.main(sys.argv[1:])"
    )
    words = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider", "-s", *plugin]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "loaded: []" in done.stdout
