"""The table of planted faults in docs/pages/mutants.md, computed by planting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .. import engine_faults, engine_killers
from ..generated import refreshed
from ..planted import ROOT, Fault
from .faults import FAULTS
from .killers import kill

PAGE = ROOT / "docs" / "pages" / "mutants.md"
HEAD = ("fault", "class", "modelled on", "noticed by", "first seen in", "tried")


def row(fault: Fault) -> tuple[str, ...]:
    """What the page says about one fault."""
    death = kill(fault)
    if death is None:
        return fault.name, fault.kind, fault.like, "nobody", "", ""
    story = f"`{death.story.replace('_', ' ') if death.check != 'exhaustive' else death.story}`"
    return fault.name, fault.kind, fault.like, death.check, story, str(death.num_tried)


def table(faults: Iterable[Fault], row: Callable[[Fault], tuple[str, ...]]) -> str:
    """All faults, in markdown."""
    rows = [HEAD, ("---",) * 5 + ("---:",), *map(row, faults)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def rows_of(page: str, region: str = "manager") -> list[tuple[str, ...]]:
    """The rows of a table as they stand on the page, without the number of programs tried."""
    inside = page.split(f"<!-- {region}:begin -->")[1].split(f"<!-- {region}:end -->")[0]
    lines = inside.strip().splitlines()[2:]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | "))[:-1] for line in lines]


def refresh() -> None:
    """Write both tables anew; it takes about a minute."""
    regions = {
        "manager": lambda: table(FAULTS, row),
        "engine": lambda: table(engine_faults.FAULTS, engine_killers.row),
    }
    PAGE.write_text(refreshed(PAGE.read_text("utf-8"), regions), "utf-8")
