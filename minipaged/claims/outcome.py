"""How a simulated engine is set up, and what came of a workload; computes nothing."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from statistics import fmean

from .cost import CostModel, Load
from .occupancy import Average


@dataclass(frozen=True, slots=True)
class Setting:
    """How the engine is set up, beside its memory.

    Args:
        max_num_seqs: sequences computed in one step.
        max_num_batched_tokens: tokens computed in one step.
        num_samples: of every prompt, by forks.
        preemption: "recompute" or "swap", to a host pool of equal size.
        prefix_caching: prefixes are found by ``Arrival.prefix`` and by what was computed before.
        at_once: all requests are there from the beginning, whatever their times.
        leaps: take steps at once where nothing can happen between them.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2560
    num_samples: int = 1
    preemption: str = "recompute"
    prefix_caching: bool = False
    at_once: bool = False
    leaps: bool = True

    @property
    def shares(self) -> bool:
        """Blocks may have several holders, so lengths do not tell what the slots do."""
        return self.prefix_caching or self.num_samples > 1


@dataclass(slots=True)
class Outcome:
    """What came of a workload; seconds are the cost model's."""

    num_slots: int
    num_steps: int = 0
    num_finished: int = 0
    num_answered: int = 0  # tokens of the answers of all that finished
    num_preemptions: int = 0
    num_swapped: int = 0  # blocks, out and in
    num_cached: int = 0  # prompt tokens that were found when their request was first admitted
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # from arrival, per token of the answer
    times: array = field(default_factory=lambda: array("d"))  # of every step: its beginning
    computed: array = field(default_factory=lambda: array("q"))  # tokens
    attended: array = field(default_factory=lambda: array("q"))  # positions read
    running: array = field(default_factory=lambda: array("q"))  # sequences
    always: Average = field(init=False)
    queued: Average = field(init=False)  # while somebody waits: memory is what limits

    def __post_init__(self):
        self.always, self.queued = Average(self.num_slots), Average(self.num_slots)

    @property
    def num_computed(self) -> int:
        """Tokens computed, those computed again included."""
        return sum(self.computed)

    @property
    def mean_latency(self) -> float:
        """The paper's normalized latency (section 6.1), seconds per token."""
        return fmean(self.latencies) if self.latencies else 0.0

    @property
    def throughput(self) -> float:
        """Requests per second, from the beginning to the end of the last."""
        return self.num_finished / self.seconds if self.seconds else 0.0

    @property
    def queued_share(self) -> float:
        """Share of the time in which somebody waits."""
        return self.queued.seconds / self.seconds if self.seconds else 0.0

    def share_of_full_steps(self, budget: int) -> float:
        """Share of the steps that compute as many tokens as a step may."""
        return sum(count >= budget for count in self.computed) / max(1, self.num_steps)

    def token_rate(self, cost: CostModel) -> float:
        """All answers' tokens by the time from the first step to the last, by another cost model.

        So rates of the same requests are to each other as the inverse of these times. The end, when
        nobody waits any more, counts: without it a memory that admits everybody at once would be
        judged by its prompts alone. It dilutes, the less the more requests there are.

        With all requests there from the beginning, a scheduler never looks at the clock: then this
        is what a simulation by that model would say. Swapping is left out.
        """
        loads = zip(self.computed, self.attended, self.running)
        seconds = sum(cost.seconds(Load(*load)) for load in loads)
        return self.num_answered / seconds if seconds else 0.0

    def curve(self, num_points: int = 300) -> dict[str, list[float]]:
        """The batch over time, thinned."""
        every = -(-len(self.times) // num_points) or 1
        return {"time": list(self.times[::every]), "running": list(self.running[::every])}
