"""One line of a trace: which columns hold what, and what is wrong with a value; opens no file."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from minipaged.core import MinipagedError

from .workload import Arrival

PIECE_LEN = 512  # tokens that one of Mooncake's ``hash_ids`` stands for
MOST_TOKENS = 10_000_000  # of one prompt or answer; what is longer is a mistake in the file

ROLES = {  # what a column may hold, and the names by which it is known: letters and digits, small
    "prompt": "contexttokens inputlength inputlen inputtokens promptlen promptlength prompttokens "
    "numprompttokens numprefilltokens prefilltokens requesttokens promptsize",
    "output": "generatedtokens outputlength outputlen outputtokens responsetokens responselength "
    "completiontokens numoutputtokens numdecodetokens decodetokens outputsize",
    "time": "timestamp time arrivaltime arrival arrivedat arrivals seconds",
    "time_ms": "timestampms timems arrivaltimems milliseconds",
    "prefix": "hashids blockhashes",
}


class TraceError(MinipagedError, ValueError):
    """A trace that cannot be read, or a line of it; the message says where and what would do."""


def assign(names: list[str], chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Which column plays which role: the chosen ones, and for the rest those known by name.

    Examples:
        >>> assign(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        {'prompt': 'ContextTokens', 'output': 'GeneratedTokens', 'time': 'TIMESTAMP'}

    Raises:
        TraceError: no column holds prompts or answers, or a chosen one is not there.
    """
    chosen, columns = dict(chosen or {}), ", ".join(names) or "none"
    for role, name in chosen.items():
        if role not in ROLES:
            raise TraceError(f"a column is named for {', '.join(ROLES)}, not for {role!r}")
        if name not in names:
            raise TraceError(f"there is no column {name!r}; there are: {columns}")
    plain = {"".join(c for c in name.lower() if c.isalnum()): name for name in reversed(names)}
    for role, known in ROLES.items():
        found = [plain[word] for word in known.split() if word in plain]
        if found and role not in chosen and not (role.startswith("time") and _has_time(chosen)):
            chosen[role] = found[0]
    for role in ("prompt", "output"):
        if role not in chosen:
            raise TraceError(
                f"no column is known to hold the tokens of the {role} (there are: {columns}); "
                f"name it: --column {role}=COLUMN"
            )
    if "prefix" in chosen and "time" in chosen:  # Mooncake counts milliseconds
        chosen.setdefault("time_ms", chosen.pop("time"))
    return chosen


def arrival_of(row: Mapping[str, Any], roles: Mapping[str, str]) -> Arrival:
    """The request that a row describes.

    Raises:
        TraceError: saying which value cannot be, and what could.
    """
    prompt, output = (_count(row, roles[role]) for role in ("prompt", "output"))
    prefix = _pieces(row, roles["prefix"], prompt) if "prefix" in roles else ()
    return Arrival(_time(row, roles), prompt, output, prefix)


def cells(line: str, names: list[str], delimiter: str) -> dict[str, str]:
    """A line of a CSV file by column."""
    values = split(line, delimiter)
    if len(values) != len(names):
        raise TraceError(f"{len(values)} values, but the header names {len(names)} columns")
    return dict(zip(names, values))


def split(line: str, delimiter: str) -> list[str]:
    """The values of a line; quotes may hold delimiters, but no line ends."""
    try:
        return [value.strip() for value in next(csv.reader([line], delimiter=delimiter))]
    except (csv.Error, StopIteration) as error:
        raise TraceError(f"no line of a CSV file: {error}") from None


def json_object(line: str) -> dict[str, Any]:
    """A line of a JSONL file."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"no JSON: {error}") from None
    if not isinstance(row, dict):
        raise TraceError(f'one object per line is needed, as {{"input_length": 3, ...}}: {row!r}')
    return row


def _has_time(roles: Mapping[str, str]) -> bool:
    return "time" in roles or "time_ms" in roles


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise TraceError(f"{name} is missing")
    return row[name]


def _count(row: Mapping[str, Any], name: str) -> int:
    value = _value(row, name)
    number = _number(value)
    if number is None or number != int(number) or not 1 <= number <= MOST_TOKENS:
        raise TraceError(
            f"{name} is {_shown(value)}; a whole number from 1 to {MOST_TOKENS:,} is needed"
        )
    return int(number)


def _number(value: Any) -> float | None:
    """A finite number, however it is written."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _time(row: Mapping[str, Any], roles: Mapping[str, str]) -> float:
    """Seconds, from a beginning that all rows share."""
    if not _has_time(roles):
        return 0.0
    name = roles.get("time_ms") or roles["time"]
    value = _value(row, name)
    number = _number(value)
    if number is not None:
        return number / 1000 if "time_ms" in roles else number
    try:
        date = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise TraceError(
            f"{name} is {_shown(value)}; a number or a date such as 2023-11-16 18:15:46 is needed"
        ) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _pieces(row: Mapping[str, Any], name: str, prompt_len: int) -> tuple[int, ...]:
    value = _value(row, name)
    ids = value.split() if isinstance(value, str) else value
    needed = -(-prompt_len // PIECE_LEN)
    found = tuple(_iterate(ids))
    if None in found or len(found) != needed:
        raise TraceError(
            f"{name} is {_shown(value)}; a prompt of {prompt_len} tokens has {needed} pieces of "
            f"{PIECE_LEN}, each with a whole number"
        )
    return found  # type: ignore[return-value]


def _iterate(ids: Any) -> Iterator[int | None]:
    if not isinstance(ids, list):
        yield None
        return
    for each in ids:
        number = _number(each)
        yield int(number) if number is not None and number == int(number) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
