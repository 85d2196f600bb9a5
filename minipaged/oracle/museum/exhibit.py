"""One exhibit of the museum: a subject with one known fault, and where such a fault was met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Exhibit:
    """A wrong subject with its label.

    Attributes:
        name: Short and unique, in words joined by underscores.
        kind: What it is: kernel, writer, copy, merge, quantizer, replay.
        fault_class: The family it belongs to, as the record of public bugs sorts them.
        like: The public bug that was like it, `project #number`, or "" if none is known.
        what: One sentence: what it does wrong.
        make: Returns a fresh subject, or the tuple of functions that the check of its kind takes.
    """

    name: str
    kind: str
    fault_class: str
    like: str
    what: str
    make: Callable[[], Any]


def hang(
    wall: list[Exhibit], kind: str, fault_class: str, like: str = "", *, makes: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that puts a wrong function on a wall; its name and docstring are the label.

    Args:
        wall: Where to put it.
        kind: As `Exhibit`'s.
        fault_class: As `Exhibit`'s.
        like: As `Exhibit`'s.
        makes: The function is no subject but returns a fresh one.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        what = " ".join((function.__doc__ or "").split())
        make = function if makes else lambda: function
        wall.append(Exhibit(function.__name__, kind, fault_class, like, what, make))
        return function

    return put
