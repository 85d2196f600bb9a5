"""What an exercise is made of, and all that its judge needs; knows no exercise and no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from .rejection import Rejected, reject, same_form, trying

__all__ = ["Exercise", "Rejected", "Wrong", "reject", "same_form", "trying"]


@dataclass(frozen=True)
class Wrong:
    """A wrong solution that the judge must reject, with ``says`` in what it answers.

    Either an edit of the solution (``old`` occurs in it exactly once), or a whole ``text``.
    """

    name: str
    old: str = ""
    new: str = ""
    says: str = ""
    text: str = ""

    def apply(self, solution: str) -> str:
        """The text of the wrong solution.

        Raises:
            ValueError: ``old`` occurs in the solution never, or more than once.
        """
        if self.text:
            return self.text
        if solution.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {solution.count(self.old)} times")
        return solution.replace(self.old, self.new)


@dataclass(frozen=True)
class Exercise:
    """One exercise: what to define, how it is judged, what helps, and what must not pass.

    Args:
        name: a short word, with which ``minipaged learn`` finds it.
        title: what is to be written, in one line.
        function: the name or names that a solution defines.
        lines: how many lines a solution needs, roughly.
        hints: from a nudge to almost the answer.
        learnt: one sentence, told on success.
        check: judges a module; ``reject`` says no, a returned line of figures says yes.
        wrong: what people write instead.
        seconds: of processor time that a check may take, before it counts as endless.
    """

    name: str
    title: str
    function: str | tuple[str, ...]
    lines: int
    hints: tuple[str, ...]
    learnt: str
    check: Callable[[ModuleType], str | None]
    wrong: tuple[Wrong, ...]
    seconds: float = 10.0

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that a solution defines."""
        return (self.function,) if isinstance(self.function, str) else self.function
