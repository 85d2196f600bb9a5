"""C3: what samples and beams of one prompt share, in the real engine and at the scale of traces.

    saving = 1 - blocks that exist / blocks that would without sharing      summed over all steps

in which several sequences of a request exist. Paper: sections 4.4 and 6.3, figure 15.
"""

from __future__ import annotations

from . import real
from .beams import SPREAD, VOCABULARY, beam_savings
from .claim import Claim, Context, Row, Tolerance
from .generators import ALPACA, Lengths, alpaca_like, drawn, sharegpt_like
from .savings import Savings
from .sharing_law import (
    BEAM_POINTS,
    PAPER,
    PAPER_SHAREGPT,
    SAMPLING_POINTS,
    WIDTHS,
    sampling_law,
    sampling_savings,
    saving_row,
)
from .sharing_real import long_beams_row, real_rows
from .workload import Workload


def measure(context: Context) -> Claim:
    """Savings, and what is copied."""
    few = context.quick
    alpaca = alpaca_like(1000 if few else 8000, seed=context.seed)
    sharegpt = sharegpt_like(200 if few else 1000, seed=context.seed)
    beams = {
        w.name: _searched(w.head(n), context)
        for w, n in ((alpaca, 6 if few else 50), (sharegpt, 1 if few else 5))
    }
    rows = [*_sampling_rows(alpaca, sharegpt), *_table_rows(alpaca, sharegpt, context)]
    rows += _beam_rows(beams)
    if not few:
        rows += _what_if_rows(alpaca, context)
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
        notes=_notes(alpaca, sharegpt),
        series={"savings": savings, "paper": PAPER},
    )


def _searched(workload: Workload, context: Context) -> dict[str, Savings]:
    found = {}
    for width in WIDTHS:
        context.tell(f"{workload.name}, {width} beams")
        found[str(width)] = beam_savings(workload.arrivals, width, seed=context.seed)
    return found


def _sampling_rows(alpaca: Workload, sharegpt: Workload) -> list[Row]:
    rows = [
        saving_row(
            f"Alpaca-like, {len(alpaca):,} requests, {n} samples",
            f"{said} %",
            sampling_law(alpaca.arrivals, int(n)),
            said,
            SAMPLING_POINTS,
        )
        for n, said in PAPER["parallel sampling"].items()
    ]
    laws = {n: sampling_law(sharegpt.arrivals, n) for n in WIDTHS}
    what = f"ShareGPT-like, {len(sharegpt):,} requests"
    return rows + _range_rows("parallel sampling", what, "samples", laws, SAMPLING_POINTS)


def _table_rows(alpaca: Workload, sharegpt: Workload, context: Context) -> list[Row]:
    """That the law holds: the same from real forks of real tables."""
    rows = []
    few = context.quick
    for workload in (alpaca.head(20 if few else 100), sharegpt.head(2 if few else 10)):
        for n in WIDTHS[:1] if few else WIDTHS:
            context.tell(f"{workload.name}, tables of {n} samples")
            law = sampling_law(workload.arrivals, n)
            rows.append(
                Row(
                    f"{workload.name}, {len(workload)} requests, tables of {n} samples: saved",
                    f"{law:.4g} %, by (n-1) floor(prompt/B) / (n ceil(length/B))",
                    sampling_savings(workload, n).percent,
                    "%",
                    Tolerance.around(law, 1e-9),
                )
            )
    return rows


def _beam_rows(beams: dict[str, dict[str, Savings]]) -> list[Row]:
    rows = [
        saving_row(
            f"Alpaca-like, {width} beams",
            f"{said} %",
            beams["Alpaca-like"][width].percent,
            said,
            BEAM_POINTS,
        )
        for width, said in PAPER["beam search"].items()
    ]
    found = {int(width): s.percent for width, s in beams["ShareGPT-like"].items()}
    return rows + _range_rows("beam search", "ShareGPT-like", "beams", found, BEAM_POINTS)


def _range_rows(
    kind: str, what: str, noun: str, found: dict[int, float], points: float
) -> list[Row]:
    """What is said of two and of six sequences; of four, nothing is."""
    said = dict(zip((WIDTHS[0], WIDTHS[-1]), PAPER_SHAREGPT[kind]))
    return [
        saving_row(f"{what}, {n} {noun}", f"{said[n]} %", measured, said[n], points)
        if n in said
        else Row(f"{what}, {n} {noun}: saved", "", measured, "%")
        for n, measured in found.items()
    ]


def _what_if_rows(alpaca: Workload, context: Context) -> list[Row]:
    """What hangs on what nobody published."""
    rows = []
    for spread in (0.35, 0.9):
        lengths = Lengths(ALPACA[0].mean, spread), ALPACA[1]
        other = drawn("Alpaca-like", lengths, 2000, 30.0, context.seed)
        law = sampling_law(other.arrivals, 4)
        rows.append(
            Row(
                f"4 samples, prompts of spread {spread} instead of {ALPACA[0].spread}: the law",
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
                f"4 beams, logits of spread {spread:g} instead of {SPREAD:g}",
                "",
                found.percent,
                "%",
            )
        )
    return rows


def _notes(alpaca: Workload, sharegpt: Workload) -> tuple[str, ...]:
    return (
        "Beams of the traces: the engine's search and tables; the log-probabilities of a step are "
        f"those of {VOCABULARY} normal logits with a standard deviation of {SPREAD:g}, which is "
        "invented.",
        f"The real engine runs {real.BUNDLED} on prompts that it wrote itself, of the lengths of "
        "the first Alpaca-like requests; what its beams share is a matter of that model's scores.",
        "A beam that owns a contiguous cache must take over its parent's at every step; here only "
        "shared last blocks are copied, when they are written into.",
        "Of six beams of ShareGPT's lengths more is saved here than the paper says, and beams of "
        "the bundled model save as much: the longer an answer, the larger the part of it that is "
        "older than the last common ancestor of all beams.",
        "Samples share full blocks of the prompt only, so what they save depends on how many "
        "prompts are longer than a block: the what-if rows.",
        *(f"{w.name}: {w.source}" for w in (alpaca, sharegpt)),
    )
