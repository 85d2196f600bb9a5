"""C2: how much more the same memory serves, by a simulator and by the real engine.

Simulated are the paper's model and machine, whose seconds a cost model says; so the constants of it
that nobody published are varied. The real engine runs the bundled model: its steps are counted, and
its seconds measured beside.

Paper: sections 6.1 and 6.2, figures 12 and 13.
"""

from __future__ import annotations

from dataclasses import replace

from . import real
from .claim import Claim, Context, Row, Tolerance
from .cost import CostModel
from .full_queue import crowd, full_queue, without_queue
from .generators import alpaca_like, sharegpt_like
from .managers import CONTIGUOUS, MANAGERS, MEANING, PAGED, Manager
from .outcome import Outcome
from .own_trace import own_trace, pool_for
from .rates import LIMIT, MINUTES, Sustained, sustainable_rate
from .simulator import simulate
from .throughput_real import QUARTER, REAL_MAX_LEN, real_rows, real_runs
from .verdicts import counted
from .workload import Workload

PAPER_BATCH = {  # figure 13: sequences in a step, on average
    "ShareGPT-like": {"max": 7.00, "pow2": 9.81, "oracle": 13.62, "paged": 30.42},
    "Alpaca-like": {"max": 7.00, "pow2": 43.24, "oracle": 72.75, "paged": 132.44},
}
BATCH_SHARE = 0.2  # by which a mean batch may differ: close to what memory allows it hangs on few
PAPER_RATIO = {  # section 6.2 over all models, and the abstract, which names no reservation
    "oracle": (1.7, 2.7),
    "pow2": (2.0, 4.0),
    "max": (2.7, 8.0),
}
FITTED = (("ShareGPT-like", PAGED), ("Alpaca-like", PAGED))  # batches that chose ``per_seq``
RATIO_SHARE = 0.1  # by which a ratio may lie outside
VARIED = {  # what nobody published: in words, times what, and what else it might be
    "flops_used": ("products at {:g} % of the peak", 100, (0.25, 1.0)),
    "bandwidth_used": ("reading at {:g} % of the bandwidth", 100, (0.4, 1.0)),
    "per_step": ("{:g} ms per step", 1000, (0.0, 10e-3)),
    "per_seq": ("{:g} ms per sequence", 1000, (0.0, 0.6e-3)),
}
LEFT_OUT = (
    "the rates that are sustained, which the claim is about; the batch without a cost per "
    "sequence; the real engine with pow2 and oracle; nine requests of ten"
)
AS_IT_IS = "as it is"


def measure(context: Context) -> Claim:
    """Batches, rates and steps of every manager."""
    size = 0.1 if context.quick else 1.0
    at_rate = [
        sharegpt_like(round(1200 * size), rate=2.0, seed=context.seed),
        alpaca_like(round(2700 * size), rate=30.0, seed=context.seed),
    ]
    batches = {w.name: _simulated(w, context) for w in at_rate}
    full = full_queue(crowd(context), context)
    rows = [*_batch_rows(batches, context)]
    sustained = {} if context.quick else _sustained(context)
    rows += _rate_rows(sustained)
    ratios = sensitivity(full)
    rows += _sensitivity_rows(ratios)
    if not context.quick:
        rows.append(_why_alpaca(at_rate[1], context))
    own_rows, own_notes = _own_rows(context)
    rows += own_rows
    rows += real_rows(real_runs(14 if context.quick else 48, context))
    curves = {name: outcome.curve() for name, outcome in batches["ShareGPT-like"].items()}
    return Claim(
        key="throughput",
        title="C2 Requests served with the same memory",
        said="The same memory serves 2 to 4 times the requests, at equal latency.",
        source="Kwon et al., SOSP 2023, abstract, section 6.2, figures 12 and 13",
        rows=tuple(rows),
        notes=(*own_notes, *_notes(at_rate, crowd(context))),
        left_out=LEFT_OUT if context.quick else "",
        series={
            "workload": "ShareGPT-like",
            "batch": curves,
            "latency": {name: sorted(found.points.items()) for name, found in sustained.items()},
            "sensitivity": ratios,
        },
    )


# --- by the simulator ----------------------------------------------------------------------------


def _simulated(workload: Workload, context: Context) -> dict[str, Outcome]:
    outcomes = {}
    for name in MANAGERS:
        context.tell(f"{workload.name} as it arrives, {name}")
        outcomes[name] = simulate(workload, Manager(name))
    return outcomes


def _sustained(context: Context) -> dict[str, Sustained]:
    workload, found = sharegpt_like(1500, seed=context.seed), {}
    for name in MANAGERS:
        context.tell(f"rate that is sustained, {name}")
        found[name] = sustainable_rate(workload, Manager(name))
    return found


def _batch_rows(batches: dict[str, dict[str, Outcome]], context: Context) -> list[Row]:
    return [
        Row(
            what=f"{workload}, {manager}: sequences in a step",
            said=f"{said:g}",
            measured=batches[workload][manager].always.mean_running,
            tolerance=Tolerance.within(said, BATCH_SHARE),
            basis="fitted" if (workload, manager) in FITTED else "said",
            few=context.quick,
        )
        for workload, cells in PAPER_BATCH.items()
        for manager, said in cells.items()
    ]


