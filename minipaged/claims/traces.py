"""Recorded workloads: those that are shipped, and files of your own, CSV or JSON Lines.

Known by their columns: the Azure traces (2023 and 2024), Mooncake, BurstGPT, and whatever else
calls its columns by usual names; others are named by the caller. A line that makes no sense is
refused by its number, or skipped and counted.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from .generators import PAPER_MAX_LEN, poisson_times
from .trace_lines import PIECE_LEN, TraceError, arrival_of, assign, cells, json_object, split
from .verdicts import counted
from .workload import Arrival, Workload

MOST_ARRIVALS = 100_000  # read from a file: more than any claim looks at
_LIKE = "expected a header of column names, or one JSON object per line"

SHIPPED = {  # name: file, and where it is from
    "azure-conv": ("azure_2023_conv.csv.gz", "Azure LLM inference trace 2023, conversations"),
    "azure-code": ("azure_2023_code.csv.gz", "Azure LLM inference trace 2023, code completion"),
    "mooncake": ("mooncake_conversation.jsonl.gz", "Mooncake, FAST'25 release, conversations"),
    "sharegpt": ("sharegpt_lengths.csv.gz", "lengths counted in ShareGPT with cl100k, first turns"),
}


@dataclass(frozen=True)
class Recording:
    """What was read, and what was not."""

    workload: Workload
    num_skipped: int = 0
    first_skipped: str = ""  # where, and why


def shipped(name: str) -> Workload:
    """A workload that comes with the package: azure-conv, azure-code, mooncake or sharegpt.

    Without times of their own, requests arrive by chance, one per second on average. Of ShareGPT,
    as in the paper, only what fits into 2048 tokens is kept.

    Raises:
        KeyError: it comes with none of this name.
    """
    file_name, source = SHIPPED[name]
    path = Path(str(files("minipaged.claims") / "data" / file_name))
    workload = read_trace(path).workload
    if name == "sharegpt":
        workload = workload.only(lambda arrival: arrival.num_tokens <= PAPER_MAX_LEN)
        source += f", at most {PAPER_MAX_LEN} tokens together; Poisson arrivals, 1/s, seed 0"
    return replace(workload, name=name, source=f"recorded: {source}")


def read_trace(
    path: Path,
    columns: Mapping[str, str] | None = None,
    *,
    skip_bad_lines: bool = False,
    limit: int = MOST_ARRIVALS,
) -> Recording:
    """Requests of a CSV or JSONL file, gzipped or not, sorted by time.

    Args:
        path: the file; a CSV has a header, a JSONL one object per line.
        columns: names of the columns for prompt, output, time (in seconds, or a date), time_ms,
            prefix (Mooncake's ``hash_ids``); what is not named is guessed. Without times,
            requests arrive by chance, one per second on average.
        skip_bad_lines: go on without them; else the first one is refused.
        limit: read no more requests than these.

    Raises:
        TraceError: the file, its columns or a line cannot be read; with the line's number.
    """
    arrivals: list[Arrival] = []
    complaints: list[str] = []
    reader = _Reader(columns)
    for number, line in _lines(path):
        if len(arrivals) == limit:
            break
        try:
            arrivals += reader.read(_text(line))
        except TraceError as error:
            complaints.append(f"line {number}: {error}")
            if not (skip_bad_lines and reader.knows_form):
                raise TraceError(f"{path.name}, {complaints[0]}") from None
    if not arrivals:
        empty = (
            "its header is followed by no line" if reader.knows_form else f"it is empty; {_LIKE}"
        )
        why = complaints[0] if complaints else empty
        raise TraceError(f"{path.name}: there is no request in it: {why}")
    workload = _workload(path, arrivals, reader.roles, limit)
    return Recording(workload, len(complaints), *complaints[:1])


def _workload(
    path: Path, arrivals: list[Arrival], roles: Mapping[str, str], limit: int
) -> Workload:
    source = f"recorded: {path.name}, {counted(len(arrivals), 'request')}"
    if len(arrivals) == limit:
        source += " from its beginning"
    if "time" in roles or "time_ms" in roles:
        arrivals.sort(key=lambda arrival: arrival.time)
        times = [arrival.time - arrivals[0].time for arrival in arrivals]
    else:
        times = poisson_times(len(arrivals), 1.0, Random("arrivals 0"))
        source += "; no times in it: Poisson arrivals, 1/s, seed 0"
    timed = tuple(replace(a, time=time) for a, time in zip(arrivals, times))
    return Workload(path.name, source, timed, PIECE_LEN if "prefix" in roles else 0)


class _Reader:
    """Learns from the first line which form a file has, and which column plays which role."""

    def __init__(self, columns: Mapping[str, str] | None):
        self.columns, self.roles = columns, dict[str, str]()
        self._parse: Callable[[str], Mapping[str, Any]] | None = None

    @property
    def knows_form(self) -> bool:
        """Whether it has seen a first line that it understands."""
        return self._parse is not None

    def read(self, text: str) -> list[Arrival]:
        """The request of a line; none if it is the header."""
        if self._parse is None and not text.startswith("{"):
            self._read_header(text)
            return []
        self._parse = self._parse or json_object
        row = self._parse(text)
        self.roles = self.roles or assign(list(row), self.columns)
        return [arrival_of(row, self.roles)]

    def _read_header(self, text: str) -> None:
        if text.startswith("["):
            raise TraceError(f"a list; {_LIKE}")
        delimiter = max(",;\t", key=text.count)
        names = split(text, delimiter)
        self.roles = assign(names, self.columns)
        self._parse = lambda text: cells(text, names, delimiter)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, with their numbers."""
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_packed else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TraceError(f"{path}: cannot be read: {why}") from None


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise TraceError(f"not UTF-8: {error.reason} at byte {error.start}") from None
