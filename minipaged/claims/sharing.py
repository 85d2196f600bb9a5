"""C3: what samples and beams of one prompt share, in the real engine and at the scale of traces.

    saving = 1 - blocks that exist / blocks that would without sharing      summed over all steps

in which several sequences of a request exist. Paper: sections 4.4 and 6.3, figure 15.
"""

from __future__ import annotations

from . import real
from .beams import SPREAD, VOCABULARY, beam_savings
from .claim import Claim, Context, Row
from .generators import ALPACA, Lengths, alpaca_like, drawn, sharegpt_like
from .savings import Savings
from .sharing_law import (
    BEAM_POINTS,
    PAPER,
    PAPER_SHAREGPT,
    SAMPLING_POINTS,
    WIDTHS,
    law_row,
    sampling_law,
    sampling_savings,
    saving_row,
)
from .sharing_real import long_beams_row, real_rows
from .verdicts import counted
from .workload import Workload

_ABOUT_SPREAD = (
    "Of six beams of ShareGPT's lengths more is saved here than the paper says, and beams of the "
    "bundled model save as much: the longer an answer, the larger the part of it that is older "
    "than the last common ancestor of all beams.",
    "Samples share full blocks of the prompt only, so what they save depends on how many prompts "
    "are longer than a block, which the rows with another spread show.",
)
LEFT_OUT = (
    "most requests, tables and engine with four and six sequences, lengths and scores of another "
    "spread, and beams of long answers"
)


def measure(context: Context) -> Claim:
    """Savings, and what is copied."""
    few = context.quick
    alpaca = alpaca_like(1000 if few else 8000, seed=context.seed)
    sharegpt = sharegpt_like(200 if few else 1000, seed=context.seed)
    beams = {
        w.name: _searched(w.head(n), context)
        for w, n in ((alpaca, 6 if few else 50), (sharegpt, 1 if few else 5))
    }
    rows = [*_sampling_rows(alpaca, sharegpt, few), *_table_rows(alpaca, sharegpt, context)]
    rows += _beam_rows(beams, few)
    if not few:
        rows += _spread_rows(alpaca, context)
    rows += real_rows(alpaca.head(2 if few else 8), context)
    if not few:
        rows.append(long_beams_row(sharegpt, context))
    savings = {
        "parallel sampling": {str(n): sampling_law(alpaca.arrivals, n) for n in WIDTHS},
        "beam search": {n: s.percent for n, s in beams[alpaca.name].items()},
    }
    return Claim(
        key="sharing",
        title="C3 Sharing between samples and beams",
        said="Samples and beams of a prompt share memory instead of duplicating it.",
        source="Kwon et al., SOSP 2023, sections 4.4 and 6.3, figure 15",
        rows=tuple(rows),
        notes=_notes(alpaca, sharegpt, several=not few),
        left_out=LEFT_OUT if few else "",
        series={"savings": savings, "paper": PAPER},
    )


def _searched(workload: Workload, context: Context) -> dict[str, Savings]:
    found = {}
    for width in WIDTHS:
        context.tell(f"{workload.name}, {width} beams")
        found[str(width)] = beam_savings(workload.arrivals, width, seed=context.seed)
    return found


def _sampling_rows(alpaca: Workload, sharegpt: Workload, few: bool) -> list[Row]:
    rows = [
        saving_row(
            f"Alpaca-like, {len(alpaca):,} requests, {n} samples",
            sampling_law(alpaca.arrivals, int(n)),
            said,
            SAMPLING_POINTS,
            few,
        )
        for n, said in PAPER["parallel sampling"].items()
    ]
    laws = {n: sampling_law(sharegpt.arrivals, n) for n in WIDTHS}
    what = f"ShareGPT-like, {len(sharegpt):,} requests"
    return rows + _range_rows("parallel sampling", what, "samples", laws, few)


def _table_rows(alpaca: Workload, sharegpt: Workload, context: Context) -> list[Row]:
    """That the law holds: the same from real forks of real tables."""
    rows = []
    few = context.quick
    for workload in (alpaca.head(20 if few else 100), sharegpt.head(2 if few else 10)):
        for n in WIDTHS[:1] if few else WIDTHS:
            context.tell(f"{workload.name}, tables of {n} samples")
            law = sampling_law(workload.arrivals, n)
            what = f"{workload.name}, {len(workload)} requests, tables of {n} samples"
            rows.append(law_row(what, law, sampling_savings(workload, n).percent))
    return rows


def _beam_rows(beams: dict[str, dict[str, Savings]], few: bool) -> list[Row]:
    found = beams["Alpaca-like"]
    rows = [
        saving_row(f"Alpaca-like, {width} beams", found[width].percent, said, BEAM_POINTS, few)
        for width, said in PAPER["beam search"].items()
    ]
    long = {int(width): s.percent for width, s in beams["ShareGPT-like"].items()}
    return rows + _range_rows("beam search", "ShareGPT-like", "beams", long, few)


def _range_rows(kind: str, what: str, noun: str, found: dict[int, float], few: bool) -> list[Row]:
    """What is said of two and of six sequences; of four, nothing is."""
    points = SAMPLING_POINTS if noun == "samples" else BEAM_POINTS
    said = dict(zip((WIDTHS[0], WIDTHS[-1]), PAPER_SHAREGPT[kind]))
    return [
        saving_row(f"{what}, {n} {noun}", measured, said[n], points, few)
        if n in said
        else Row(f"{what}, {n} {noun}: saved", "", measured, "%")
        for n, measured in found.items()
    ]


def _spread_rows(alpaca: Workload, context: Context) -> list[Row]:
    """What hangs on what nobody published."""
    rows = []
    for spread in (0.35, 0.9):
        lengths = Lengths(ALPACA[0].mean, spread), ALPACA[1]
        other = drawn("Alpaca-like", lengths, 2000, 30.0, context.seed)
        law = sampling_law(other.arrivals, 4)
        rows.append(
            Row(
                f"4 samples, prompts of spread {spread} instead of {ALPACA[0].spread}: saved",
                "",
                law,
                "%",
            )
        )
    for spread in (SPREAD / 2, SPREAD * 2):
        context.tell(f"beams, scores of spread {spread:g}")
        found = beam_savings(alpaca.head(20).arrivals, 4, seed=context.seed, spread=spread)
        rows.append(
            Row(
                f"4 beams, scores of spread {spread:g} instead of {SPREAD:g}: saved",
                "",
                found.percent,
                "%",
            )
        )
    return rows


def _notes(alpaca: Workload, sharegpt: Workload, several: bool) -> tuple[str, ...]:
    return (
        "The law is that n samples share (n-1) floor(prompt/B) of n ceil(length/B) blocks of B "
        "tokens, summed over all steps: the full blocks of their prompt, and nothing else.",
        "Beams of the drawn lengths go through the engine's search and tables; the scores of a "
        f"step are those of {VOCABULARY} normal logits with a standard deviation (spread) of "
        f"{SPREAD:g}, which is invented.",
        f"The real engine runs {real.BUNDLED} on prompts that it wrote itself, of the lengths of "
        "the first Alpaca-like requests; what its beams share is a matter of that model's scores.",
        "A beam that owns a contiguous cache must take over its parent's at every step; here only "
        "shared last blocks are copied, when they are written into.",
        *(_ABOUT_SPREAD if several else ()),
        *(f"{w.name}, {counted(len(w), 'request')}, {w.source}." for w in (alpaca, sharegpt)),
    )
