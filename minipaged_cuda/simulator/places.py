"""Where in a kernel's text something happens; knows frames and source lines, not threads."""

from __future__ import annotations

import dis
import linecache
import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, NamedTuple

MARK = "__simulated__"  # a global of every function that lanes run, and of no other: see `site`


class Place(NamedTuple):
    """One instruction of a kernel."""

    code: CodeType
    instruction: int  # its offset, as `frame.f_lasti`

    def __str__(self) -> str:
        """`file:line`, and the text of the line."""
        line = next(
            line
            for begin, end, line in self.code.co_lines()
            if begin <= self.instruction < end and line
        )
        text = linecache.getline(self.code.co_filename, line).strip()
        return f"{Path(self.code.co_filename).name}:{line}" + (f" `{text}`" if text else "")


def site() -> tuple[CodeType, int]:
    """The instruction of the kernel's text that is being executed, below whatever it has called."""
    frame: Any = sys._getframe(2)
    while (starts := frame.f_globals.get(MARK)) is None:
        frame = frame.f_back  # there is a kernel below, or nobody would ask
    code = frame.f_code
    start_of = starts.get(id(code))
    if start_of is None:
        start_of = starts[id(code)] = _instruction_starts(code)
    return code, start_of[frame.f_lasti >> 1]


@lru_cache(maxsize=256)
def _instruction_starts(code: CodeType) -> list[int]:
    """For each code unit, where its instruction begins.

    Once an instruction is specialised, `f_lasti` may point to a unit of its inline cache.
    """
    starts = [0] * (len(code.co_code) // 2)
    offsets = [step.offset for step in dis.get_instructions(code)]
    for begin, end in zip(offsets, [*offsets[1:], len(code.co_code)]):
        starts[begin >> 1 : end >> 1] = [begin] * (end - begin >> 1)
    return starts


def here() -> Place:
    """The instruction of the kernel that calls the caller."""
    return Place(*site())


def raised_at(traceback: TracebackType | None) -> Place | None:
    """The innermost instruction of a kernel's text that an exception came through."""
    place = None
    while traceback is not None:
        if MARK in traceback.tb_frame.f_globals:
            place = Place(traceback.tb_frame.f_code, traceback.tb_lasti)
        traceback = traceback.tb_next
    return place


@lru_cache(maxsize=256)
def assigned_name(place: Place) -> str | None:
    """The variable that takes the result of the call at `place`, if one does."""
    for step in dis.get_instructions(place.code):
        if step.offset > place.instruction and step.opname != "CACHE":
            name = step.argval[0] if isinstance(step.argval, tuple) else step.argval
            return name if step.opname.startswith("STORE_") else None
    return None
