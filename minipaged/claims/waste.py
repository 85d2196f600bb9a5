"""C1: what the slots of a K/V pool do under load, contiguous and paged; measures no time.

Every request waits from the beginning, so memory is what limits; shares of the pool are means over
the time in which somebody waits (paper, section 1 and figure 2).
"""

from __future__ import annotations

from dataclasses import replace

from .claim import Claim, Context, Row, Tolerance, digits
from .full_queue import SETTING, crowd, full_queue, without_queue
from .generators import PAPER_MAX_LEN, alpaca_like
from .managers import CONTIGUOUS, MEANING, PAGED, PAPER_NUM_SLOTS
from .occupancy import CLASSES
from .outcome import Outcome
from .own_trace import own_trace
from .traces import shipped
from .verdicts import counted
from .workload import Workload

BLOCK_SIZE = 16
PAPER = {  # figure 2: per cent of the pool
    "max": {"tokens": 20.4, "reserved": 13.3, "never_used": 57.3, "holes": 8.9},
    "pow2": {"tokens": 26.8, "reserved": 17.9, "never_used": 13.6, "holes": 41.6},
    "oracle": {"tokens": 38.2, "reserved": 25.2, "never_used": 0.0, "holes": 36.6},
    "paged": {"tokens": 96.3},
}
FITTED = (("max", "tokens"), ("max", "reserved"), ("max", "never_used"))  # see ``generators``
POINTS = 5.0  # by which a cell may differ: the spread of the lengths is not published
LAW_POINTS = 0.5  # and no more than a share of what the law says, which may be less than a point
LAW_SHARE = 0.05
SAID = Tolerance.between(60.0, 80.0)
LONGEST = 8192  # of the Azure traces, whose longest sequences would need a larger model
MANY = 0.2  # share of steps; if more are full of prompts, memory is not what limits


def measure(context: Context) -> Claim:
    """Shares of the pool for every manager and workload."""
    workloads = _workloads(context)
    outcomes = {w.name: full_queue(w, context) for w in workloads}
    complaints = []
    for own in own_trace(context):
        found = full_queue(own, context)
        if complaint := without_queue(own, found):
            complaints.append(complaint)
        else:
            workloads, outcomes[own.name] = [*workloads, own], found
    shares = {
        name: {manager: outcome.queued.split.percent() for manager, outcome in by_manager.items()}
        for name, by_manager in outcomes.items()
    }
    first = workloads[0].name
    rows = _paper_rows(first, shares[first], context)
    for name, by_manager in outcomes.items():
        few = context.quick and not (context.trace and name == context.trace.name)
        rows += _waste_rows(name, by_manager, few, is_paper=name == first)
    return Claim(
        key="waste",
        title="C1 Memory that holds no token",
        said="Contiguous reservation wastes 60 to 80 % of the K/V memory, paging less than 4 %.",
        source="Kwon et al., SOSP 2023, section 1 and figure 2",
        rows=tuple(rows),
        notes=(*complaints, *_notes(workloads)),
        left_out="most requests, and the recorded lengths of ShareGPT" if context.quick else "",
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
        crowd(context),
        alpaca_like(800 if few else 2000, seed=context.seed),
        *(
            shipped(name).only(lambda a: a.num_tokens <= LONGEST).head(60 if few else 400)
            for name in (("azure-code",) if few else ("azure-conv", "azure-code"))
        ),
    ]
    return found if few else [*found, shipped("sharegpt").head(400)]


def _paper_rows(name: str, shares: dict[str, dict[str, float]], context: Context) -> list[Row]:
    """Of a few requests the longest decide; they are not compared."""
    return [
        Row(
            what=f"{name}, {manager}: {CLASSES[kind]}",
            said=f"{said:g} %",
            measured=shares[manager][kind],
            unit="%",
            tolerance=Tolerance.points(said, POINTS),
            basis="fitted" if (manager, kind) in FITTED else "said",
            few=context.quick,
        )
        for manager, cells in PAPER.items()
        for kind, said in cells.items()
    ]


