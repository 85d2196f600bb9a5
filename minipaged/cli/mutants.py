"""``minipaged mutants``: every wrong subject of the museum before the judge, and what saw it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .check import need_testing
from .console import to_stderr
from .errors import fail

if TYPE_CHECKING:
    from minipaged.oracle.museum.collection import Piece

HEAD = ("kind", "fault", "class", "seen by", "calls", "like")


def mutants(
    names: Annotated[
        list[str] | None, typer.Argument(help="Faults by name; all of --kind if none is named.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="kernel, writer, copy, merge, quantizer, replay, manager; repeatable."),
    ] = None,
    labels: Annotated[
        bool, typer.Option("--labels", help="Only say what there is; judge nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON, with every number.")] = False,
) -> None:
    """Put the museum of wrong kernels, parts and managers before the judge.

    All of them take some minutes. Exit with 1 if one passes.
    """
    need_testing()
    rows = []
    with to_stderr().status("") as status:
        for piece in _chosen(names or [], kind or []):
            status.update(f"{len(rows)} judged, now {piece.name}")
            rows.append(_label(piece) if labels else _verdict(piece))
            if not json:
                _print(rows[-1], first=len(rows) == 1)
    if json:
        from json import dumps

        typer.echo(dumps(rows, indent=1, ensure_ascii=False))
    if not labels:
        seen = sum(row["killed"] for row in rows)
        typer.echo(f"{seen} of {len(rows)} are seen", err=True)
        if seen < len(rows):
            raise typer.Exit(1)


def _chosen(names: list[str], kinds: list[str]) -> list[Piece]:
    from minipaged.oracle.museum.collection import KINDS, collection
    from minipaged.oracle.targets import nearest

    for kind in kinds:
        if kind not in KINDS:
            fail(f"no kind {kind!r}{nearest(kind, KINDS)}", code=2)
    pieces = list(collection(kinds or KINDS))
    known = [piece.name for piece in pieces]
    for name in names:
        if name not in known:
            fail(f"no exhibit {name!r}{nearest(name, known)}", code=2)
    return [piece for piece in pieces if not names or piece.name in names]


def _label(piece: Piece) -> dict[str, Any]:
    names = ("name", "kind", "fault_class", "like", "what")
    return {name: getattr(piece, name) for name in names}


def _verdict(piece: Piece) -> dict[str, Any]:
    from dataclasses import asdict

    begin = time.perf_counter()
    row = asdict(piece.judge())
    return {**row, "seconds": round(row["seconds"] or time.perf_counter() - begin, 3)}


def _print(row: dict[str, Any], first: bool) -> None:
    """One line of the table; what is wrong stands below where no verdict does."""
    if first:
        _line(*HEAD)
    seen = row.get("check", row["what"]) or ("NOBODY" if "killed" in row else "")
    _line(row["kind"], row["name"], row["fault_class"], seen, row.get("calls", ""), row["like"])


def _line(kind: str, name: str, family: str, seen: str, calls: object, like: str) -> None:
    typer.echo(f"{kind:<9} {name:<44} {family:<24} {seen:<22} {calls!s:>6}  {like}".rstrip())
