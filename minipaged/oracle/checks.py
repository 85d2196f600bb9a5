"""The laws that every case is held against, by level; knows how to say what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from . import algebra
from .comparisons import (
    answers,
    empty_rows,
    finite,
    lean,
    lse_within_bound,
    statistic,
    within_bound,
)
from .contract import Contract, Features
from .guard import KernelFault
from .relations import RELATIONS, Expected, Relation
from .subject import Result
from .trial import Trial, ratio

FORM = ("raised", "hung", "shape", "dtype", "device", "inputs", "guard", "wrong type")
LEVELS = (
    "form: shape, dtype, completeness, inputs unchanged",
    "truth: every element within its error bound, lse too",
    "isolation: bit for bit the same under changes that must not matter",
    "edges: empty rows, empty sequences, length 0, extreme numbers",
    "numerics: the error's statistic, long contexts, probes",
    "algebra: chunks, merges, other block sizes, decode equals prefill",
    "address space: offsets beyond 2^31",
)


@dataclass(frozen=True)
class Check:
    """One law.

    Attributes:
        name: As reports print it.
        level: 0 to 6, see `LEVELS`.
        law: One sentence.
        examine: What is wrong with the trial, as one sentence, or None.
        promised: Whether a kernel of this contract and these features promises it.
    """

    name: str
    level: int
    law: str
    examine: Callable[[Trial], str | None]
    promised: Callable[[Contract, Features], bool] = lambda contract, features: True


def relation_check(relation: Relation) -> Check:
    """A relation as a check: every step of it must give the expected bits, or a right answer."""

    def examine(trial: Trial) -> str | None:
        subject = trial.subject
        strict = relation.strict(subject.contract)
        for name, case, expected in relation.steps(trial.case, subject.contract):
            try:
                got = subject.run(case)
            except KernelFault as fault:
                if fault.declined:
                    continue
                return f"{name}: {fault.text}"
            right = expected(trial.result)
            if right.same_bits(got):
                continue
            difference = _difference(right, got) + _if_random(trial)
            if strict or not _is_right(trial, got, expected):
                return f"{name}: {difference}"
            subject.notes.setdefault(relation.name, f"{name}: {difference}")
        return None

    return Check(relation.name, 2, relation.law, examine, relation.promised)


def _if_random(trial: Trial) -> str:
    again = trial.subject.run(trial.case)
    return "" if trial.result.same_bits(again) else "; so do they when nothing changes at all"


def _is_right(trial: Trial, got: Result, expected: Expected) -> bool:
    """Whether an answer to a changed case is within what the change makes of the first's bound."""
    truth = expected(Result(trial.truth.out, trial.truth.lse))
    bound = expected(Result(trial.truth.out_bound, trial.truth.lse_bound))
    blind = expected(Result(tuple(b[..., None] for b in trial.blind), tuple(trial.blind)))
    ratios = [np.where(b, 0, ratio(*x)) for b, *x in zip(blind.out, got.out, truth.out, bound.out)]
    if got.lse is not None and truth.lse and bound.lse and blind.lse:
        ratios += [
            np.where(b, 0, ratio(*x)) for b, *x in zip(blind.lse, got.lse, truth.lse, bound.lse)
        ]
    return all(r.max(initial=0) <= 1 for r in ratios)


def variants(trial: Trial) -> str | None:
    """Other ways to ask for the same: without the lse, say."""
    subject = trial.subject
    call = subject.convention.pack(trial.case, subject.device)
    for name, other in subject.convention.variants(call, subject.contract):
        try:
            got = subject.run_call(trial.case, other)
        except KernelFault as fault:
            if fault.declined:
                continue
            return f"{name}: {fault.text}"
        if all(np.array_equal(a, b) for a, b in zip(trial.result.out, got.out)):
            continue
        difference = _difference(trial.result, got)
        if not _is_right(trial, got, lambda result: result):
            return f"{name}: {difference}"
        subject.notes.setdefault("variants", f"{name}: {difference}")
    return None


def _difference(right: Result, got: Result) -> str:
    for what, a, b in (("output", right.out, got.out), ("lse", right.lse, got.lse)):
        for s, (x, y) in enumerate(zip(a or (), b or ())):
            if not np.array_equal(x, y):
                at = tuple(int(i[0]) for i in np.nonzero(x != y))
                where = ", ".join(f"{n} {i}" for n, i in zip(("query", "head", "element"), at))
                return (
                    f"{int((x != y).sum())} of {x.size} numbers of the {what} of sequence {s} "
                    f"change, at {where} from {x[at]:.9g} to {y[at]:.9g}"
                )
    return "the output changes"


def checks_up_to(level: int, contract: Contract, features: Features) -> Iterator[Check]:
    """The checks of these levels that the contract promises, in the order of their levels."""
    for check in CHECKS:
        if check.level <= level and check.promised(contract, features):
            yield check


CHECKS: tuple[Check, ...] = (
    Check("answers", 0, "It returns what the convention says, and touches nothing else.", answers),
    Check("finite", 0, "Every element is written, and nothing from elsewhere gets in.", finite),
    Check(
        "bound", 1, "Every element is as near to the truth as its arithmetic allows.", within_bound
    ),
    Check(
        "lse bound",
        1,
        "The lse too.",
        lse_within_bound,
        lambda contract, features: features.lse,
    ),
    Check("variants", 2, "The same asked in another way is the same.", variants),
    *map(relation_check, RELATIONS),
    Check("empty rows", 3, "A query that sees no key returns 0 and -inf.", empty_rows),
    Check("statistic", 4, "Errors look like independent roundings.", statistic),
    Check("lean", 4, "Rounded results err in both directions.", lean),
    *(Check(name, 5, law, examine, promised) for name, law, examine, promised in algebra.CHECKS),
)
