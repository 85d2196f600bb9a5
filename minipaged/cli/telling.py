"""What a scheduler planned for a step, and what came of it, in words; takes no pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from minipaged.view.moment import Told

from .sequences import Names, words

if TYPE_CHECKING:
    from minipaged.engine.scheduler import Scheduler, Step
    from minipaged.engine.sequence import Request, Sequence


def title(step: Step, waited: list[Sequence], names: Names) -> str:
    """One line that says what the step is for."""
    work = [s for s, _ in step.work]
    groups = {
        "preempted": step.preempted,
        "back from the host": step.resumed,
        "admitted": [s for s in work if s in waited and s not in step.resumed],
    }
    said = [f"{_are(who, names)} {what}" for what, who in groups.items() if who]
    decodes = [s for s, n in step.work if _is_decode(s, n)]
    if decodes:
        said.append(_verb(decodes, names, "decode"))
    rest = [s for s in work if s not in decodes and s not in waited]
    if rest:
        said.append(_verb(rest, names, "go", "goes") + " on with the next chunk")
    return "; ".join(said) or "Nobody can be computed"


def with_forks(title: str, lived: Iterable[Told]) -> str:
    """The title of a step in which somebody was forked, though the plan did not know of it yet."""
    parents = [change.names[0] for change in lived if change.kind == "forked"]
    if not parents:
        return title
    are = f"{words(parents)} {'is' if len(parents) == 1 else 'are'}"
    return f"{title} and forked" if title == f"{are} admitted" else f"{title}; {are} forked"


def plan_in_words(
    step: Step, waited: list[Sequence], scheduler: Scheduler, names: Names
) -> list[Told]:
    """Called when the scheduler has reserved the step's slots, and nothing is computed yet."""
    return [
        *_preempted(step, names),
        *_resumed(step, names),
        *_admitted(step, waited, names),
        *_computed(step, names),
        *_waiting(step, scheduler, names),
    ]


def _of(kind: str, text: str, *names: str) -> Told:
    """A change without blocks."""
    return Told(kind, text, (), names)


def _resumed(step: Step, names: Names) -> Iterator[Told]:
    for name in map(names.of, step.resumed):
        yield _of("resumed", f"{name}: its blocks come from the host", name)


def _preempted(step: Step, names: Names) -> Iterator[Told]:
    for sequence in step.preempted:
        later = "its blocks go to the host" if sequence.table.block_ids else "computed again later"
        name = names.of(sequence)
        yield _of("preempted", f"{name}, the newest, for want of blocks: {later}", name)


def _admitted(step: Step, waited: list[Sequence], names: Names) -> Iterator[Told]:
    for sequence, _ in step.work:
        if sequence not in waited or sequence in step.resumed:
            continue
        found, total = sequence.table.num_tokens, len(sequence.token_ids)
        again = " again" if sequence.request.num_preemptions else ""
        name = names.of(sequence)
        text = f"{name}{again}, {total} tokens"
        text += f", {found} of them found by prefix" if found else ""
        yield _of("admitted", text, name)


def _computed(step: Step, names: Names) -> Iterator[Told]:
    """Whose tokens at which positions; before the step is committed, while they are known."""
    decodes: dict[int, list[str]] = {}
    for sequence, num_new in step.work:
        start, name = sequence.table.num_tokens, names.of(sequence)
        if _is_decode(sequence, num_new):
            decodes.setdefault(start, []).append(name)
            continue
        left = sequence.num_remaining - num_new
        text = f"{name} at {_positions(start, start + num_new)}"
        text += f", {left} of its tokens must wait" if left else ""
        text += ", again" if start < sequence.furthest else ""
        yield _of("computed", text, name)
    for position, who in decodes.items():
        yield _of("computed", f"{words(who)} at position {position}", *who)


def _waiting(step: Step, scheduler: Scheduler, names: Names) -> Iterator[Told]:
    """Who was not admitted, and why, asked of the scheduler itself."""
    in_flight, is_first = scheduler._prefixes_in_flight(), True
    for sequence in scheduler.waiting:
        if sequence in step.preempted:
            continue
        found = scheduler._find_prefix(sequence)
        if scheduler._awaits_prefix(sequence, len(found), in_flight):
            why = "its prefix is being computed, and will be found"
        elif step.preempted:
            why = "others had to leave"
        elif not is_first:
            why = "others came first"
        else:
            needed = scheduler._num_needed([sequence], found)
            free, is_first = scheduler.pool.num_free, False
            why = (
                f"it needs {needed} blocks, {free} are free"
                if needed > free
                else "no room in this step"
            )
        name = names.of(sequence)
        yield _of("waits", f"{name}: {why}", name)


def after_the_plan(requests: Iterable[Request], names: Names) -> list[Told]:
    """Siblings and beams that were born or dropped; gives them their names."""
    told = []
    for request in requests:
        if all(map(names.knows, request.sequences)):
            continue
        told += _beams(request, names) if request.is_beam else _samples(request, names)
    return told


def _samples(request: Request, names: Names) -> Iterator[Told]:
    parent = names.of(request.sequences[0])
    born = [names.of(s) for s in request.sequences if not names.knows(s)]
    yield _of("forked", f"{parent} into {words(born)}: they share its blocks", parent, *born)


def _beams(request: Request, names: Names) -> Iterator[Told]:
    """Every new beam, and who its parent was among those before the step."""
    search = request.search
    assert search is not None
    old = names.beams_of(request)
    if search.done:
        gone = [names.forget(beam) for beam in old]
        results = [f"result {i + 1}" for i in range(len(request.sequences))]
        for result, name in zip(request.sequences, results):
            names.call(result, name)
        yield _of("chosen", f"the best {len(results)} of the search", *gone, *results)
        return
    parents = [old[beam.parent] for beam in search.beams]
    born: dict[str, list[str]] = {}
    called: dict[int, str] = {}
    for parent, child in zip(parents, request.sequences):
        if id(parent) in called:
            born.setdefault(called[id(parent)], []).append(names.of(child))
        else:
            called[id(parent)] = names.hand_on(parent, child)
    dropped = [names.forget(beam) for beam in old if id(beam) not in called]
    for parent, children in born.items():
        text = f"{parent} into {words(children)}: it is continued more than once"
        yield _of("forked", text, parent, *children)
    if dropped:
        yield _of("dropped", f"{words(dropped)}: none of the best continues it", *dropped)


def ended(sequence: Sequence, names: Names) -> Told:
    """Why a sequence is finished."""
    num_new, reason = len(sequence.output_token_ids), sequence.finish_reason
    if reason == "length":
        why = "as many as were asked for, or have room"
    elif reason == "stop":
        stop = sequence.stop_reason
        why = f"it came to {stop!r}" if stop is not None else "it came to the end of the text"
    else:
        why = sequence.request.error or str(reason)
    name = names.of(sequence)
    return _of("ended", f"{name} after {num_new} generated tokens: {why}", name)


def _is_decode(sequence: Sequence, num_new: int) -> bool:
    """The one token that it generated last."""
    return num_new == 1 == sequence.num_remaining and len(sequence.output_token_ids) > 0


def _positions(start: int, stop: int) -> str:
    return f"position {start}" if stop - start == 1 else f"positions {start}-{stop - 1}"


def _are(who: list[Sequence], names: Names) -> str:
    return f"{words(map(names.of, who))} {'is' if len(who) == 1 else 'are'}"


def _verb(who: list[Sequence], names: Names, many: str, one: str | None = None) -> str:
    return f"{words(map(names.of, who))} {(one or many + 's') if len(who) == 1 else many}"
