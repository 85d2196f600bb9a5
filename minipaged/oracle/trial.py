"""One case before the court: the truth, the kernel's answer, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .cases import Case
from .subject import Result, Subject
from .truth import NumericModel, Truth, reference
from .truth.problem import Array


@dataclass(eq=False)
class Trial:
    """A subject and a case; truth and answer are computed once, when first asked for."""

    subject: Subject
    case: Case

    @cached_property
    def truth(self) -> Truth:
        """What is right."""
        problem = self.case.problem
        stored = self.case.stored_dtype("value")
        return reference(problem, self.subject.contract.numeric_for(problem.dtype, stored))

    @cached_property
    def result(self) -> Result:
        """What the kernel says.

        Raises:
            KernelFault: As `Subject.run`.
        """
        return self.subject.run(self.case)

    @cached_property
    def blind(self) -> list[np.ndarray]:
        """Per sequence `[query_len, num_heads]`: rows that see no key, with a sink or without."""
        problem = self.case.problem
        return [np.repeat(r[:, None], problem.num_heads, 1) for r in problem.blind_rows()]

    def out_ratio(self) -> list[Array]:
        """Per sequence, the error of each element over its bound; 0 where not judged."""
        truth, got = self.truth, self.result.out
        ratios = [ratio(*x) for x in zip(got, truth.out, truth.out_bound)]
        for values, blind in zip(ratios, self.blind):
            values[blind] = 0  # the check of empty rows judges those
        return ratios

    def lse_ratio(self) -> list[Array] | None:
        """The same of the lse."""
        truth, got = self.truth, self.result.lse
        if got is None:
            return None
        ratios = [ratio(*x) for x in zip(got, truth.lse, truth.lse_bound)]
        for values, blind in zip(ratios, self.blind):
            values[blind] = 0
        return ratios

    def statistic(self, numeric: NumericModel | None = None) -> tuple[float, int]:
        """Mean of squared error over predicted variance, and over how many elements."""
        truth = self.truth if numeric is None else reference(self.case.problem, numeric)
        total, count = 0.0, 0
        for got, right, variance, blind in zip(
            self.result.out, truth.out, truth.out_variance, self.blind
        ):
            judged = ~blind
            errors = (got - right)[judged] ** 2
            total += float((errors / np.maximum(variance[judged], 1e-300)).sum())
            count += errors.size
        return (total / count if count else 0.0), count

    def lean(self) -> tuple[float, float, int]:
        """How far the errors lean away from zero (or towards it, negative), from -1 to 1.

        Also by how many standard errors that is, and over how many rows. Rows are independent;
        the elements of one are not, as they share their weights.
        """
        rows = []
        for got, right, blind in zip(self.result.out, self.truth.out, self.blind):
            signs = np.sign(got - right) * np.sign(right)
            rows += list(signs[~blind].mean(-1))
        if len(rows) < 2:
            return 0.0, 0.0, len(rows)
        spread = float(np.std(rows)) / np.sqrt(len(rows)) + 1e-3
        return float(np.mean(rows)), float(np.mean(rows)) / spread, len(rows)


def ratio(got: Array, right: Array, bound: Array) -> Array:
    """|got - right| / bound; 0 where they are equal, inf where `got` is not a number."""
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(got - right)
        found = np.where(got == right, 0.0, error / np.maximum(bound, 1e-300))
    return np.where(np.isnan(found), np.inf, found)