def _rate_rows(sustained: dict[str, Sustained]) -> list[Row]:
    rows = [
        Row(f"sustained, {name}", "", found.rate, "requests/s") for name, found in sustained.items()
    ]
    for name, said in PAPER_RATIO.items() if sustained else ():
        ratio = sustained["paged"].rate / sustained[name].rate
        rows.append(_ratio_row(f"sustained, paged / {name}", Tolerance.between(*said), ratio))
    return rows


def _ratio_row(what: str, said: Tolerance, ratio: float) -> Row:
    """A ratio beside a range; outside of it by a little is allowed, and said."""
    allowed = Tolerance.between(said.low * (1 - RATIO_SHARE), said.high * (1 + RATIO_SHARE))
    note = "" if said.admits(ratio) else f"{RATIO_SHARE:.0%} beside the range were allowed"
    return Row(what, str(said), ratio, "x", allowed, span=said, note=note)


def sensitivity(full: dict[str, Outcome]) -> dict[str, dict[str, float]]:
    """Ratios of tokens per second under a full queue, constant by constant.

    Args:
        full: an outcome of every manager, all requests being there from the beginning.
    """
    models = {AS_IT_IS: CostModel()}
    for name, (words, factor, values) in VARIED.items():
        for value in values:
            models[words.format(factor * value)] = replace(CostModel(), **{name: value})
    return {
        text: {
            manager: full[PAGED].token_rate(model) / full[manager].token_rate(model)
            for manager in CONTIGUOUS
        }
        for text, model in models.items()
    }


def _sensitivity_rows(ratios: dict[str, dict[str, float]]) -> list[Row]:
    return [
        Row(
            what=f"all at once, paged / {manager}" + ("" if text == AS_IT_IS else f", {text}"),
            said="",
            measured=ratio,
            unit="x",
            note="" if text == AS_IT_IS else "one constant that is not known is another one",
        )
        for text, by_manager in ratios.items()
        for manager, ratio in by_manager.items()
        if manager == "oracle" or text == AS_IT_IS
    ]


def _why_alpaca(workload: Workload, context: Context) -> Row:
    """The cell that a model without a cost per sequence misses by half."""
    context.tell("Alpaca-like without a cost per sequence")
    outcome = simulate(workload, Manager("paged"), replace(CostModel(), per_seq=0.0))
    return Row(
        what="Alpaca-like, paged: the same with 0 ms per sequence",
        said="",
        measured=outcome.always.mean_running,
        note="so the paper's batch of 132 is made of time per sequence, not of memory",
    )


def _own_rows(context: Context) -> tuple[list[Row], tuple[str, ...]]:
    """The user's own requests, if there are any, all waiting from the beginning."""
    rows: list[Row] = []
    notes: list[str] = []
    for trace in own_trace(context):
        full = full_queue(trace, context)
        if complaint := without_queue(trace, full):
            notes.append(complaint)
            continue
        notes.append(f"{trace.name}, {trace.source}; all at once, the same model and machine.")
        rows += [
            Row(f"{trace.name}, {name}: sequences in a step", "", outcome.queued.mean_running)
            for name, outcome in full.items()
        ]
        ratios = sensitivity(full)[AS_IT_IS]
        rows += [
            Row(f"{trace.name}, all at once: paged / {name}", "", ratio, "x")
            for name, ratio in ratios.items()
        ]
    return rows, tuple(notes)


def _notes(at_rate: list[Workload], at_once: Workload) -> tuple[str, ...]:
    model = CostModel()
    return (
        MEANING,
        "Simulated are OPT-13B and one A100 of 40 GB, as in the paper, by a cost model: weights "
        f"read at {100 * model.bandwidth_used:g} % of the bandwidth, products at "
        f"{100 * model.flops_used:g} % of the peak, {1000 * model.per_step:g} ms per step and "
        f"{1000 * model.per_seq:g} ms per sequence. The last was chosen by the paper's two batches "
        "of vLLM; nothing else was fitted.",
        f"A rate is sustained if requests of {MINUTES:g} minutes take at most {LIMIT:g} s per "
        "token on average, which finds nearly what 1 s finds over the paper's hour.",
        f"All at once are {counted(len(at_once), 'request')} of ShareGPT-like lengths, there from "
        "the beginning; a rate is that of all answers' tokens from the first step to the last. The "
        "steps depend on memory alone, a cost model only prices them. In the end nobody waits any "
        "more, which draws the ratios towards 1, the less the more requests there are.",
        "A step of the real engine takes the longer the more sequences it has: on a CPU products "
        "cost more than reading the weights, so fewer steps save less time than on a GPU.",
        f"The real engine runs {real.BUNDLED} on ShareGPT-like lengths divided by {QUARTER}, all "
        f"there from the beginning, with a pool of {pool_for(REAL_MAX_LEN)} blocks for each.",
        *(f"{w.name}, {counted(len(w), 'request')}, {w.source}." for w in at_rate),
    )
