"""Figures of claims, for light and for dark pages; what is drawn is in ``plots``.

Nothing is told by colour alone: areas have hatches, lines have markers and strokes, and both have
names. Needs Matplotlib, the extra ``claims``; without it everything else works.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .captions import CAPTIONS

if TYPE_CHECKING:
    from .claim import Claim
    from .report import Reproduction

_COMMON: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "figure.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "lines.markersize": 6,
    "svg.fonttype": "none",  # text stays text: it can be found, read aloud, and is short
    "svg.hashsalt": "minipaged",  # with no date in it, equal figures are equal files
}


class Theme(NamedTuple):
    """How a figure looks: Matplotlib's settings, and the colours of what is drawn."""

    style: dict[Any, Any]
    colours: list[str]


def _theme(paper: str, ink: str, grid: str, colours: str) -> Theme:
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "hatch.color")
    colour_of = {**dict.fromkeys(inked, ink), **dict.fromkeys(papers, paper), "grid.color": grid}
    return Theme({**_COMMON, **colour_of}, colours.split())


THEMES = {  # Okabe and Ito's colours, which the colour-blind tell apart; lighter on dark paper
    "": _theme("#ffffff", "#222222", "#dddddd", "#0072b2 #e69f00 #009e73 #cc79a7 #555555"),
    "-dark": _theme("#1e2129", "#e6e6e6", "#3a3f4b", "#56b4e9 #f0c24b #3fc79a #e3a0c6 #a0a0a0"),
}


def can_draw() -> bool:
    """Whether Matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(found: Reproduction, out: Path) -> list[Path]:
    """Write every claim's figure twice, ``CLAIM.svg`` and ``CLAIM-dark.svg``; returns the paths."""
    from .plots import PLOTS

    return [
        _draw(claim, out / f"{claim.key}{suffix}.svg", theme)
        for claim in found.claims
        if claim.key in PLOTS and claim.series
        for suffix, theme in THEMES.items()
    ]


def _draw(claim: Claim, path: Path, theme: Theme) -> Path:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from .plots import PLOTS

    with rc_context(theme.style):
        figure = Figure(layout="constrained")
        PLOTS[claim.key](figure, claim.series, theme.colours)
        title = CAPTIONS[claim.key].title
        figure.suptitle(title, x=0.01, horizontalalignment="left")
        figure.savefig(path, format="svg", metadata={"Date": None, "Title": title})
    return path
