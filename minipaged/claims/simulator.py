"""Drives the engine's own scheduler, pools and tables over a workload, without model or tensors.

A step is what it is in the engine (``LLM.step``): schedule, commit, one more token for whoever has
none left to compute. Only its duration is not measured: a cost model says it.

Where nothing can happen but that everybody gets a token, steps are taken at once (``leaps``): the
same scheduler is asked for several tokens of each. What comes out is the same to the last bit, and
up to six times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from math import nan

from minipaged.core import BlockPool, root_hash
from minipaged.engine.params import SamplingParams
from minipaged.engine.scheduler import Scheduler, Step
from minipaged.engine.sequence import Request, Sequence

from .cost import CostModel, Load
from .leaps import Leaps, present_bounds
from .managers import Manager
from .occupancy import Bounds
from .outcome import Outcome, Setting
from .workload import Arrival, Workload

_GREEDY = SamplingParams(temperature=0)  # nobody reads more of a simulated request
_UNKNOWN = Bounds(nan, nan, nan, nan)  # type: ignore[arg-type]


def simulate(
    workload: Workload,
    manager: Manager,
    cost: CostModel | None = None,
    setting: Setting | None = None,
) -> Outcome:
    """What comes of a workload under a manager; see ``Simulator``."""
    return Simulator(workload, manager, cost, setting).run()


class Simulator:
    """One workload under one manager.

    Args:
        workload: what arrives.
        manager: how K/V is kept.
        cost: seconds per step.
        setting: of the engine.
        see: is shown every step, scheduled and not committed yet; then no steps are taken at once.
    """

    def __init__(
        self,
        workload: Workload,
        manager: Manager,
        cost: CostModel | None = None,
        setting: Setting | None = None,
        see: Callable[[Step], None] | None = None,
    ):
        self.workload, self.manager, self.cost = workload, manager, cost or CostModel()
        self.setting, self.see = setting or Setting(), see
        self.num_fed, self.now, self.pool = 0, 0.0, manager.new_pool()
        swaps = self.setting.preemption == "swap"
        self.scheduler = Scheduler(
            self.pool,
            manager.block_size,
            max_num_seqs=self.setting.max_num_seqs,
            max_num_batched_tokens=self.setting.max_num_batched_tokens,
            host_pool=BlockPool(manager.num_blocks) if swaps else None,
            watermark=manager.watermark,
        )
        self.outcome = Outcome(manager.num_slots)
        self._root = root_hash() if self.setting.prefix_caching else None
        self._leaps = Leaps(self.scheduler, self.cost, manager.is_paged)
        self._may_leap = self.setting.leaps and see is None and not self.setting.shares

    def run(self) -> Outcome:
        """Serve everything.

        Raises:
            InvalidRequest: a request that the empty pool could not hold.
        """
        scheduler, num_arrivals = self.scheduler, len(self.workload)
        while self.num_fed < num_arrivals or scheduler.running or scheduler.waiting:
            self._feed()
            if scheduler.running or scheduler.waiting:
                self.step()
            else:
                self.now = self._next_arrival()
        self.outcome.seconds = self.now
        self.outcome.num_preemptions = scheduler.num_preemptions
        return self.outcome

    def step(self) -> None:
        """One step of the engine, or several at once."""
        loads = self._loads_ahead()
        num_steps = max(1, len(loads))
        if num_steps > 1:
            bounds = self._leaps.bounds(num_steps)
            for sequence in self.scheduler.running:
                sequence.token_ids += [_answer(sequence)] * (num_steps - 1)
        step = self.scheduler.schedule()
        if self.see is not None:
            self.see(step)
        if num_steps == 1:
            loads, bounds = [_load(step)], [self._bounds()]
            self._leaps.learn(step)
        if step.is_empty:
            assert step.preempted, "nobody can go on"
            return
        self._count(loads, bounds)
        self.scheduler.commit(step)
        self._advance(step)

    # --- requests ------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Queue who has arrived; as admission is by age, a full step's worth of them is enough."""
        waiting = self.scheduler.waiting
        while self._next_arrival() <= self.now and len(waiting) < self.setting.max_num_seqs:
            self.scheduler.add(self._sequence(self.workload.arrivals[self.num_fed]))
            self.num_fed += 1

    def _next_arrival(self) -> float:
        if self.num_fed == len(self.workload):
            return float("inf")
        return 0.0 if self.setting.at_once else self.workload.arrivals[self.num_fed].time

    def _sequence(self, arrival: Arrival) -> Sequence:
        lens, order = (arrival.prompt_len, arrival.output_len), self.num_fed
        prompt = [0] * arrival.prompt_len
        if self._root is not None:
            prompt = prompt_tokens(arrival, self.workload.piece_len, order)
        request = Request(
            request_id=str(order),
            order=order,
            prompt=None,
            prompt_token_ids=prompt,
            params=_GREEDY,
            max_tokens=arrival.output_len,
            stop_ids=frozenset(),
            root=self._root,
        )
        table = self.manager.new_table(self.pool, *lens, self._root)
        request.sequences.append(Sequence(request, 0, list(prompt), table))
        return request.sequences[0]

    def _advance(self, step: Step) -> None:
        """One more token for whoever is computed: the half of the engine that needs no logits."""
        for sequence, _ in step.work:
            for sibling in () if sequence.num_remaining else self._with_siblings(sequence):
                sibling.token_ids.append(_answer(sibling))
                if len(sibling.token_ids) - sibling.num_prompt >= sibling.request.max_tokens:
                    self._finish(sibling)

    def _with_siblings(self, sequence: Sequence) -> Seq[Sequence]:
        siblings, num_samples = sequence.request.sequences, self.setting.num_samples
        if len(siblings) == num_samples:
            return (sequence,)
        for index in range(len(siblings), num_samples):
            siblings.append(sequence.fork(index))
            self.scheduler.join(siblings[-1])
        return siblings

    def _finish(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        self._leaps.nobody_fits = False
        request, outcome = sequence.request, self.outcome
        began = 0.0 if self.setting.at_once else self.workload.arrivals[request.order].time
        outcome.latencies.append((self.now - began) / request.max_tokens)
        outcome.num_cached += request.num_cached_tokens if sequence.index == 0 else 0
        outcome.num_finished += 1
        outcome.num_answered += request.max_tokens

    # --- time and memory -----------------------------------------------------------------------

    def _loads_ahead(self) -> list[Load]:
        return self._leaps.loads(self.now, self._next_arrival()) if self._may_leap else []

    def _bounds(self) -> Bounds:
        if self.setting.shares:
            return _UNKNOWN
        return present_bounds(self.scheduler, self.pool, self.manager.is_paged)

    def _count(self, loads: list[Load], bounds: list[Bounds]) -> None:
        outcome = self.outcome
        waits = bool(self.scheduler.waiting)
        averages = (outcome.always, outcome.queued)[: 1 + waits]
        outcome.num_steps += len(loads)
        for load, bound in zip(loads, bounds):
            outcome.times.append(self.now)
            outcome.computed.append(load.num_new)
            outcome.attended.append(load.num_attended)
            outcome.running.append(load.num_seqs)
            outcome.num_swapped += load.num_swapped
            seconds = self.cost.seconds(load, self.manager.block_size)
            for average in averages:
                average.add(seconds, load.num_seqs, bound)
            self.now += seconds


def _load(step: Step) -> Load:
    num_swapped = len(step.swaps_out) + len(step.swaps_in)
    attended = sum(s.table.num_reserved for s, _ in step.work)
    return Load(sum(count for _, count in step.work), attended, len(step.work), num_swapped)


def prompt_tokens(arrival: Arrival, piece_len: int, order: int) -> list[int]:
    """Tokens that agree with others' exactly as far as ``Arrival.prefix`` says."""
    tokens: list[int] = []
    for piece in arrival.prefix:
        tokens += [piece] * piece_len
    own = arrival.prompt_len - len(tokens)
    return tokens[: arrival.prompt_len] + [-1 - order] * own


def _answer(sequence: Sequence) -> int:
    """A token that no other sequence has."""
    return -1 - (sequence.request.order << 10) - sequence.index
