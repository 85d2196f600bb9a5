"""Judges ``count`` by painting every slot of every step; small traces come first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType

from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

KINDS = ("tokens", "later", "never", "free")
LONGEST = 4  # tokens of a prompt and its output together
POLICIES: dict[str, Callable[[int, int], int]] = {
    "prompt_len + output_len - 1": lambda prompt_len, output_len: prompt_len + output_len - 1,
    f"{LONGEST}, the longest possible": lambda prompt_len, output_len: LONGEST,
    "prompt_len + 2": lambda prompt_len, output_len: prompt_len + 2,
}
Requests = list[tuple[int, int]]


def programs() -> Iterator[tuple[Requests, int, str]]:
    """Traces of up to three requests, the shortest first, in pools that are never large."""
    lengths = [(p, o) for p, o in product((1, 2), (1, 2, 3)) if p + o <= LONGEST]
    traces = [list(t) for n in (1, 2, 3) for t in product(lengths, repeat=n)]
    traces.sort(key=lambda trace: (len(trace), sum(map(sum, trace))))
    yield from product(traces, (5, 7), POLICIES)


def paint(requests: Requests, num_slots: int, reserve: Callable[[int, int], int]) -> list[str]:
    """A line for every step, a letter for every slot: A a token, a later, - never, . free."""
    waiting = list(zip("ABC", requests))
    places: dict[str, list[int]] = {}
    age: dict[str, int] = {}
    lines: list[str] = []
    while waiting or places:
        taken = {slot for slots in places.values() for slot in slots}
        free = [slot for slot in range(num_slots) if slot not in taken]
        while waiting and (size := reserve(*waiting[0][1])) <= len(free):
            name, _ = waiting.pop(0)
            places[name], free, age[name] = free[:size], free[size:], 0
        line = ["."] * num_slots
        for name, slots in places.items():
            prompt_len, output_len = requests["ABC".index(name)]
            for position, slot in enumerate(slots):
                later = name.lower() if position < prompt_len + output_len - 1 else "-"
                line[slot] = name if position < prompt_len + age[name] else later
        lines.append("".join(line))
        for name in list(places):
            age[name] += 1
            if age[name] == requests["ABC".index(name)][1]:
                del places[name]
    return lines


def count_painted(lines: list[str]) -> tuple[int, ...]:
    """The four sums of a painting."""
    cells = "".join(lines)
    letters = (sum(map(str.isupper, cells)), sum(map(str.islower, cells)))
    return (*letters, cells.count("-"), cells.count("."))


def check(module: ModuleType) -> str | None:
    """Compare all four sums on every program."""
    num_programs = 0
    for requests, num_slots, policy in programs():
        program = f"{num_slots} slots, reserve = {policy}, requests {requests}"
        trying(program)
        lines = paint(requests, num_slots, POLICIES[policy])
        expected = count_painted(lines)
        got = module.count(list(requests), num_slots, POLICIES[policy])
        same_form(got, expected, "count(...)")
        if got != expected:
            judge(got, expected, lines)
        num_programs += 1
    return f"{num_programs} traces, slot by slot"


def judge(got: tuple, expected: tuple[int, ...], lines: list[str]) -> None:
    """Say which sum is wrong, and draw what the slots do."""
    steps = [f"step {i + 1}   {line}" for i, line in enumerate(lines)]
    drawn = ["What every slot does (A: a token, a: later, -: never, .: free):", *steps]
    figures = [f"got      {got}", f"expected {expected}    (tokens, later, never, free)"]
    if len(got) == 4 and sum(got) != sum(expected):
        reject(
            f"the four numbers add up to {sum(got)}, not to {len(lines)} * {len(lines[0])}, "
            "steps times slots",
            *figures,
            *drawn,
        )
    wrong = [name for name, a, b in zip(KINDS, got, expected) if a != b]
    reject(f"{' and '.join(wrong) or 'the number of results'}: not so many", *figures, *drawn)


EXERCISE = Exercise(
    name="utilisation",
    title="Where the slots go",
    function="count",
    lines=14,
    hints=(
        "Keep two lists: who waits, and who runs. Of each running request you need three "
        "numbers: how many tokens it holds now, how many it will hold in the end, and how "
        "many slots are reserved for it.",
        "In every step, in this order: admit, count, leave. For one request, `later` is its "
        "final number of tokens minus those of now, and `never` is its reservation minus the "
        "final number.",
        "`while waiting or running:` is the loop of steps. Inside: `while waiting and reserved + "
        "reserve(*waiting[0]) <= num_slots:` admits. A request that holds its final number of "
        "tokens is in its last step.",
    ),
    learnt="A slot counts as long as it is reserved, not as long as it holds a token: even "
    "with the exact length known, much of the memory waits for later.",
    check=check,
    wrong=(
        Wrong(
            "a reserved slot counts as a token",
            "tokens += sum(now for now, _, _ in running)",
            "tokens += reserved",
            says="the four numbers add up to",
        ),
        Wrong(
            "every token is there from the beginning",
            "running.append((prompt_len, final, size))",
            "running.append((final, final, size))",
            says="the four numbers add up to",
        ),
        Wrong(
            "the last token takes a slot, too",
            "final, size = prompt_len + output_len - 1,",
            "final, size = prompt_len + output_len,",
            says="the four numbers add up to",
        ),
        Wrong(
            "all that is reserved will be used",
            "later += sum(final - now for now, final, _ in running)\n"
            "        never += sum(size - final for _, final, size in running)",
            "later += sum(size - now for now, _, size in running)",
            says="later and never",
        ),
        Wrong(
            "who fits may overtake",
            "        while waiting and reserved + reserve(*waiting[0]) <= num_slots:\n"
            "            prompt_len, output_len = waiting.pop(0)\n",
            "        for prompt_len, output_len in list(waiting):\n"
            "            if reserved + reserve(prompt_len, output_len) > num_slots:\n"
            "                continue\n"
            "            waiting.remove((prompt_len, output_len))\n",
            says="add up to",
        ),
        Wrong(
            "one admission a step",
            "while waiting and reserved",
            "if waiting and reserved",
            says="add up to",
        ),
        Wrong(
            "a slot must stay free",
            "<= num_slots:",
            "< num_slots:",
            says="add up to",
        ),
    ),
)
