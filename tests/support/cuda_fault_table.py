"""The page of planted kernel faults: what each judge says about each fault, computed by asking."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from support.cuda_faults import FAULTS
from support.cuda_faults.kinds import PACE
from support.cuda_judges import JUDGES, case_of, own_cache
from support.cuda_planted import ROOT, Fault, Planted
from support.generated import refreshed

PAGE = ROOT / "docs" / "pages" / "explanation" / "planted-kernel-faults.md"
HEAD = ("fault", "class", "in", "modelled on", "case", *JUDGES)
NUM_FACTS = len(HEAD) - len(JUDGES)  # columns that nobody has to be asked for
NUMBERS = ("simulated numbers", "emulated numbers")

Row = tuple[str, ...]


def facts(fault: Fault) -> Row:
    """What is known of a fault before it is planted."""
    return fault.name, fault.kind, f"`{fault.module}`", fault.like, fault.case


def row(fault: Fault) -> Row:
    """A line of the table."""
    planted = Planted(fault)
    with own_cache():
        return *facts(fault), *(judge(planted, case_of(fault)) for judge in JUDGES.values())


def rows_of(page: str) -> list[Row]:
    """The lines of the table as they stand on the page."""
    inside = page.split("<!-- faults:begin -->")[1].split("<!-- faults:end -->")[0]
    lines = inside.strip().splitlines()[2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def table(rows: Sequence[Row]) -> str:
    """All faults, in markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD), *rows))


def sums(rows: Sequence[Row]) -> str:
    """What each judge sees, and what would be missed without it; no numbers are not wrong ones."""
    seen = {
        name: [bool(cells[NUM_FACTS + i]) and "none" not in cells[NUM_FACTS + i] for cells in rows]
        for i, name in enumerate(JUDGES)
    }
    lines = ["| judge | sees | sees alone |", "| --- | ---: | ---: |"]
    for name, mine in seen.items():
        others = [any(x) for x in zip(*(seen[other] for other in seen if other != name))]
        alone = sum(one and not other for one, other in zip(mine, others))
        lines.append(f"| {name} | {sum(mine)} of {len(rows)} | {alone} |")
    return "\n".join(lines) + f"\n\n{_plain_tests(rows)}"


def _plain_tests(rows: Sequence[Row]) -> str:
    """What would be left to a test that compares numbers and nothing else."""
    at = [HEAD.index(name) for name in NUMBERS]
    verdicts = [" ".join(cells[i] for i in at) for cells in rows]
    silent = [cells for cells, found in zip(rows, verdicts) if not found.strip()]
    slow = sum(cells[HEAD.index("class")] == PACE for cells in silent)
    stopped = sum("none" in found and "wrong" not in found for found in verdicts)
    in_step = sum("wrong" in cells[at[0]] and not cells[at[1]] for cells in rows)
    return (
        f"Of {len(rows)} faults {len(silent)} leave every number right, so a test that compares "
        f"results passes them; {slow} of these are only slow. {stopped} more have no results to "
        "compare, because the run cannot go on: an access outside of everything, or a barrier or "
        f"shuffle that some threads never reach. And {in_step} give wrong numbers when threads run "
        "one after the other, but right ones in the emulator, where a warp runs in step."
    )


def refresh(processes: int = 2) -> None:
    """Write the page anew; it takes some minutes."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        rows = list(pool.map(row, FAULTS))
    parts = {"faults": table, "sums": sums}
    regions = {name: functools.partial(compute, rows) for name, compute in parts.items()}
    text = refreshed(PAGE.read_text("utf-8"), regions)
    PAGE.write_text(text, "utf-8")
