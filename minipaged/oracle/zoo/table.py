"""The zoo's rows as Markdown: who, what version, what verdict, what is wrong and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from .visit import Row

HEAD = "| kernel | from | verdict | cases | bit for bit | calls | error budget | T |"
RULE = "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"


def to_markdown(rows: Iterable[Row], day: date | None = None) -> str:
    """A table with a line for each kernel, and what was found under it.

    The error budget is the largest error over its bound, T the largest mean of squared error over
    predicted variance, both past the known findings. "Bit for bit" is how many of the cases there
    was time to compare the kernel with itself on.
    """
    rows = list(rows)
    lines = [f"Judged on {(day or date.today()).isoformat()}.", "", HEAD, RULE, *map(_line, rows)]
    for row in rows:
        lines += _findings(row)
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    animal = row.animal
    cells = [animal.name, f"{animal.package} {animal.version}".strip(), row.verdict]
    if row.absent:
        return f"| {' | '.join(cells)} | | | | | |"
    figures, judged = row.reports[0].figures, row.reports[0].judged
    names = ("error budget used", "error statistic T")
    cells += [str(n) for n in (row.cases, judged.get("repeatable", 0), row.calls)]
    cells += [f"{figures[name]:.2g}" for name in names]
    return f"| {' | '.join(cells)} |"


def _findings(row: Row) -> Iterator[str]:
    if row.found or row.surprises or row.unreached:
        yield from ("", f"**{row.animal.name}**", "")
    for finding, failure in row.found:
        yield f"- {finding.name}: {finding.cause}."
        yield f"  Smallest case: `{failure.case}`; {failure.check}: {failure.message}"
    yield from (f"- not explained: {text}" for text in row.surprises)
    yield from (f"- out of time: {text}" for text in row.unreached)
