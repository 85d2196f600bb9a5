"""Watches an engine and keeps one picture and its story per step; decides and changes nothing.

The pictures are of the engine's own pool and tables: one when the scheduler has reserved the
step's slots, one after the step. What happened is told from the scheduler's plan and from these.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from minipaged.core import Snapshot
from minipaged.view import Change, changes
from minipaged.view.moment import Line, Moment, Told, told

from .sequences import Names, pieces, words
from .telling import after_the_plan, ended, plan_in_words, title, with_forks

if TYPE_CHECKING:
    from minipaged.engine.llm import LLM
    from minipaged.engine.outputs import Delta, RequestOutput
    from minipaged.engine.scheduler import Step
    from minipaged.engine.sequence import Request, Sequence

SAID_BETTER = ("promised", "written")  # by "computed", once for all sequences
EFFECTS = ("shared", "released")  # told behind the fork, or the end, that they come from
NO_NEWS = (*SAID_BETTER, "copied")  # after the plan nothing is copied: it is an adoption


class Recorder:
    """A screen for ``run`` that fills ``moments``; the first one is the pool before any step.

    Whoever does not enter it has the engine as it is: the only hook is the scheduler's
    ``schedule``, replaced on this one object and put back at the end.

    Args:
        llm: the engine, before the run.
    """

    def __init__(self, llm: LLM):
        self.llm, self.moments = llm, list[Moment]()
        self.names = Names()
        self._requests: dict[str, Request] = {}
        self._planned: tuple[Step, Snapshot, list[Told], str] | None = None

    def __enter__(self) -> Recorder:
        vars(self.llm.scheduler)["schedule"] = self._schedule
        return self

    def __exit__(self, *_: object) -> None:
        del vars(self.llm.scheduler)["schedule"]

    # --- the screen ----------------------------------------------------------------------------

    def show(self, deltas: Seq[Delta]) -> None:
        """After a step: take its picture, and tell it."""
        if self._planned is None:
            return
        (step, planned, said, name), self._planned = self._planned, None
        lived = after_the_plan(self._requests.values(), self.names)
        after = self._shot()
        seen = [told(change, planned, after) for change in changes(planned, after)]
        said += _adopted(planned, after)
        said += [change for change in seen if change.kind not in (*NO_NEWS, *EFFECTS)]
        said += lived
        said += [change for change in seen if change.kind == "shared"]
        said += self._drawn(step, deltas)
        ends = [self._found(delta) for delta in deltas if delta.finish_reason]
        said += [ended(sequence, self.names) for sequence in ends]
        said += [change for change in seen if change.kind == "released"]
        name = with_forks(name, lived)
        name += f"; {words(map(self.names.of, ends))} end{'s' * (len(ends) == 1)}" if ends else ""
        self.moments.append(Moment(name, after, tuple(said), self._lines()))

    def finish(self, results: Seq[RequestOutput]) -> None:
        """Nothing more is to be seen."""

    def stop(self) -> None:
        """Nothing has to be put back."""

    # --- looking -------------------------------------------------------------------------------

    def _schedule(self) -> Step:
        """As the scheduler, between two looks."""
        scheduler = self.llm.scheduler
        for sequence in scheduler.sequences:
            self._requests.setdefault(sequence.request.request_id, sequence.request)
            self.names.of(sequence)
        if not self.moments:
            self._begin()
        waiting = list(scheduler.waiting)
        step = type(scheduler).schedule(scheduler)
        planned = self._shot()
        said = plan_in_words(step, waiting, scheduler, self.names)
        before = self.moments[-1].snapshot
        seen = [told(_evicted(change), before, planned) for change in changes(before, planned)]
        said += [change for change in seen if change.kind not in SAID_BETTER]
        self._planned = step, planned, said, title(step, waiting, self.names)
        return step

    def _begin(self) -> None:
        num_waiting = len(self.llm.scheduler.waiting)
        pool = self.llm.pool
        text = f"Before the first step: {num_waiting} wait{'s' * (num_waiting == 1)}, "
        text += f"{pool.num_free} of {pool.num_blocks} blocks are free"
        self.moments.append(Moment(text, self._shot(), (), self._lines()))

    def _shot(self) -> Snapshot:
        pool, sequences = self.llm.pool, self.llm.scheduler.sequences
        tables = {self.names.of(s): s.table for s in sequences if s.table.block_ids}
        return Snapshot.take(pool, tables, self.llm.block_size)

    def _lines(self) -> tuple[Line, ...]:
        """All texts that there are, finished ones too, in the order of the requests."""
        lines = []
        for request in self._requests.values():
            for sequence in request.sequences:
                here = sequence.table.pool is self.llm.pool
                texts = pieces(sequence, self.llm.tokenizer, on_device=here)
                lines.append(Line(self.names.of(sequence), self._state(sequence), texts))
        return tuple(lines)

    def _state(self, sequence: Sequence) -> str:
        if sequence.finish_reason:
            return f"ended ({sequence.finish_reason})"
        if sequence in self.llm.scheduler.waiting:
            return "swapped out" if sequence.table.block_ids else "waiting"
        done, total = sequence.table.num_tokens, len(sequence.token_ids)
        return "running" if total - done <= 1 else f"{done} of {total} tokens computed"

    def _found(self, delta: Delta) -> Sequence:
        sequences = self._requests[delta.request_id].sequences
        return next(s for s in sequences if s.index == delta.index)

    def _drawn(self, step: Step, deltas: Seq[Delta]) -> list[Told]:
        """The tokens that were chosen; beams tell theirs when the search is over."""
        drawn, who = [], []
        for delta in deltas:
            sequence = self._found(delta)
            if sequence.request.is_beam or not delta.token_ids:
                continue
            (last, *_) = reversed(pieces(sequence, self.llm.tokenizer, on_device=False, last=1))
            who.append(self.names.of(sequence))
            drawn.append(f"{who[-1]} {last.given + last.generated!r}")
        return [Told("sampled", words(drawn), (), tuple(who))] if drawn else []


def _evicted(change: Change) -> Change:
    """While a step is planned a prefix is only forgotten because its block is handed out."""
    if change.kind != "unpublished":
        return change
    text = change.text.replace("no longer ", "its prefix ") + " is forgotten"
    return Change("evicted", text, change.block_ids)


def _adopted(planned: Snapshot, after: Snapshot) -> list[Told]:
    """Full blocks that were given up for another one that holds the same prefix already."""
    tables, adopted = {table.name: table for table in planned.tables}, []
    for table in after.tables:
        known = tables[table.name].block_ids if table.name in tables else ()
        for own, holder in zip(known, table.block_ids):
            if own != holder >= 0:
                text = f"block {holder} by {table.name}, instead of block {own}"
                adopted.append(Told("adopted", text, (holder,), (table.name,)))
    return adopted
