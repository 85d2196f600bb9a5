"""Programs: a size, and acts on it. Drawn by Hypothesis, shrunk here, and told as text.

Two letters only, and few different beginnings: prefixes must meet often, or nothing is in danger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .contract import ManagerContract, Size

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Act = tuple[Any, ...]
"""The name of a judge's method, and its arguments."""


@dataclass(frozen=True)
class Program:
    """What is asked of one fresh manager; the judge adds that everybody ends."""

    size: Size
    acts: tuple[Act, ...]


def sizes(contract: ManagerContract, *, scheduler: bool, host: bool) -> SearchStrategy[Size]:
    """Tiny pools of all shapes that the contract allows."""
    from hypothesis import strategies as st

    few = contract.min_blocks + contract.reserved_blocks - 1
    limits: dict[str, Any] = {}
    if scheduler:
        limits = {
            "budget": st.sampled_from([64, 64, 6, 4, 3, 2, 1]),
            "max_seqs": st.sampled_from([16, 16, 3, 2, 1]),
        }
        if contract.windows:
            limits["window"] = st.sampled_from([None, None, None, None, None, 1, 2, 4])
        if contract.headroom:
            limits["headroom"] = st.sampled_from([0, 0, 0, 0, 1, 2])
    if host:
        limits["num_host_blocks"] = st.sampled_from([0, 0, 3, 6] if scheduler else [0, 4, 2, 6])
    if contract.cache_off:
        limits["cache"] = st.sampled_from([True, True, True, True, True, False])
    tiny, large = range(few, few + 6), (20, 24, 32, 40)
    num_blocks = st.sampled_from([*tiny, *tiny, *tiny, *large] if scheduler else tiny)
    return st.builds(
        Size,
        num_blocks=num_blocks,
        block_size=st.sampled_from([b for b in (2, 1, 3, 4, 2) if b >= contract.min_block_size]),
        **limits,
    )


def _prompts(longest: int) -> SearchStrategy[tuple[int, ...]]:
    from hypothesis import strategies as st

    texts = st.sampled_from(["00000000", "01101001", "01100111", "11111111", "01101011"])
    cut = st.builds(lambda text, n: tuple(map(int, text[:n])), texts, st.integers(1, longest))
    return st.one_of(cut, cut, st.lists(st.integers(0, 1), min_size=1, max_size=7).map(tuple))


def _keys(contract: ManagerContract, extra: str | None) -> SearchStrategy[str | None]:
    """Mostly none, seldom ``extra``, else mostly one of few: equal ones, too, must meet often."""
    from hypothesis import strategies as st

    return st.sampled_from([*[""] * 16, extra, *contract.keys[:5] * 4, *contract.keys[5:]])


def pool_acts(contract: ManagerContract) -> SearchStrategy[Act]:
    """One act on a pool."""
    from hypothesis import strategies as st

    def act(name: str, *args: Any) -> SearchStrategy[Act]:
        return st.tuples(st.just(name), *args)

    pick = st.integers(0, 5)
    picks = st.lists(pick, min_size=1, max_size=3).map(tuple)
    letters = st.lists(st.integers(0, 1), min_size=1, max_size=4).map(tuple)
    news = st.lists(letters, min_size=1, max_size=2).map(tuple)
    keys = _keys(contract, None)
    few = st.sampled_from([0, 0, 1, 2, 3])
    one = _prompts(8).map(lambda prompt: (prompt,))
    two = st.builds(lambda a, t: ((*a, t), (*a, 1 - t, t)), _prompts(7), st.integers(0, 1))
    kept = st.sampled_from([99, 99, 99, 0, 1, 2])
    return st.one_of(
        act("add", one, keys, few),
        act("add", one, keys, few),
        act("add", two, st.just(""), st.just(0)),
        act("step", picks, news, kept),
        act("step", picks, news, kept, st.one_of(st.just(()), _prompts(5))),
        act("decode", st.integers(0, 1), st.booleans()),
        act("fork", pick),
        act("fork", pick),
        act(
            "truncate", pick, st.integers(1, 4), st.lists(st.integers(0, 1), max_size=2).map(tuple)
        ),
        act("free", pick),
        act("free", pick, st.booleans()),
        act("cancel", picks, news, st.sampled_from([False, False, True])),
        act("slide", pick, st.integers(1, 3)),
        act("swap", pick, st.booleans()),
        st.one_of(act("reset"), act("free", pick), act("free", pick)),
    )


def scheduler_acts(contract: ManagerContract) -> SearchStrategy[Act]:
    """One act on a scheduler."""
    from hypothesis import strategies as st

    def act(name: str, *args: Any) -> SearchStrategy[Act]:
        return st.tuples(st.just(name), *args)

    keys = _keys(contract, "")
    samples = st.sampled_from([1, 1, 1, 2, 3])
    times = st.integers(1, 4)
    add = act("add", _prompts(8), st.integers(1, 7), keys, samples)
    return st.one_of(
        add,
        add,
        add,
        act("step", times),
        act("step", times),
        act("step", times),
        act("abort", st.integers(0, 5), st.booleans()),
        act("crowd", st.integers(4, 9), st.integers(1, 3), st.integers(2, 6)),
        st.one_of(
            act("reset"), act("fail", st.integers(0, 1)), act("unsampled", st.integers(0, 2))
        ),
    )


def programs(contract: ManagerContract, *, scheduler: bool, host: bool) -> SearchStrategy[Program]:
    """Whole programs."""
    from hypothesis import strategies as st

    acts = (scheduler_acts if scheduler else pool_acts)(contract)
    many = st.lists(acts, min_size=6, max_size=30).map(tuple)
    return st.builds(Program, sizes(contract, scheduler=scheduler, host=host), many)


# --- shrinking ---------------------------------------------------------------------------------


def shrunk(program: Program, fails: Callable[[Program], bool], until: float) -> Program:
    """The same failure from fewer and simpler acts; at ``perf_counter() > until`` it stops."""
    improved = True
    while improved:
        improved = False
        for candidate in _simpler(program):
            if time.perf_counter() > until:
                return program
            if fails(candidate):
                program, improved = candidate, True
                break
    return program


def _simpler(program: Program) -> Iterator[Program]:
    acts = program.acts
    for width in (len(acts) // 2, 4, 2, 1):
        if 0 < width <= len(acts):
            for start in range(len(acts) - width, -1, -width):
                yield replace(program, acts=acts[:start] + acts[start + width :])
    for i in range(len(acts) - 1, -1, -1):
        for act in _simpler_values(acts[i][1:]):
            yield replace(program, acts=(*acts[:i], (acts[i][0], *act), *acts[i + 1 :]))
    plain = {"budget": 64, "max_seqs": 16, "num_host_blocks": 0, "window": None, "headroom": 0}
    for name, value in plain.items():
        if getattr(program.size, name) != value:
            yield replace(program, size=replace(program.size, **{name: value}))


def _simpler_values(values: tuple) -> Iterator[tuple]:
    """Shorter tuples and smaller numbers, one change at a time, at any depth."""
    for i, value in enumerate(values):
        if isinstance(value, tuple):
            if len(value) > 1:
                yield (*values[:i], value[:-1], *values[i + 1 :])
            for inner in _simpler_values(value):
                yield (*values[:i], inner, *values[i + 1 :])
        elif isinstance(value, int) and value and not isinstance(value, bool):
            yield (*values[:i], 0 if value < 2 else value - 1, *values[i + 1 :])
