"""Whatever a kernel does, the judge says so in a sentence and shows no traceback of its own."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from minipaged.attention import paged_attention
from minipaged.cli import app
from minipaged.oracle import CONVENTIONS, Features, check_kernel

SMALL = Features(
    dtypes=("float32",),
    head_dims=(2, 4),
    block_sizes=(2, 4),
    kv_len=(0, 9),
    query_len=(0, 3),
    num_seqs=(1, 2),
    groups=(1, 2),
    num_kv_heads=(1, 2),
    right_window=False,
)
calls = 0


def raises(*args: Any, **options: Any) -> Any:
    raise RuntimeError("no kernel image is available\nfor execution on the device")


def exits(*args: Any, **options: Any) -> Any:
    sys.exit(3)


def hangs(*args: Any, **options: Any) -> Any:
    while True:
        time.sleep(0.01)


def swallows_an_alarm(*args: Any, **options: Any) -> Any:
    with contextlib.suppress(BaseException):
        hangs()
    hangs()


def returns_nothing(*args: Any, **options: Any) -> Any:
    paged_attention(*args, **options)


def returns_text(*args: Any, **options: Any) -> Any:
    return "done"


def returns_too_much(*args: Any, **options: Any) -> Any:
    out, lse = paged_attention(*args, **options)
    return out, lse, lse


def has_another_shape(*args: Any, **options: Any) -> Any:
    out, lse = paged_attention(*args, **options)
    return out.flatten(1), lse


def has_another_dtype(*args: Any, **options: Any) -> Any:
    out, lse = paged_attention(*args, **options)
    return out.double(), lse


def is_elsewhere(*args: Any, **options: Any) -> Any:
    out, lse = paged_attention(*args, **options)
    return out.to("meta"), lse


def changes_the_query(query: Any, *args: Any, **options: Any) -> Any:
    query *= options["scale"]
    return paged_attention(query, *args, **options | {"scale": 1.0})


def changes_the_cache(query: Any, key_cache: Any, *args: Any, **options: Any) -> Any:
    key_cache.nan_to_num_()
    return paged_attention(query, key_cache, *args, **options)


def is_random(*args: Any, **options: Any) -> Any:
    found = paged_attention(*args, **options)
    return nudged(found, torch.rand(()) < 0.5)


def counts_its_calls(*args: Any, **options: Any) -> Any:
    global calls
    calls += 1
    return nudged(paged_attention(*args, **options), calls % 3 == 0)


def nudged(found: Any, really: Any) -> Any:
    """Every number of the output the next larger one: right, but not the same."""
    out = found[0] if isinstance(found, tuple) else found
    if really:
        out.copy_(torch.nextafter(out, out + 1))
    return found


def leaves_rows_unwritten(*args: Any, **options: Any) -> Any:
    out, lse = paged_attention(*args, **options)
    new = torch.empty_like(out)
    new[:1] = out[:1]
    return new, lse


def refuses_everything(*args: Any, **options: Any) -> Any:
    raise NotImplementedError("head_dim must be 128")


def takes_too_little(query: Any, key_cache: Any) -> Any:
    return query


# Two calls differ, whichever law happens to compare them first.
ANY_COMPARISON = "variants repeatable poison placement sharing alone table padding batch order"
EXPECTED = {  # the kernel: the check that fails, and what the sentence says
    raises: ("raised", "RuntimeError: no kernel image is available"),
    exits: ("raised", "SystemExit: 3"),
    hangs: ("hung", "still running after"),
    swallows_an_alarm: ("hung", "still running after"),
    returns_nothing: ("shape", "returned nothing"),
    returns_text: ("shape", "returned a str"),
    returns_too_much: ("shape", "a tuple of"),
    has_another_shape: ("shape", "output is ["),
    has_another_dtype: ("dtype", "output is torch.float64"),
    is_elsewhere: ("device", "output is on meta"),
    changes_the_query: ("inputs", "argument 0, float32"),
    changes_the_cache: ("inputs", "argument 1, float32"),
    is_random: (ANY_COMPARISON, "numbers of the output"),
    counts_its_calls: (ANY_COMPARISON, "numbers of the output"),
    leaves_rows_unwritten: ("finite", "not finite"),
    takes_too_little: ("raised", "TypeError: "),
}


@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda k: k.__name__)
def test_the_verdict_names_what_it_does(kernel):
    check, sentence = EXPECTED[kernel]
    report = check_kernel(
        kernel,
        level=2,
        features=SMALL,
        max_examples=5,
        max_failures=1,
        call_limit_s=0.3,
        explain=False,
    )
    assert not report.passed
    (failure,) = report.failures
    assert failure.check in check
    assert sentence in failure.message
    assert "\n" not in failure.message
    assert "Traceback" not in str(report)


def test_a_kernel_that_declines_everything_has_not_passed():
    report = check_kernel(refuses_everything, level=1, features=SMALL, max_examples=5)
    assert not report.passed
    assert report.failures == []
    assert "nothing was judged" in str(report)
    assert "head_dim must be 128" in str(report)


def with_an_output(convention: str, harm):
    """A correct kernel that writes to a buffer of its caller's, and does some harm to it."""
    correct = CONVENTIONS[convention]().example()

    def kernel(*args: Any, **options: Any) -> Any:
        returned = correct(*args, **options)
        harm(next(x for x in (options.get("out"), returned, *args) if x is not None))
        return returned

    return kernel


def write_behind_it(out: torch.Tensor) -> None:
    storage = torch.tensor([], dtype=out.dtype).set_(out.untyped_storage())
    end = out.storage_offset() + out.numel()
    if end < len(storage):
        storage[end] = 0


def test_it_may_not_write_behind_its_output():
    kernel = with_an_output("vllm", write_behind_it)
    report = check_kernel(kernel, "vllm", level=1, max_examples=5, max_failures=1, explain=False)
    assert [f.check for f in report.failures] == ["guard"]
    assert "wrote outside the output" in report.failures[0].message


def test_the_example_itself_is_right():
    kernel = with_an_output("vllm", lambda out: None)
    assert check_kernel(kernel, "vllm", level=1, max_examples=5).passed


@pytest.mark.parametrize("kernel", [raises, has_another_shape, refuses_everything])
def test_the_command_line_says_the_same_and_exits_with_1(kernel):
    target = f"{__file__}:{kernel.__name__}"
    words = ("check", target, "--level", "1", "--max-examples", "3", "--features", "kv_len=0-9")
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    verdict = "NOT DECIDED" if kernel is refuses_everything else "FAILED"
    assert f"{kernel.__name__}: {verdict}" in result.stdout
    sentence = EXPECTED.get(kernel, ("", "head_dim must be 128"))[1]
    assert sentence in result.stdout


def test_results_that_are_no_torch_tensors_are_judged_by_form_too():
    def kernel(*args: Any, **options: Any) -> Any:
        return tuple(np.asarray(x, dtype=np.float64) for x in paged_attention(*args, **options))

    report = check_kernel(kernel, level=0, features=SMALL, max_examples=3, explain=False)
    assert [f.check for f in report.failures] == ["dtype"]
