"""The museum on docs/pages/museum.md: every known fault before the judge, as it dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from minipaged.oracle.museum.collection import KINDS, collection
from minipaged.oracle.museum.run import Row

from .generated import refreshed
from .planted import ROOT

PAGE = ROOT / "docs" / "pages" / "museum.md"
HEAD = ("fault", "class", "a public bug like it", "seen by", "level", "calls")

# How often other test suites' inputs and tolerances catch an emulated kernel with the same fault:
# failing configurations of all. Re-stated from a study of 2026-11-29, not measured here.
FIELD_SUITES = (
    "vLLM Triton",
    "FlashAttention",
    "FlashInfer decode",
    "JAX GPU",
    "JAX RPA",
    "tpu-inference",
    "FlashMLA",
    "aiter",
)
FIELD = {
    "last_key_dropped": "29/36 11/14 4/5 1/5 15/40 8/40 4/4 6/9",
    "first_key_dropped": "15/36 10/14 4/5 1/5 18/40 0/40 4/4 5/9",
    "partial_block_dropped": "34/36 7/14 5/5 0/5 26/40 14/40 4/4 6/9",
    "scale_1_percent_off": "7/36 5/14 4/5 0/5 0/40 0/40 0/4 0/9",
    "causal_sees_one_future_key": "12/36 10/14 0/5 0/5 24/40 8/40 2/4 0/9",
    "window_one_too_large": "16/36 4/14 0/5 0/5 13/40 10/40 0/4 0/9",
    "window_one_too_small": "16/36 4/14 0/5 0/5 14/40 11/40 0/4 0/9",
    "softcap_ignored": "0/36 0/14 0/5 0/5 8/40 1/40 0/4 0/9",
    "gqa_modulo": "36/36 14/14 5/5 1/5 40/40 31/40 0/4 0/9",
    "splits_merged_in_base_2": "16/36 11/14 4/5 0/5 18/40 0/40 0/4 1/9",
    "sum_misses_last_tile": "28/36 11/14 4/5 1/5 28/40 21/40 4/4 5/9",
    "weights_in_fp8": "17/36 9/14 5/5 0/5 0/40 0/40 4/4 0/9",
}


def refresh() -> None:
    """Judge everything and write the page anew; it takes some minutes."""
    rows = [piece.judge() for piece in collection()]
    regions = {kind: (lambda kind=kind: table(rows, kind)) for kind in KINDS}
    regions |= {"summary": lambda: summary(rows), "field": lambda: field(rows)}
    PAGE.write_text(refreshed(PAGE.read_text("utf-8"), regions), "utf-8")


def table(rows: Iterable[Row], kind: str) -> str:
    """The faults of one kind, in markdown."""
    cells = [
        (
            f"`{r.name}`<br>{r.what}" if r.what else r.name,
            r.fault_class,
            r.like,
            r.check or "NOBODY",
            str(r.level if r.level is not None else ""),
            str(r.calls),
        )
        for r in rows
        if r.kind == kind
    ]
    return markdown(HEAD, cells)


def summary(rows: list[Row]) -> str:
    """How many of each kind, and which checks see most."""
    cells = []
    for kind in KINDS:
        mine = [r for r in rows if r.kind == kind]
        most = Counter(r.check for r in mine if r.killed).most_common(5)
        calls = sorted(r.calls for r in mine)
        cells.append(
            (
                kind,
                str(len(mine)),
                str(sum(r.killed for r in mine)),
                str(sum(bool(r.like) for r in mine)),
                f"{calls[len(calls) // 2]}, {calls[-1]}",
                ", ".join(f"{name} {count}" for name, count in most),
            )
        )
    head = ("kind", "faults", "seen", "like a public bug", "calls: median, most", "seen first by")
    return markdown(head, cells)


def field(rows: list[Row]) -> str:
    """Faults that other suites were tried on, and the calls that this one needs."""
    calls = {r.name: r.calls for r in rows if r.killed}
    cells = [
        (f"`{name}`", *told.split(), f"call {calls[name]}" if name in calls else "no")
        for name, told in FIELD.items()
    ]
    return markdown(("fault", *FIELD_SUITES, "here"), cells)


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))


def names_on(page: str, kind: str) -> list[str]:
    """The faults that the page lists of a kind."""
    inside = page.split(f"<!-- {kind}:begin -->")[1].split(f"<!-- {kind}:end -->")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in inside.strip().splitlines()[2:]]
    return [cell.split("`")[1] if cell.startswith("`") else cell for cell in cells]