def _waste_rows(name: str, by_manager: dict[str, Outcome], few: bool, is_paper: bool) -> list[Row]:
    rows = _empty_rows(name, by_manager, few, is_paper)
    paged = by_manager[PAGED].queued
    mean_len = paged.split.tokens / paged.mean_running
    expected = law(BLOCK_SIZE, mean_len)
    return [
        *rows,
        Row(
            f"{name}, paged: held and empty",
            "less than 4 %",
            paged.split.waste,
            "%",
            Tolerance.at_most(4.0),
            note="" if expected <= 4 else f"sequences are short here, {mean_len:.0f} tokens",
            few=few,
        ),
        law_row(
            f"{name}, paged: the same, by the law",
            paged.split.waste,
            BLOCK_SIZE,
            mean_len,
            LAW_POINTS,
            few,
        ),
    ]


def _empty_rows(name: str, by_manager: dict[str, Outcome], few: bool, is_paper: bool) -> list[Row]:
    """Shares of the whole pool, paged and not: what is free counts as well."""
    splits = {manager: outcome.queued.split for manager, outcome in by_manager.items()}
    contiguous = [splits[manager].empty for manager in CONTIGUOUS]
    ranged = Tolerance.between(SAID.low - POINTS, SAID.high + POINTS)
    rows = [
        Row(
            f"{name}, contiguous at {which}: pool empty",
            "60 to 80 %" if is_paper else "",
            empty,
            "%",
            ranged if is_paper else None,
            span=SAID,
            note=_beside_the_range(empty) if is_paper else "",
            few=few,
        )
        for which, empty in (("best", min(contiguous)), ("worst", max(contiguous)))
    ]
    paged = Row(f"{name}, paged: pool empty", "", splits[PAGED].empty, "%")
    full = by_manager[PAGED].share_of_full_steps(SETTING.max_num_batched_tokens)
    return [*rows, replace(paged, note=_about_prompts(full) if full > MANY else "")]


def _beside_the_range(empty: float) -> str:
    return "" if SAID.admits(empty) else f"{POINTS:g} points beside the range were allowed"


def _about_prompts(full: float) -> str:
    return (
        f"{full:.0%} of the steps compute as many prompt tokens as a step may, "
        f"{SETTING.max_num_batched_tokens:,}: others wait for that, not for memory"
    )


def law_row(what: str, waste: float, size: int, mean_len: float, points: float, few: bool) -> Row:
    """Waste beside the law for blocks of this size; of few sequences the ends are not alike."""
    expected = law(size, mean_len)
    return Row(
        what,
        f"{digits(expected)} % with B = {size}, L = {mean_len:.0f}",
        waste,
        "%",
        Tolerance.points(expected, points, LAW_SHARE),
        basis="foretold",
        few=few,
    )


def _notes(workloads: list[Workload]) -> tuple[str, ...]:
    sources = tuple(f"{w.name}, {counted(len(w), 'request')}, {w.source}." for w in workloads)
    return (
        MEANING,
        "The law is (B-1)/2 / (L + (B-1)/2), with B tokens per block and L tokens per sequence "
        "held, on average: the end of a last block is empty, by half a block. So less than 4 % is "
        "what ShareGPT's lengths make of blocks of 16, no property of paging; sequences below "
        "about 180 tokens waste more.",
        "Pool empty is the share of the whole pool that holds no token, free slots included, which "
        "are too few for who waits or kept for others to grow into. Held and empty is the share of "
        "what requests hold, which is what the paper's 4 % are about.",
        f"Pools have {PAPER_NUM_SLOTS:,} slots for sequences of up to {PAPER_MAX_LEN} tokens, as "
        "in the paper, and for longer ones as many more; contiguous pieces come from a buddy "
        f"allocator, whose unit are {BLOCK_SIZE} slots.",
        "How far the lengths of ShareGPT's answers spread was inferred from figure 2, from the bar "
        "of max, so three of its parts are fitted; the other bars are a test of it.",
        f"Of the Azure traces, requests of more than {LONGEST} tokens are left out.",
        *sources,
    )
