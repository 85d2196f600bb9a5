"""What arrives when, and how long it is: all that a claim needs to know of a request.

Knows no text and no file: traces are read in ``traces``, and drawn in ``generators``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request, reduced to numbers.

    ``prefix`` names the leading pieces of the prompt: requests whose first k ids are equal begin
    with the same ``k * Workload.piece_len`` tokens (or fewer, if the prompt ends before).
    """

    time: float  # seconds since the trace began
    prompt_len: int
    output_len: int
    prefix: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Prompt and output together."""
        return self.prompt_len + self.output_len


@dataclass(frozen=True)
class Workload:
    """Requests in order of arrival.

    Examples:
        >>> arrivals = (Arrival(0.0, 10, 2), Arrival(4.0, 30, 6))
        >>> workload = Workload("two", "made up", arrivals)
        >>> workload.mean_prompt_len, workload.mean_output_len, workload.rate
        (20.0, 4.0, 0.25)
        >>> [a.time for a in workload.scaled_to(rate=2.0).arrivals]
        [0.0, 0.5]
    """

    name: str
    source: str  # where the numbers are from, in one sentence, parameters included
    arrivals: tuple[Arrival, ...]
    piece_len: int = 0  # tokens of one piece of ``Arrival.prefix``; 0: nothing is known of prefixes

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def mean_prompt_len(self) -> float:
        """Tokens of a prompt, on average; 0 if nothing arrives."""
        return fmean([a.prompt_len for a in self.arrivals] or [0])

    @property
    def mean_output_len(self) -> float:
        """Tokens of an answer, on average; 0 if nothing arrives."""
        return fmean([a.output_len for a in self.arrivals] or [0])

    @property
    def rate(self) -> float:
        """Arrivals per second, as often as one follows another; infinite if all come at once."""
        if len(self.arrivals) < 2:
            return 0.0
        lasted = self.arrivals[-1].time - self.arrivals[0].time
        return (len(self.arrivals) - 1) / lasted if lasted else float("inf")

    def scaled_to(self, rate: float) -> Workload:
        """The same requests in the same rhythm, at ``rate`` arrivals per second.

        Raises:
            ValueError: the rate is not positive, or all arrive at once and have no rhythm.
        """
        if rate <= 0:
            raise ValueError(f"a rate is positive, not {rate} arrivals per second")
        if len(self.arrivals) < 2:
            return self
        if self.rate == float("inf"):
            raise ValueError(f"all {len(self)} requests of {self.name} arrive at once")
        begin, factor = self.arrivals[0].time, self.rate / rate
        return self._with([replace(a, time=(a.time - begin) * factor) for a in self.arrivals])

    def head(self, n: int | None) -> Workload:
        """The first ``n`` requests, or all."""
        return self._with(self.arrivals[:n])

    def only(self, wanted: Callable[[Arrival], bool]) -> Workload:
        """The requests that ``wanted`` says yes to, at their times."""
        return self._with([a for a in self.arrivals if wanted(a)])

    def _with(self, arrivals: tuple[Arrival, ...] | list[Arrival]) -> Workload:
        return replace(self, arrivals=tuple(arrivals))
