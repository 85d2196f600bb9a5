"""C1: what the slots of a K/V pool do under load, contiguous and paged; measures no time.

Every request waits from the beginning, so memory is what limits; shares of the pool are means over
the time in which somebody waits (paper, section 1 and figure 2).
"""

from __future__ import annotations

from .claim import Claim, Context, Row, Tolerance
from .generators import PAPER_MAX_LEN, alpaca_like, sharegpt_like
from .managers import MANAGERS, PAPER_NUM_SLOTS, SYSTEMS
from .outcome import Outcome, Setting
from .own_trace import manager_for, own_trace, without_queue
from .simulator import simulate
from .traces import shipped
from .workload import Workload

BLOCK_SIZE = 16
PAPER = {  # figure 2: per cent of the pool
    "max": {"tokens": 20.4, "reserved": 13.3, "never_used": 57.3, "holes": 8.9},
    "pow2": {"tokens": 26.8, "reserved": 17.9, "never_used": 13.6, "holes": 41.6},
    "oracle": {"tokens": 38.2, "reserved": 25.2, "never_used": 0.0, "holes": 36.6},
    "paged": {"tokens": 96.3},
}
CLASSES = {
    "tokens": "tokens",
    "reserved": "reserved for later",
    "never_used": "reserved, never used",
    "holes": "holes and rounding",
}
POINTS = 5.0  # by which a cell may differ: the spread of the lengths is not published
LAW_POINTS = 0.5
LONGEST = 8192  # of the Azure traces, whose longest sequences would need a larger model
KEPT = "waste in what is held"


def measure(context: Context) -> Claim:
    """Shares of the pool for every manager and workload."""
    workloads = _workloads(context)
    all_outcomes = {w.name: _outcomes(w, context) for w in workloads}
    complaints = {name: without_queue(name, found) for name, found in all_outcomes.items()}
    outcomes = {name: found for name, found in all_outcomes.items() if not complaints[name]}
    shares = {
        name: {manager: outcome.queued.split.percent() for manager, outcome in by_manager.items()}
        for name, by_manager in outcomes.items()
    }
    first = next(iter(outcomes))
    rows = [*_paper_rows(first, shares[first], context)]
    for name, by_manager in outcomes.items():
        rows += _waste_rows(name, by_manager, is_paper=name == first)
    return Claim(
        key="waste",
        title="C1 Memory that holds no token",
        said="Contiguous reservation wastes 60 to 80 % of the K/V memory, paging less than 4 %.",
        source="Kwon et al., SOSP 2023, section 1 and figure 2",
        rows=tuple(rows),
        notes=(*filter(None, complaints.values()), *_notes(workloads)),
        series={"bars": shares, "paper": PAPER},
    )


def law(block_size: int, mean_len: float) -> float:
    """Per cent of the held slots that are behind the ends of last blocks.

    Ends are equally likely anywhere in a block, so on average (block_size - 1) / 2 slots are empty.

    Examples:
        >>> round(law(16, 300), 1), round(law(16, 70), 1), law(1, 70)
        (2.4, 9.7, 0.0)
    """
    empty = (block_size - 1) / 2
    return 100 * empty / (mean_len + empty)


def _workloads(context: Context) -> list[Workload]:
    few = context.quick
    found = [
        sharegpt_like(120 if few else 800, seed=context.seed),
        alpaca_like(350 if few else 2000, seed=context.seed),
        *(
            shipped(name).only(lambda a: a.num_tokens <= LONGEST).head(60 if few else 400)
            for name in (("azure-code",) if few else ("azure-conv", "azure-code"))
        ),
    ]
    if not few:
        found.append(shipped("sharegpt").head(400))
    return [*found, *own_trace(context)]


def _outcomes(workload: Workload, context: Context) -> dict[str, Outcome]:
    outcomes = {}
    for name in MANAGERS:
        context.tell(f"{workload.name}, {name}")
        manager = manager_for(workload, name, BLOCK_SIZE)
        outcomes[name] = simulate(workload, manager, setting=Setting(at_once=True))
    return outcomes


def _paper_rows(name: str, shares: dict[str, dict[str, float]], context: Context) -> list[Row]:
    """Of a few requests the longest decide; they are not compared."""
    return [
        Row(
            what=f"{name}, {manager}: {CLASSES[kind]}",
            said=f"{said} %",
            measured=shares[manager][kind],
            unit="%",
            tolerance=None if context.quick else Tolerance.around(said, POINTS),
            note=SYSTEMS[manager] if kind == "tokens" else "",
        )
        for manager, cells in PAPER.items()
        for kind, said in cells.items()
    ]


def _waste_rows(name: str, by_manager: dict[str, Outcome], is_paper: bool) -> list[Row]:
    paged = by_manager["paged"].queued
    mean_len = paged.split.tokens / paged.mean_running
    expected = law(BLOCK_SIZE, mean_len)
    contiguous = [o.queued.split for n, o in by_manager.items() if n != "paged"]
    most, least = (pick(100 - s.percent()["tokens"] for s in contiguous) for pick in (max, min))
    said = "60 to 80 %" if is_paper else ""
    tolerance = Tolerance(60 - POINTS, 80 + POINTS) if is_paper else None
    return [
        Row(f"{name}, contiguous at best: empty", said, least, "%", tolerance),
        Row(f"{name}, contiguous at worst: empty", said, most, "%", tolerance),
        Row(
            f"{name}, paged: {KEPT}",
            "less than 4 %",
            paged.split.waste,
            "%",
            Tolerance.at_most(4.0),
            note="" if expected <= 4 else f"no law: sequences are short, {mean_len:.0f} tokens",
        ),
        Row(
            f"{name}, paged: the law, L = {mean_len:.0f}",
            f"{expected:.2f} %, by (B-1)/2 / (L + (B-1)/2)",
            paged.split.waste,
            "%",
            Tolerance.around(expected, LAW_POINTS),
        ),
    ]


def _notes(workloads: list[Workload]) -> tuple[str, ...]:
    sources = tuple(f"{w.name}: {w.source}" for w in workloads)
    return (
        "Less than 4 % is what ShareGPT's lengths make of blocks of 16, no property of paging: "
        "with L tokens per sequence held on average, (B-1)/2 / (L + (B-1)/2) of the slots in use "
        "are empty. Sequences below about 180 tokens waste more.",
        f"Pools have {PAPER_NUM_SLOTS:,} slots for sequences of up to {PAPER_MAX_LEN} tokens, as "
        "in the paper, and for longer ones as many more; a run of a buddy allocator is made of "
        f"blocks of {BLOCK_SIZE}.",
        "How far the lengths of ShareGPT's answers spread was inferred from figure 2, from the bar "
        "of max: that bar is no independent test of these lengths, the others are.",
        f"Of the Azure traces, requests of more than {LONGEST} tokens are left out.",
        *sources,
    )
