"""Short programs, each aimed at one class of fault that block managers have had; no judge.

They come before the random ones: most faults die here, in a few milliseconds. ``z(n)`` is a prompt
of n zeros, ``o(n)`` one of n ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .contract import ManagerContract, Size
from .programs import Act, Program

Tokens = tuple[int, ...]
ALL = 99  # every token of a step is kept


def z(count: int) -> Tokens:
    """So many zeros."""
    return (0,) * count


def o(count: int) -> Tokens:
    """So many ones."""
    return (1,) * count


def _add(*prompts: Tokens, key: str | None = "", num_new: int = 0) -> Act:
    return "add", prompts, key, num_new


def _step(picks: Tokens, *news: Tokens, kept: int = ALL, newcomer: Tokens = ()) -> Act:
    return "step", picks, news, kept, newcomer


def _free(*picks: int) -> list[Act]:
    return [("free", pick) for pick in picks]


def for_pools(contract: ManagerContract) -> Iterator[Program]:
    """What every pool with block tables is asked first."""
    for size in (2, 1, 3):
        yield from _sharing(size)
        yield from _copying(size)
        yield from _evicting(size)
        yield from _growing(size)
        yield from _moving(size)
    yield from _names(contract)
    yield from _many()


def _sharing(b: int) -> Iterator[Program]:
    """Hits: their length, who holds them, and when they begin to be found."""
    ends = [_add((*z(n), 1)[: n + extra]) for n in (b, 2 * b) for extra in (0, 1)]
    yield Program(Size(9, b), (*ends, *ends))
    yield Program(Size(9, b), (_add(z(2 * b)), _add(z(2 * b)), *_free(0), _add(z(2 * b + 1))))
    twice = (_add((*z(2 * b), 0), (*z(2 * b), 1)), ("decode", 0, True), ("decode", 1, False))
    yield Program(Size(9, b), (*twice, *_free(0), _add(o(2)), ("decode", 1, True)))
    yield Program(Size(9, b), (*twice, *_free(1), _add(o(2)), ("decode", 1, True)))
    for count in (3 * b, 4 * b, 5 * b):  # evict what a twin's continuation hangs on
        lost = (*_free(0), _add((2,) * count), *_free(1), _add((*z(2 * b), *o(b + 1))))
        yield Program(Size(9, b), (*twice, *lost))
    shared = (_add(z(2 * b + 1)), _add(z(2 * b + 1)), _add(z(b + 1)))
    for order in ((0, 0), (1, 1), (2, 0), (0, 1)):
        rest = (_add(o(b)), ("decode", 1, False), _add(z(2 * b + 1)))
        yield Program(Size(9, b), (*shared, *_free(*order), *rest))
    chunks = [_step((0,), z(1)) for _ in range(3 * b - 1)]
    yield Program(Size(9, b), (_add(z(3 * b), num_new=1), *chunks, _add(z(3 * b + 1))))
    begun = _add(z(3 * b), num_new=b + 1 if b > 1 else 1)
    yield Program(Size(9, b), (begun, _add(z(3 * b)), *_free(0), _add(z(3 * b + 1))))
    yield Program(Size(9, b), (_add(z(3 * b)), ("reset",), _add(z(3 * b)), ("decode", 0, False)))
    gone = (*_free(0), ("reset",), _add(z(3 * b)), _add(z(3 * b), key="x"), _add(z(3 * b)))
    yield Program(Size(9, b), (_add(z(3 * b)), *gone))


def _copying(b: int) -> Iterator[Program]:
    """Forks, copies, truncation, drafts, cancelled steps."""
    prompt = z(2 * b - 1) if b > 1 else z(2)
    family = (_add(prompt), ("fork", 0), ("fork", 1), ("fork", 0))
    on = (("decode", 0, True), ("decode", 1, True), ("decode", 0, False))
    yield Program(Size(16, b), (*family, *on))
    for order in ((0, 0, 0, 0), (3, 2, 1, 0), (1, 1, 0, 0)):
        yield Program(Size(16, b), (*family, ("decode", 0, True), *_free(*order), _add(prompt)))
    yield Program(Size(12, b), (*family, _step((1,), o(1)), _step((2,), z(1)), *_free(0), *on))
    yield Program(Size(12, b), (*family[:2], *_free(0), _step((0,), o(1)), _add(prompt)))
    yield Program(Size(4, b), (*family, *on))
    yield Program(Size(3, b), (*family[:2], *on))
    full = _add(z(2 * b))
    for back in range(1, b + 1):
        cut = ("truncate", 0, back, (1,))
        yield Program(Size(9, b), (full, cut, _add(z(2 * b + 1)), ("decode", 1, False)))
        shared = (full, ("fork", 0), ("truncate", 0, back, (1,)), _step((1,), o(1)))
        yield Program(Size(9, b), (*shared, *_free(0), _add(z(2 * b + 1)), ("decode", 0, False)))
        refill = (full, ("truncate", 0, back, ()), _step((0,), z(back)), _add(z(2 * b + 1)))
        yield Program(Size(9, b), refill)
        tight = ("truncate", 0, back, ()), _step((0,), o(1), newcomer=o(b + 1))
        yield Program(Size(4, b), (full, *tight, ("decode", 0, True)))
        yield Program(Size(3, b), (full, ("fork", 0), cut, *on, _add(z(2 * b))))
        both = (("truncate", 0, back, ()), ("fork", 0), *on, _add(z(2 * b)))
        for num_blocks in (3, 4):
            yield Program(Size(num_blocks, b), (full, *both))
        news = (z(1), z(1))
        two = (full, _add((*o(b), *z(b))), ("truncate", 0, back, ()), ("truncate", 1, back, ()))
        yield Program(Size(6, b), (*two, _step((0, 1), *news), ("decode", 0, False)))
    for kept in (0, 1, b):
        draft = _step((0,), z(2 * b), kept=kept)
        again = (_add(z(3 * b + 1)), _step((0,), o(2)), ("decode", 0, False))
        yield Program(Size(12, b), (_add(z(b + 1)), draft, *again))
        yield Program(Size(12, b), (_add(z(b + 1)), ("fork", 0), draft, *again))
    for go in (False, True):
        undone = ("cancel", (0, 1), (z(1), o(b + 1)), go)
        yield Program(Size(9, b), (*family[:2], undone, ("decode", 1, True), _add(prompt)))
        cut = (full, ("truncate", 0, 1, ()), ("cancel", (0,), (o(1),), go))
        yield Program(Size(5, b), (*cut, ("decode", 1, True), _add(z(2 * b + 1))))


def _evicting(b: int) -> Iterator[Program]:
    """Full pools: who is evicted, what is left of him, and that nothing happens by halves."""
    visit_z, visit_o = (_add(z(b + 1)), *_free(0)), (_add(o(b + 1)), *_free(0))
    other = (2,) * (b + 1)
    for first, then in ((visit_z, visit_o), (visit_o, visit_z)):
        third = (*visit_z, _add((*other, *other)), _add(z(b + 1)), _add(o(b + 1)))
        yield Program(Size(5, b), (*first, *then, *third))
    long = (_add(z(3 * b)), *_free(0))
    for count in (b, 2 * b, 3 * b, 4 * b):
        yield Program(Size(4, b), (*long, _add((2,) * count), *_free(0), _add(z(3 * b + 1))))
    for count in (1, b, 2 * b, 3 * b):
        found = (_add(z(3 * b) + o(count)), *_free(0), _add(z(3 * b + 1)))
        yield Program(Size(5, b), (*long, *found))
        yield Program(Size(5, b), (*long, _add((2,)), *found, ("decode", 0, True)))
    for tail in (z(b), o(b)):
        equal = [(_add(start + (3,) * b), *_free(0)) for start in ((4,) * b, (5,) * b)]
        parts = (*equal[0], *equal[1], _add((4,) * b + (3,) * b + tail))
        yield Program(Size(3, b), parts)
        yield Program(Size(4, b), (*parts, ("decode", 0, False)))
    grown = [("decode", 0, False)] * (2 * b + 1)
    yield Program(Size(3, b), (_add(z(b)), *grown, *_free(0), _add(z(3 * b)), ("decode", 0, True)))
    yield Program(Size(4, b), (_add(z(b)), _add(o(b)), *grown, *_free(0), *grown, _add(z(b + 1))))
    big = _add(z(4 * b + 1))
    yield Program(Size(4, b), (big, _add(z(4 * b)), *_free(0), big, _add(z(2 * b)), _add(o(3 * b))))
    busy = (_add(z(2 * b)), _add(o(b)))
    yield Program(Size(4, b), (*busy, big, _add(z(4 * b)), *_free(0), _add(z(3 * b))))
    forgotten = (_add(z(2 * b)), ("reset",), _add(o(b)), *_free(1, 0), _add((2,) * (3 * b)))
    yield Program(Size(5, b), (*forgotten, _add(o(b + 1))))
    pair = _add((*z(b), 0, *z(b)), (*z(b), 1, *o(b)))
    yield Program(Size(4, b), (pair, *_free(0), pair, *_free(0, 0), pair))


def _growing(b: int) -> Iterator[Program]:
    """Windows that pass blocks."""
    if b < 3:
        acts = (("slide", 0, 1), ("decode", 0, False), ("fork", 0), ("slide", 0, 1))
        more = (("decode", 1, True), ("slide", 1, 1), ("truncate", 0, 1, (1,)), *_free(0))
        yield Program(Size(9, b), (_add(z(3 * b + 1)), *acts, *more, _add(z(3 * b + 1))))
        two = (_add(z(3 * b)), _add(z(3 * b)), ("slide", 0, b), *_free(0), _add(z(3 * b + 1)))
        yield Program(Size(9, b), (*two, ("slide", 0, 1), ("slide", 0, b + 1), *_free(0, 0)))
        yield Program(Size(4, b), (*two, _add(o(b)), _add(z(3 * b + 1)), *_free(0, 0, 0)))


def _moving(b: int) -> Iterator[Program]:
    """Swapping out and in."""
    family = (_add(z(2 * b + 1)), ("fork", 0), _add(z(b + 1)))
    for everybody in (False, True):
        swaps = (("swap", 0, everybody), _add(o(b)), ("swap", 0, everybody), ("decode", 0, True))
        for host in (1, 2, 4, 8):
            size = Size(8, b, num_host_blocks=host)
            yield Program(size, (*family, *swaps, *swaps, *_free(0), _add(z(2 * b + 1))))
            tight = Size(4, b, num_host_blocks=host)
            full = (_add(z(2 * b)), ("swap", 0, everybody), _add(z(2 * b)), _add((2,) * b))
            yield Program(tight, (*full, ("swap", 0, everybody), *_free(0), ("swap", 0, True)))
            lost = (_add(z(2 * b + 1)), ("swap", 0, everybody), _add((2,) * (2 * b)))
            yield Program(tight, (*lost, ("swap", 0, everybody), *_free(1), ("swap", 0, True)))
            fresh = (_add(z(2 * b)), ("swap", 0, everybody), _add((2,) * (2 * b + 1)), *_free(1))
            yield Program(tight, (*fresh, ("swap", 0, everybody), ("decode", 0, False)))
            ended = (("swap", 0, everybody), ("free", 0, True), _add(z(2 * b)), ("free", 0, True))
            yield Program(size, (*family, *ended, ("swap", 0, True), ("decode", 0, True)))
    # Siblings share what somebody else publishes while they were away.
    twins = (_add(z(2 * b + 1)), ("fork", 0), ("swap", 1, True), ("reset",), ("swap", 1, True))
    for on in ((("decode", 0, False), ("decode", 1, True)), (_step((0,), o(1)), _step((1,), z(1)))):
        yield Program(Size(12, b, num_host_blocks=8), (*twins, _add(z(2 * b + 1)), *on))


def _names(contract: ManagerContract) -> Iterator[Program]:
    """Prefixes that are not the same must not be taken for the same."""
    for b in (1, 2):
        each = [_add(z(2 * b + 1), key=key) for key in contract.keys]
        yield Program(Size(8 + 8 * len(each), b), (*each, ("decode", 0, True), *each))
    digits = [(1, 23, 4), (12, 3, 4), (123, 1, 4), (1, 231, 4), (23, 1, 4), (3, 12, 4)]
    wide = [(258, 1, 4), (2, 513, 4), (65536, 0, 4), (0, 65536, 4), (2**31, 7, 4), (0, 7, 4)]
    yield Program(Size(40, 2), tuple(_add(prompt) for prompt in (*digits, *wide)))
    ends = [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3), (2, 1, 3), (3, 2, 1), (1, 1, 2)]
    yield Program(Size(60, 3), tuple(_add((*p, *q, 0)) for p in ends[:4] for q in ends[:3]))
    many = tuple(i * 7919 % 50021 for i in range(800))
    yield Program(Size(820, 1), (_add(many), _add((*many, 0))))


def _many() -> Iterator[Program]:
    """More holders than a small count can hold, more prefixes than a short name can tell apart."""
    for b in (2, 3):
        shared = (_add(z(2 * b + 1)), ("holders", 0, 300), ("decode", 1, False))
        yield Program(Size(320, b), (*shared, _add(z(2 * b + 1)), *_free(0), _add(o(b))))
    yield Program(Size(6010, 2), (("beginnings", 6000),))


# --- schedulers ----------------------------------------------------------------------------------


def _ask(prompt: Tokens, max_tokens: int, key: str = "", samples: int = 1) -> Act:
    return "add", prompt, max_tokens, key, samples


def for_schedulers(contract: ManagerContract) -> Iterator[Program]:
    """What every scheduler is asked first."""
    yield from _limits()
    for b in (2, 1, 3):
        yield from _tight(b)
        yield from _waiting(b)
        yield from _crowded(b)
        yield from _hitting(b)
    keys = tuple(_ask(z(5), 1, key) for key in contract.keys)
    yield Program(Size(10 + 3 * len(keys), 2), (*keys, ("step", 2), *keys))


def _limits() -> Iterator[Program]:
    """What can never fit is refused, what just fits is served."""
    for num_blocks, b in ((3, 4), (4, 2), (3, 1)):
        slots = num_blocks * b
        for prompt in (slots - 1, slots, slots + 1, slots + b):
            for max_tokens in (1, 2):
                asked = (_ask(z(prompt), max_tokens), ("step", 1), _ask(o(2), 1))
                yield Program(Size(num_blocks, b), asked)
    odd = (_ask(z(2), 0), _ask((), 2), _ask(z(2), -1), _ask(z(1), 3))
    for act in odd:
        yield Program(Size(4, 2), (act, ("step", 2)))
    crowd = tuple(_ask((i % 2, *z(3)), 3) for i in range(6))
    for budget, max_seqs in ((6, 16), (64, 2), (3, 16), (1, 16), (5, 3), (2, 1)):
        yield Program(Size(24, 2, budget, max_seqs), (*crowd, ("step", 4), *crowd[:2]))


def _tight(b: int) -> Iterator[Program]:
    """Too little room for all: who has to leave, who comes back, and with what."""
    starts = (z(b + 1), o(b + 1), (0, *o(b)), (1, *z(b)))
    for count in (2, 3, 4):
        asked = tuple(_ask(prompt, 2 * b + 1) for prompt in starts[:count])
        for num_blocks in (4, 5, 6):
            size = Size(num_blocks, b)
            yield Program(size, asked)
            yield Program(size, (*asked, ("step", b + 2), ("abort", 0), _ask(z(2 * b), 2)))
            yield Program(size, (*asked, ("step", b + 1), ("abort", count - 1), *asked[:1]))
            yield Program(size, (asked[0], ("step", 2), *asked[1:], ("fail", 1), ("step", 2)))
        for host in (1, 2, 6):
            size = Size(4, b, num_host_blocks=host)
            yield Program(size, asked)
            failing = [act for _ in range(2 * b + 2) for act in (("fail", 0), ("step", 1))]
            yield Program(size, (*asked, *failing))
            if count > 2:
                size = Size(2 * count, b, num_host_blocks=host)
            if host == 6:
                for steps in range(b + 1, 4 * b + 4):  # one of them brings somebody back
                    yield Program(size, (*asked, ("step", steps), ("fail", 0), ("step", 1)))
                    gone = ("step", 1), ("abort", 0, True)
                    yield Program(size, (*asked, ("step", steps - b), *gone, *gone, *asked[:1]))
        limits: dict[str, Any]
        for limits in ({"budget": 2}, {"budget": 3, "max_seqs": 2}, {"headroom": 1}):
            yield Program(Size(5, b, **limits), (*asked, ("step", 3), *asked[:1]))
    for num_blocks in (4, 5, 6, 7):
        size = Size(num_blocks, b, num_host_blocks=8)
        for ends in ((4 * b, b + 1, 3 * b), (b + 1, 3 * b, 2 * b), (2 * b, 2 * b + 1, 2 * b + 2)):
            yield Program(size, tuple(_ask(p, n) for p, n in zip(starts, ends) if n < 3 * b + 1))
    same = tuple(_ask(z(2 * b + 1), n) for n in (3, b + 2, 2 * b))
    for num_blocks in (4, 5):
        yield Program(Size(num_blocks, b), same)
        yield Program(Size(num_blocks, b), (*same, ("step", 3), ("reset",), *same[:1]))


def _waiting(b: int) -> Iterator[Program]:
    """Nobody waits for ever."""
    yield Program(Size(40, b), (_ask(z(2), 12 * b), ("step", 2), ("stream", (0, 1), 12)))
    small = Size(40, b, budget=4)
    yield Program(small, (_ask(z(2), 12 * b), ("step", 2), ("stream", z(3), 12)))
    big = (_ask(z(2 * b), 4 * b), ("step", 1), _ask(o(5 * b), 1))
    yield Program(Size(6, b), (*big, ("stream", (0,), 12)))
    for num_blocks in (6, 7, 8, 9):
        yield Program(Size(num_blocks, b, headroom=2), (_ask(z(b), 2), ("step", 1), *big[2:]))
    late = (_ask(z(b), 1), _ask(z(b) + o(8), 2), _ask((1,), 9))
    yield Program(Size(30, b, budget=4), late)
    yield Program(Size(12, b, headroom=2), (*big, *big[:1], _ask(o(4), 2), ("stream", (0,), 3)))
    yield Program(Size(12, b, budget=3), (_ask(z(8), 3), ("step", 1), ("abort", 0), _ask(z(8), 3)))
    long = (_ask(z(8), 3), _ask(z(8), 2), _ask(o(7), 2))
    for budget in (2, 3, 5, 9):
        yield Program(Size(20, b, budget=budget), (*long, ("step", 3), ("abort", 1), *long[1:2]))
        mixed = (_ask((1, 0), 9), ("step", 2), *long, ("step", 2), ("fail", 0), ("fail", 1))
        yield Program(Size(20, b, budget=budget), mixed)


def _crowded(b: int) -> Iterator[Program]:
    """Many run and many wait: the budget is used up to its end, and everybody enters at once."""
    for budget in (6, 9, 64):
        for many in (3, 5, 8):
            crowd = (("crowd", many, 1, 9), ("step", 3), ("crowd", 3, 2, 4), _ask(o(9), 3))
            again = (("step", 2), ("crowd", 2, 3, 2), ("step", 2))
            yield Program(Size(40, b, budget), (*crowd, *again))


def _hitting(b: int) -> Iterator[Program]:
    """Hits: in a queue, in a full pool, after an end, with samples and windows."""
    for count in (2 * b, 2 * b + 1, 3 * b):
        asked = _ask(z(count), 1)
        yield Program(
            Size(9, b), (asked, ("step", 2), asked, _ask(z(count), 3), ("step", 1), asked)
        )
        yield Program(Size(9, b), (asked, _ask(z(count), 2), _ask((*z(b), 1), 2)))
    held = (_ask(z(4 * b), 2), ("step", 1), _ask((*z(3 * b), 1), 1))
    yield Program(Size(6, b), held)
    cached = (_ask(z(3 * b), 1), ("step", 2))
    for num_blocks in (4, 5, 6):
        for more in (1, b, b + 1):
            busy = (_ask(o(b), b + 1), ("step", 1), _ask(z(3 * b) + o(more), 1))
            yield Program(Size(num_blocks, b), (*cached, *busy, ("step", 2), *cached))
    for samples in (2, 3):
        family = (_ask(z(b + 1), 2 * b + 1, "", samples), ("step", 2))
        for num_blocks in (4, 6, 16):
            yield Program(Size(num_blocks, b), (*family, ("step", 2), ("abort", 1), *cached))
            yield Program(Size(num_blocks, b), (*family, ("abort", 0), ("fail", 1), *cached))
            again = [act for i in range(b + 1) for act in (("unsampled", i % 3), ("step", 1))]
            yield Program(Size(num_blocks, b), (*family[:1], *again, ("fail", 1), *again))
            yield Program(Size(num_blocks, b, 2, window=b), (*family[:1], *again, *cached))
        for budget, max_seqs in ((64, 2), (64, 1), (2, 16)):
            yield Program(
                Size(16, b, budget, max_seqs), (_ask(z(b + 1), b + 2, "", samples), *cached)
            )
    for window in (1, b, 3):
        yield Program(Size(9, b, window=window), (_ask(z(3 * b), 2 * b), *cached, ("step", 2)))
