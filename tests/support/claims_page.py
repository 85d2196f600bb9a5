"""The measured part of docs/pages/explanation/claims.md: every claim, as it is measured."""

from __future__ import annotations

from collections.abc import Iterable

from minipaged.claims import figures
from minipaged.claims.captions import CAPTIONS
from minipaged.claims.claim import Claim, Context
from minipaged.claims.report import Reproduction, claim_to_markdown
from minipaged.claims.roster import CLAIMS, measure_of

from .generated import refreshed
from .sizes import ROOT

PAGE = ROOT / "docs" / "pages" / "explanation" / "claims.md"
FIGURES = PAGE.parent / "claims"


def measure_all() -> Reproduction:
    """Everything, as ``minipaged reproduce`` without options does."""
    claims = tuple(measure_of(key)(Context()) for key in CLAIMS)
    return Reproduction(claims, seed=0, quick=False)


def counted_rows(claims: Iterable[Claim]) -> list[str]:
    """The lines of tables that must be on the page: all but wall times, which never repeat."""
    return [
        line
        for claim in claims
        for row, line in zip(claim.rows, _table_lines(claim), strict=True)
        if not row.wall
    ]


def _table_lines(claim: Claim) -> list[str]:
    lines = [line for line in claim_to_markdown(claim).splitlines() if line.startswith("| ")]
    return lines[1:]  # without the header


def to_page(found: Reproduction) -> str:
    """The part between the markers, with figures for light and for dark pages."""
    parts = [f"Made by `minipaged reproduce`. {found.summary()}"]
    for claim in found.claims:
        parts.append(claim_to_markdown(claim))
        if (FIGURES / f"{claim.key}.svg").exists():
            parts += [
                f"![{CAPTIONS[claim.key].alt}](claims/{claim.key}{suffix}.svg#only-{page})"
                for suffix, page in (("", "light"), ("-dark", "dark"))
            ]
    return "\n\n".join(parts)


def refresh() -> None:
    """Measure, draw, and rewrite the page."""
    found = measure_all()
    FIGURES.mkdir(exist_ok=True)
    figures.draw(found, FIGURES)
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(refreshed(text, {"claims": lambda: to_page(found)}), encoding="utf-8")
