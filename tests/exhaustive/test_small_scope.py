"""Every program of a few acts on a pool of a few blocks, each checked after each act.

Most faults of block managers need very little to show: two sequences, three blocks, four acts.
Within these scopes luck has no part, and a failure is told as the shortest program leading to it.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from support.events import must_happen_in_module
from support.programs import SCOPES, as_text, explore

DEEP = os.environ.get("MINIPAGED_PROFILE") == "deep"

events = must_happen_in_module(
    "aborted step",
    "adoption of a twin",
    "adoption without a copy",
    "cancelled step",
    "copy of a published block",
    "copy-on-write",
    "eviction",
    "last sibling writes in place",
    "orphan",
    "prefix hit",
    "refused move",
    "refused step",
    "rejected draft",
    "swap in",
    "swap out",
    "truncation into a published block",
    "window passed a block",
    at_least=100,
)


@pytest.mark.invariant(1, 2, 3, 4, 5, 7, 8, 13)
@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.name)
def test_every_short_program_keeps_every_law(scope):
    report = explore(replace(scope, length=scope.length + DEEP))
    if report.failure is not None:
        report.failure.add_note(f"after: {as_text(report.program)}")
        raise report.failure
    print(f"{report.num_programs} programs, {report.num_states} states, {report.num_runs} acts")
    assert report.num_programs > 1000
