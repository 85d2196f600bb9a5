"""Kernels keep to their budget of machine code on every architecture, and the page tells the truth.

A compiler may put in local memory, which is DRAM, what a kernel's author believed to be in
registers; a Python float makes a sum float64. Neither is wrong, and both are slow. Here they fail.
"""

from __future__ import annotations

import pytest

from support.cuda_budget import (
    OTHERS,
    PAGE,
    PRODUCTION,
    Budget,
    in_loop,
    measure,
    row,
    tools,
)
from support.cuda_compiled import need_numba_cuda, need_tools

need_numba_cuda()
need_tools()

TEXT = PAGE.read_text(encoding="utf-8")
ALL = [
    pytest.param(
        budget,
        arch,
        id=f"{budget.what}, sm_{arch[0]}{arch[1]}",
        marks=() if arch in budget.quick else pytest.mark.slow,
    )
    for budget in (*PRODUCTION, *OTHERS)
    for arch in budget.archs
]


@pytest.mark.parametrize(("budget", "arch"), ALL)
def test_a_kernel_keeps_to_its_budget(budget: Budget, arch):
    found = measure(budget, arch)
    assert found.spill_bytes == found.stack_bytes == found.num_local == 0
    assert found.num_float64 == 0
    assert found.registers <= budget.registers
    assert found.hot_loop_len <= budget.loop
    assert budget.loads in (None, in_loop(found, "LDG", "128"))
    assert in_loop(found, "HMMA") == budget.products


@pytest.mark.parametrize(("budget", "arch"), ALL)
def test_the_page_says_what_it_costs(budget: Budget, arch):
    if tools() not in TEXT:
        pytest.skip(f"the page was made by other compilers than {tools()}")
    assert row(budget, arch) in TEXT, "python tests/meta/cuda_budget/update_page.py"


def test_the_page_has_a_line_for_every_kernel_and_architecture():
    kernels = [f"| {b.what} | {a[0]}{a[1]} |" for b in (*PRODUCTION, *OTHERS) for a in b.archs]
    lines = [line for line in TEXT.splitlines() if line.startswith("| ") and " | " in line]
    begun = [line for line in lines if any(line.startswith(kernel) for kernel in kernels)]
    assert len(begun) == len(kernels)
