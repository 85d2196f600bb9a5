"""How a judge says no, and what it was trying when it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class Rejected(Exception):
    """A solution is wrong; the first line says what, the others tell the story."""


class Moment:
    """What is being tried at this moment, and whoever wants to know when that changes."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()
        self.listener: Callable[[], None] | None = None


MOMENT = Moment()
"""Of this process: one file is judged at a time."""


def trying(*lines: str) -> None:
    """Say what program comes next: shown if the learner's code raises in it, or never ends.

    ``reject`` shows these lines too, under its headline, unless it says them itself.
    """
    MOMENT.lines = lines
    if MOMENT.listener:
        MOMENT.listener()


def reject(headline: str, *lines: str) -> NoReturn:
    """Say no: first what is wrong, then the program, what came out and what was expected.

    Raises:
        Rejected: always.
    """
    known = "\n".join(lines)
    told = [line for line in MOMENT.lines if line not in known]
    raise Rejected("\n".join([headline, *told, *lines]))


def same_form(got: Any, expected: Any, what: str) -> None:
    """Reject ``got`` unless it has the type of ``expected``, and its shape and dtype if any.

    To be called before values are compared, so that the story is not a broadcasting error.

    Args:
        got: what the learner's function returned.
        expected: what would be right.
        what: how to call it, such as ``"slot_mapping(...)"``.
    """
    if got is None and expected is not None:
        reject(f"{what} returned None", "Is there a `return`?", f"expected {_form(expected)}")
    if isinstance(got, bool) != isinstance(expected, bool) or not isinstance(got, type(expected)):
        reject(f"{what} returned {_form(got)}", f"expected {_form(expected)}")
    if _form(got) != _form(expected) and hasattr(expected, "shape"):
        reject(
            f"{what} has the wrong form", f"got      {_form(got)}", f"expected {_form(expected)}"
        )


def _form(value: Any) -> str:
    kind = type(value).__name__
    kind = f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
    if not hasattr(value, "shape"):
        return kind
    return f"{kind} of shape {list(value.shape)} and {str(value.dtype).removeprefix('torch.')}"
