"""What a step was, in numbers that the engine and the simulator can be compared by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minipaged.core import BlockPool
from minipaged.engine.scheduler import Scheduler, Step


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Who was computed, and what it took."""

    work: tuple[tuple[int, int, int], ...]  # request by order, sample, tokens computed
    num_held: int  # blocks that somebody holds, once the step has its slots
    num_copies: int
    num_swapped: int
    preempted: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, step: Step, pool: BlockPool) -> StepRecord:
        """Of a step that was scheduled and not committed yet."""
        return cls(
            tuple((*s.order, count) for s, count in step.work),
            num_held(pool),
            len(step.copies),
            len(step.swaps_out) + len(step.swaps_in),
            tuple(s.order for s in step.preempted),
        )

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return sum(count for *_, count in self.work)


def num_held(pool: BlockPool) -> int:
    """Blocks that somebody holds, paged or not."""
    return pool.num_blocks - pool.ref_count.count(0)


def watch(scheduler: Scheduler, see: Callable[[Step], None]) -> None:
    """Show every step of this scheduler to ``see``, scheduled and not committed yet."""
    schedule = scheduler.schedule

    def schedule_and_show() -> Step:
        step = schedule()
        see(step)
        return step

    scheduler.schedule = schedule_and_show  # type: ignore[method-assign]
