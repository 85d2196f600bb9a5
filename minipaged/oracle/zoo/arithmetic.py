"""Which hidden arithmetic explains a kernel's errors; knows cases and roundings, no library.

A kernel that breaks the bound of its declared arithmetic may compute something else, or the same
with other roundings. Here its inputs are rounded in every way that kernels are known to round
them, and the truth about the rounded inputs is held against its answers: if the error then
vanishes, that is what it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..contract import Contract, Features
from ..conventions import Kernel, find_convention
from ..recipes import Recipe
from ..subject import Subject
from ..trial import ratio
from ..truth import NumericModel, Problem, reference, rounded

INPUTS = ("query", "key", "value")
TOGETHER = (("key",), ("value",), ("key", "value"), ("query",), INPUTS)
CASE = Recipe(((1, 40), (1, 9)), 2, 4, head_dim=64, block_size=16, poison="stale", padding=0)
CASES = tuple(replace(CASE, content=content) for content in (1, 2, 3))
FULL = NumericModel()


@dataclass(frozen=True)
class Fit:
    """One way to round, and how much of float32's error budget the kernel uses if it is the case.

    Attributes:
        inputs: What is rounded: "query", "key", "value".
        form: To which format.
        ratio: The largest error over its bound; at most 1 if it explains everything.
    """

    inputs: tuple[str, ...]
    form: str
    ratio: float

    def __str__(self) -> str:
        what = ", ".join(self.inputs) or "nothing"
        how = f" to {self.form} on load" if self.form else ""
        return f"{what} rounded{how}: error budget used {self.ratio:.2g}"


def hidden_roundings(
    kernel: Kernel, convention: str, cases: Sequence[Recipe] = CASES
) -> tuple[Fit, Fit]:
    """How the kernel stands as it is declared, and the way to round that explains it best."""
    how = find_convention(convention)
    fitted, _, _ = how.fit(kernel)
    subject = Subject(fitted, how, Features(lse=False), Contract(inputs_unchanged=False))
    built = [recipe.build() for recipe in cases]
    answers = [subject.run(case).out for case in built]
    fits = []
    for inputs, form in _ways():
        truths = (reference(_with(case.problem, inputs, form), FULL) for case in built)
        worst = max(
            float(ratio(*arrays).max())
            for answer, truth in zip(answers, truths)
            for arrays in zip(answer, truth.out, truth.out_bound)
        )
        fits.append(Fit(inputs, form, worst))
    return fits[0], min(fits, key=lambda fit: fit.ratio)


def _ways() -> Iterator[tuple[tuple[str, ...], str]]:
    yield (), ""
    for form in ("tfloat32", "float16", "bfloat16", "float8_e4m3fn"):
        for inputs in TOGETHER:
            yield inputs, form


def _with(problem: Problem, inputs: tuple[str, ...], form: str) -> Problem:
    changes = {name: tuple(rounded(x, form) for x in getattr(problem, name)) for name in inputs}
    return replace(problem, **changes)
