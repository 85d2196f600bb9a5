"""How many requests per second a way to keep K/V sustains, by the simulator; measures no machine.

Paper: section 6.2, figure 12. Beyond that rate the queue grows as long as requests come, and with
it the latency; so what is found is the rate at which the mean latency passes a limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .cost import CostModel
from .managers import Manager
from .outcome import Setting
from .simulator import simulate
from .workload import Workload

# The paper's traces last an hour, and its figure is read at about 1 second per token. Beyond what
# is sustained, queues and latencies grow in proportion to time: less of both finds nearly the same.
MINUTES = 6  # of requests
LIMIT = 0.15  # seconds per token of the answer
STEP = 1.2  # from one rate to the next, until one is sustained and the next is not


@dataclass(slots=True)
class Sustained:
    """What was found, and the points on the way: a figure like the paper's."""

    rate: float  # requests per second
    points: dict[float, float] = field(default_factory=dict)  # rate: seconds per token


def sustainable_rate(
    workload: Workload,
    manager: Manager,
    cost: CostModel | None = None,
    setting: Setting | None = None,
    *,
    limit: float = LIMIT,
    minutes: float = MINUTES,
    precision: float = 0.1,
) -> Sustained:
    """The rate at which the mean latency is ``limit`` seconds per token.

    Args:
        workload: its requests, in their rhythm; those of the first ``minutes`` at the rate that is
            tried. If they are too few for that, all of them.
        manager: how K/V is kept.
        cost: seconds per step.
        setting: of the engine; times of arrival count, whatever it says.
        limit: mean seconds from arrival to the end, per token of the answer.
        minutes: of requests.
        precision: of the latency, as a share of the limit.
    """
    found = Sustained(0.0)

    def latency(rate: float) -> float:
        requests = workload.head(max(2, round(rate * 60 * minutes))).scaled_to(rate)
        found.points[rate] = simulate(requests, manager, cost, setting).mean_latency
        return found.points[rate]

    low = high = STEP * _guess(workload, manager, cost)
    if latency(low) > limit:
        while found.points[low] > limit:
            low, high = low / STEP, low
            latency(low)
    else:
        while found.points[high] <= limit:
            low, high = high, high * STEP
            latency(high)
    while True:  # close to the limit the latency is nearly a straight line
        part = (limit - found.points[low]) / (found.points[high] - found.points[low])
        found.rate = low + part * (high - low)
        reached = latency(found.rate)
        if abs(reached - limit) <= precision * limit or high / low < 1 + precision:
            return found
        low, high = (low, found.rate) if reached > limit else (found.rate, high)


def _guess(workload: Workload, manager: Manager, cost: CostModel | None) -> float:
    """Requests per second while there is always one that waits; too few, as the last run alone."""
    return simulate(workload.head(200), manager, cost, Setting(at_once=True)).throughput
