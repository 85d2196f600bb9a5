"""Counts what a test really exercised, so that a search that found nothing also proves it looked.

A property test that never produced a copy-on-write says nothing about copy-on-write, and stays
green. So the code of the test calls ``count`` where something interesting happens, and the test
names what must have happened:

    def test_the_machine():
        with must_happen("copy_on_write", "prefix_hit", "eviction", at_least=5):
            run_state_machine_as_test(Machine)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

_open: list[Counter[str]] = []


class NeverHappened(AssertionError):
    """The test passed, but without the events that would have given it meaning."""


def count(name: str, times: int = 1) -> None:
    """Note that ``name`` happened; every enclosing ``must_happen`` sees it."""
    for counter in _open:
        counter[name] += times


@contextmanager
def must_happen(*names: str, at_least: int = 1) -> Iterator[Counter[str]]:
    """Fail unless each of ``names`` is counted ``at_least`` times inside the ``with`` block.

    Gives the counter, for finer demands. A failure inside the block passes through unchanged.
    """
    counter = Counter[str]()
    _open.append(counter)
    try:
        yield counter
    finally:
        _open[:] = [c for c in _open if c is not counter]
    rare = {name: counter[name] for name in names if counter[name] < at_least}
    if rare:
        seen = ", ".join(f"{name} {n}x" for name, n in counter.most_common()) or "nothing"
        raise NeverHappened(
            f"{', '.join(f'{name} happened {n}x' for name, n in rare.items())}; at least "
            f"{at_least}x needed. Seen: {seen}. Steer the strategy there, or raise max_examples."
        )


def must_happen_in_module(*names: str, at_least: int = 1) -> Callable[..., object]:
    """The same demand on all tests of a module together, checked after its last one.

    Assign the result in the module: ``events = must_happen_in_module("swap", at_least=10)``. A run
    of only some of the module's tests (``-k``, ``::name``) may fail it, so prefer ``must_happen``.
    """

    @pytest.fixture(autouse=True, scope="module")
    def events() -> Iterator[Counter[str]]:
        with must_happen(*names, at_least=at_least) as counter:
            yield counter

    return events
