"""C2 by the real engine: the bundled model over every kind of memory, its steps and its seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from minipaged.models import Model

from . import real
from .claim import Context, Row, Tolerance
from .generators import SHAREGPT, Lengths, drawn
from .managers import MANAGERS, PAGED, Manager
from .outcome import Setting
from .own_trace import pool_for
from .simulator import simulate
from .workload import Workload

QUARTER = 4  # lengths are ShareGPT's divided by it
REAL_MAX_LEN = 512


@dataclass(frozen=True, slots=True)
class RealRun:
    """What the engine did with the bundled model."""

    num_steps: int
    num_generated: int
    seconds: float
    simulated_steps: int


def real_runs(num_requests: int, context: Context) -> dict[str, RealRun]:
    """The same requests over every kind of memory."""
    lengths = tuple(Lengths(each.mean / QUARTER, each.spread) for each in SHAREGPT)
    name = f"ShareGPT-like, lengths divided by {QUARTER}"
    workload = drawn(name, lengths, num_requests, 1.0, context.seed, REAL_MAX_LEN)  # type: ignore[arg-type]
    model, runs = real.bundled(), {}
    for manager in ("max", PAGED) if context.quick else MANAGERS:
        context.tell(f"the real engine, {manager}")
        kept = Manager(manager, pool_for(REAL_MAX_LEN), max_len=REAL_MAX_LEN)
        runs[manager] = _real_run(workload, kept, model)
    return runs


def _real_run(workload: Workload, manager: Manager, model: Model) -> RealRun:
    setting = Setting(max_num_seqs=64, max_num_batched_tokens=512, at_once=True)
    llm = real.engine(
        manager,
        model,
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
    )
    prompts = real.prompts(workload, llm.config.vocab_size)
    llm.generate(prompts[0], real.greedy(2))  # whatever happens at first has happened
    before = replace(llm.stats)
    begin = time.perf_counter()
    llm.generate(prompts, [real.greedy(a.output_len) for a in workload.arrivals])
    seconds = time.perf_counter() - begin
    stats = llm.stats.since(before)
    simulated = simulate(workload, manager, setting=setting)
    return RealRun(stats.num_steps, stats.tokens_generated, seconds, simulated.num_steps)


def real_rows(runs: dict[str, RealRun]) -> list[Row]:
    """Steps, foretold and taken, and the seconds that they took here."""
    rows = [
        Row(
            what=f"real engine, {name}: steps for {run.num_generated:,} tokens",
            said=f"{run.simulated_steps:,} by the simulator",
            measured=run.num_steps,
            unit="steps",
            tolerance=Tolerance.exactly(run.simulated_steps),
            basis="foretold",
        )
        for name, run in runs.items()
    ]
    for name in [each for each in runs if each != PAGED]:
        ratio = runs[name].num_steps / runs[PAGED].num_steps
        rows.append(Row(f"real engine: steps, {name} / paged", "", ratio, "x"))
    for name, run in runs.items():
        what = f"real engine, {name}: tokens generated"
        rows.append(Row(what, "", run.num_generated / run.seconds, "tokens/s", wall=True))
    return rows
