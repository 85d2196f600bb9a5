"""Why a kernel is wrong: which known fault gives the same, which arithmetic, which keys it saw.

It asks the kernel more questions about the failing case; it knows nothing of its inside.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from .attention_map import MOST_KEYS, attention_map
from .cases import Case
from .conventions import find_convention
from .conventions.packing import ORDERS
from .guard import KernelFault
from .museum.exhibit import Exhibit
from .recipes import Recipe
from .subject import Result, Subject
from .trial import Trial, ratio
from .truth import NumericModel, Problem, Truth, reference, rounded

FORMS = ("tfloat32", "float16", "bfloat16")
# Words, the format that inputs are rounded to on loading, and the arithmetic after that.
LADDER: tuple[tuple[str, str | None, NumericModel], ...] = (
    ("float32 throughout", None, NumericModel()),
    *((f"inputs rounded to {f} on loading", f, NumericModel()) for f in FORMS),
    *((f"weights rounded to {f}", None, NumericModel(p=f)) for f in FORMS),
    ("weights rounded to float8_e4m3fn", None, NumericModel(p="float8_e4m3fn")),
    *((f"output rounded through {f}", None, NumericModel(out=f)) for f in FORMS),
    *((f"scores kept in {f}", None, NumericModel(score=f)) for f in FORMS),
    *((f"inputs rounded to {f}, weights too", f, NumericModel(p=f)) for f in FORMS),
    *((f"sums in {f}", None, NumericModel(score=f, p=f, acc=f)) for f in FORMS),
)


def explain(
    subject: Subject, first: Recipe, small: Recipe | None = None, seconds: float = 3.0
) -> tuple[str, str | None]:
    """The picture and the diagnosis of a failing case; "" and None if its answer is right.

    A case says more before it is made small: there many faults are one and the same.

    Args:
        subject: The kernel.
        first: The case as it was found; used unless it is a long one.
        small: The same made small, or None.
        seconds: Time of the processor to spend.
    """
    end = time.process_time() + seconds
    is_long = sum(kv_len for _, kv_len in first.lengths) > MOST_KEYS
    recipe = small if small is not None and is_long else first
    trial = Trial(subject, recipe.build())
    try:
        place = wrong_place(trial)
        if place is None:
            return "", None
        names = diagnose(trial.case, trial.result, trial.truth, seconds=seconds / 2)
        lines = [attention_map(subject, trial.case, *place, seconds=end - time.process_time())]
        lines += [f"drawn in a larger case: {recipe}"] if lines[0] and recipe != small else []
        arithmetic = numeric_fit(trial) if time.process_time() < end else ""
        lines += [f"the errors are those of {arithmetic}"] if arithmetic else []
    except KernelFault:
        return "", None
    return "\n".join(filter(None, lines)), " or ".join(names[:3]) or None


def wrong_place(trial: Trial) -> tuple[int, int] | None:
    """The sequence and head with the largest error of the output, else of the lse; or None."""
    outs, lses = [], []
    for s, (got, right, bound) in enumerate(
        zip(trial.result.out, trial.truth.out, trial.truth.out_bound)
    ):
        outs += [(r, s, h) for h, r in enumerate(ratio(got, right, bound).max((0, 2), initial=0))]
    for s, got in enumerate(trial.result.lse or ()):
        errors = ratio(got, trial.truth.lse[s], trial.truth.lse_bound[s])
        lses += [(r, s, h) for h, r in enumerate(errors.max(0, initial=0))]
    for error, s, h in (max(outs), max(lses, default=(0.0, 0, 0))):
        if error > 1:
            return s, h
    return None


# --- known faults --------------------------------------------------------------------------------


def diagnose(
    case: Case,
    result: Result,
    truth: Truth,
    exhibits: Iterable[Exhibit] | None = None,
    seconds: float = 2.0,
) -> list[str]:
    """Names of the known faults that give this same output on this case, the nearest first.

    The same is: no further apart than two right answers may be. A fault that changes nothing here
    is not named. Empty for a case that the native convention cannot express.
    """
    if not is_native(case):
        return []
    if exhibits is None:
        from .museum.kernels import KERNELS

        exhibits = KERNELS
    end, found = time.process_time() + seconds, []
    for exhibit in exhibits:
        if time.process_time() > end:
            break
        other = _answer(exhibit, case)
        if other is None or _distance(other, Result(truth.out, truth.lse), truth) <= 1:
            continue
        apart = _distance(other, result, truth)
        if apart <= 2:
            found.append((apart, exhibit.name))
    return [name for _, name in sorted(found, key=lambda pair: pair[0])]


def is_native(case: Case) -> bool:
    """Whether the native convention has all that the case asks for."""
    spec, codes = case.problem.spec, (case.problem.key_codes, case.problem.value_codes)
    return (
        spec.masks is None
        and spec.alignment == "bottom-right"
        and (spec.window[1] is None or spec.causal)
        and not any(c is not None and c.granularity == "token" for c in codes)
        and case.placement.storage in ("", *ORDERS)
    )


def _answer(exhibit: Exhibit, case: Case) -> Result | None:
    native = find_convention("native")
    contract = native.contract.only(inputs_unchanged=False)
    try:
        return Subject(exhibit.make(), native, native.features, contract).run(case)
    except KernelFault:
        return None


def _distance(one: Result, other: Result, truth: Truth) -> float:
    """How many error bounds two answers are apart, at most; NaN equals NaN."""
    pairs = list(zip(one.out, other.out, truth.out_bound))
    if one.lse is not None and other.lse is not None:
        pairs += zip(one.lse, other.lse, truth.lse_bound)
    apart = [0.0]
    for a, b, bound in pairs:
        both_nan = np.isnan(a) & np.isnan(b)
        rounding = np.where(np.isfinite(a), 1e-6 * np.abs(a), 0)
        apart.append(np.where(both_nan, 0, ratio(a, b, bound + rounding)).max(initial=0))
    return float(max(apart))


# --- arithmetic ----------------------------------------------------------------------------------


def numeric_fit(trial: Trial) -> str:
    """The tightest arithmetic of `LADDER` that explains the errors, in words; "" if none does.

    It explains them if every one is within its bound, and their mean square over the predicted
    variance is at most 4.

    Raises:
        KernelFault: The kernel returned nothing to be judged.
    """
    fitting = []
    for words, load, numeric in LADDER:
        problem = trial.case.problem if load is None else _loaded(trial.case.problem, load)
        truth = reference(problem, numeric)
        if _explains(trial, truth):
            fitting.append((sum(float(v.sum()) for v in truth.out_variance), words))
    return min(fitting)[1] if fitting else ""


def _loaded(problem: Problem, form: str) -> Problem:
    """Every input on a coarser grid; what they stand for, in a quantised cache."""
    query, key, value = (
        tuple(rounded(x, form) for x in tokens)
        for tokens in (problem.query, problem.key, problem.value)
    )
    return replace(problem, query=query, key=key, value=value, key_codes=None, value_codes=None)


def _explains(trial: Trial, truth: Truth) -> bool:
    errors, squares = [0.0], []
    for s, got in enumerate(trial.result.out):
        seen = ~trial.blind[s]
        errors.append(ratio(got, truth.out[s], truth.out_bound[s])[seen].max(initial=0))
        wrong = (got - truth.out[s])[seen] ** 2
        squares.append((wrong / np.maximum(truth.out_variance[s][seen], 1e-300)).ravel())
        if trial.result.lse is not None:
            lse = ratio(trial.result.lse[s], truth.lse[s], truth.lse_bound[s])
            errors.append(lse[seen].max(initial=0))
    every = np.concatenate(squares)
    return max(errors) <= 1 and (every.size < 16 or float(every.mean()) <= 4)


__all__ = ["attention_map", "diagnose", "explain", "numeric_fit"]
