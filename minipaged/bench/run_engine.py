"""``minipaged bench engine``: loads the engines, lets them take turns, and joins the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from minipaged.models import ModelConfig, load_model

from .costs import Costs
from .engine import Measurement, Say, loading
from .export import export_model
from .limits import joined, limits_of, measure_limits
from .measures import BLOCK_SIZE
from .random_model import weight_bytes
from .report import Report
from .roster import ENGINES, python_of
from .stats import Figure
from .work import MAX_LEN, Work
from .worker import Declined, Failed, Worker

OURS = "minipaged"
MAX_NUM_SEQS = 64
TRIAL = 0.1  # of all lengths and numbers


class Run:
    """One run of the benchmark.

    Args:
        model: name, directory or file.
        peers: names out of ``ENGINES``; they are known to be there.
        pythons: interpreters of peers.
        dtype: of our weights, and of those peers that follow.
        num_weights: that a step multiplies with.
        work: what is asked.
        say: is told what is going on.
    """

    def __init__(
        self,
        model: str,
        peers: list[str],
        pythons: dict[str, str],
        dtype: str,
        num_weights: int,
        work: Work,
        say: Say,
    ):
        self.model, self.peers, self.pythons, self.dtype = model, peers, pythons, dtype
        self.num_weights, self.work, self.say = num_weights, work, say
        self.figures: list[Figure] = []
        self.loads: list[Figure] = []
        self.notes: list[str] = []

    def measure(self, tests: list[str], rounds: int, make_costs: Callable[[Worker], Costs]) -> None:
        """The tests one after the other; what has a pool of its own size is loaded for itself.

        What was found is kept, even if this ends with an exception.
        """
        usual = [test for test in tests if test != "preempt"]
        plans: list[tuple[list[str], dict[str, dict[str, Any]]]] = []
        if usual:
            plans.append((usual, {name: {} for name in [OURS, *self.peers]}))
        if "preempt" in tests:
            small = {"kv_tokens": self.work.small_pool, "preemption": "recompute"}
            contestants = dict.fromkeys([OURS, *self.peers], small)
            contestants[f"{OURS}, swap"] = {**small, "preemption": "swap"}
            plans.append((["preempt"], contestants))
        for names, contestants in plans:
            with self._loaded(contestants) as workers:
                costs = {worker.name: make_costs(worker) for worker in workers}
                for test in names:
                    measurement = Measurement(test, workers, costs)
                    try:
                        measurement.run(self.work, rounds, self.say)
                    finally:
                        self.figures += measurement.figures()
                        self.notes += measurement.notes
                self.loads = self.loads or loading(workers)

    @contextmanager
    def _loaded(self, contestants: dict[str, dict[str, Any]]) -> Iterator[list[Worker]]:
        """Each in its own process; a peer that cannot be loaded is left out, and that is noted."""
        workers: list[Worker] = []
        try:
            for name, options in contestants.items():
                self.say(f"loading {name} ...")
                try:
                    workers.append(self._load(name, options))
                except (Declined, Failed) as error:
                    if name.startswith(OURS):
                        raise
                    last = str(error).strip().splitlines()[-1]
                    self.notes.append(f"without {name}: {last}")
            yield workers
        finally:
            for worker in workers:
                worker.close()

    def _load(self, name: str, options: dict[str, Any]) -> Worker:
        peer = ENGINES[name.partition(",")[0]]
        options = {
            "model": export_model(self.model, peer.form),
            "dtype": self.dtype,
            "num_weights": self.num_weights,
            "block_size": BLOCK_SIZE,
            "max_num_seqs": MAX_NUM_SEQS,
            "max_len": min(self.work.max_len, MAX_LEN),
            **options,
        }
        python = python_of(name, self.pythons)
        return Worker(name, peer.adapter, options, python, peer.surroundings(python))


def run(
    model: str,
    peers: list[str],
    pythons: dict[str, str],
    tests: list[str],
    rounds: int,
    dtype: str,
    on_trial: bool,
    say: Say,
) -> Report:
    """Everything that ``minipaged bench engine`` prints.

    The limits are measured before and after; their spread is how far the machine drifted.
    """
    settings = {"model": model, "dtype": dtype, "rounds": rounds, "trial": on_trial}
    report = Report("engine", settings)
    config: ModelConfig = load_model(model).config
    max_len = min(config.max_position_embeddings, MAX_LEN)
    work = Work(config.vocab_size, max_len, TRIAL if on_trial else 1.0)
    sizes = (2**22, 128) if on_trial else ()
    say("limits of this machine")
    before = measure_limits(3, *sizes)
    limits = limits_of(before)
    num_weights = weight_bytes(config, torch.int8)
    found = Run(model, peers, pythons, dtype, num_weights, work, say)
    try:
        found.measure(tests, rounds, lambda w: Costs(config, limits, w.weight_bytes, w.kv_bytes))
        say("limits of this machine, once more")
        before = joined(before, measure_limits(3, *sizes))
        found.notes.insert(0, _drift(before))
    except KeyboardInterrupt:
        report.interrupted = True
    report.figures = before + found.loads + found.figures
    report.notes = found.notes
    return report


def _drift(machine: list[Figure]) -> str:
    moved = max(max(f.values) / min(f.values) for f in machine) - 1
    return f"the machine's own limits moved by up to {moved:.0%} between start and end"
