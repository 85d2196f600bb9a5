"""One answer against the truth, each comparison a sentence on what is wrong or None."""

from __future__ import annotations

import numpy as np

from .trial import Trial
from .truth.problem import Array


def answers(trial: Trial) -> str | None:
    """It returns, and its inputs and the memory around its outputs are as they were.

    Raises:
        KernelFault: They are not.
    """
    result = trial.result
    if result.lse is None and trial.subject.features.lse:
        return "returned no lse, though the convention has one (features.lse=False if it has none)"
    return None


def finite(trial: Trial) -> str | None:
    """Where the truth is a number, so is the output: nothing unwritten, no NaN from elsewhere."""
    for s, (got, blind) in enumerate(zip(trial.result.out, trial.blind)):
        wrong = ~np.isfinite(got) & ~blind[..., None]
        if wrong.any():
            i, h, d = (int(x[0]) for x in np.nonzero(wrong))
            where = _where(trial, s, i, h, d)
            return f"{int(wrong.sum())} of {wrong.size} elements are not finite: {where}"
    return None


def within_bound(trial: Trial) -> str | None:
    """No element of the output is further from the truth than the declared arithmetic allows."""
    worst = _worst(trial.out_ratio())
    if worst is None or worst[0] <= 1:
        return None
    times, s, (i, h, d) = worst
    got, right = trial.result.out[s][i, h, d], trial.truth.out[s][i, h, d]
    bound = trial.truth.out_bound[s][i, h, d]
    wrong = sum(int((r > 1).sum()) for r in trial.out_ratio())
    total = sum(r.size for r in trial.out_ratio())
    return (
        f"{_where(trial, s, i, h, d)} is {got:.7g}, should be {right:.7g} +- {bound:.1g} "
        f"({_times(times)} the bound; {wrong} of {total} elements are out)"
    )


def lse_within_bound(trial: Trial) -> str | None:
    """The same of the lse."""
    ratios = trial.lse_ratio()
    worst = _worst(ratios) if ratios else None
    if worst is None or worst[0] <= 1:
        return None
    times, s, (i, h) = worst
    got, right = trial.result.lse[s][i, h], trial.truth.lse[s][i, h]  # pyright: ignore
    hint = ""
    if np.isfinite(right) and right and abs(got / right * np.log(2) - 1) < 1e-3:
        hint = "; it is the logarithm to base 2 of the right one"
    where = f"lse of sequence {s}, query {i} (position {_position(trial, s, i)}), head {h}"
    bound = trial.truth.lse_bound[s][i, h]
    return f"{where} is {got:.7g}, should be {right:.7g} +- {bound:.1g} ({_times(times)} it){hint}"


def empty_rows(trial: Trial) -> str | None:
    """A query that sees no key returns 0; its lse is -inf, or the sink's logit."""
    contract = trial.subject.contract
    for s in range(trial.case.problem.num_seqs):
        blind, out = trial.blind[s], trial.result.out[s]
        if contract.empty_row == "zero" and (out[blind] != 0).any():
            i, h = (int(x[0]) for x in np.nonzero(blind & (out != 0).any(-1)))
            return f"{_where(trial, s, i, h)} sees no key and returns {out[i, h, 0]:.3g}, not 0"
        if trial.result.lse is None or contract.empty_lse == "any":
            continue
        lse, right = trial.result.lse[s], trial.truth.lse[s]
        right = np.where(np.isneginf(right), float(contract.empty_lse), right)
        wrong = blind & ~np.isclose(lse, right, rtol=1e-5, atol=1e-5)
        if wrong.any():
            i, h = (int(x[0]) for x in np.nonzero(wrong))
            where = _where(trial, s, i, h)
            return f"{where} sees no key: lse is {lse[i, h]}, should be {right[i, h]:.7g}"
    return None


def statistic(trial: Trial) -> str | None:
    """Squared errors are on average what independent roundings give, not several times that."""
    mean, count = trial.statistic()
    limit = trial.subject.contract.statistic
    if count < 64 or mean <= limit:
        return None
    return (
        f"the mean of squared error over predicted variance is {mean:.3g} over {count} elements; "
        f"{limit:g} would pass: small errors, everywhere in the same direction"
    )


def lean(trial: Trial) -> str | None:
    """In half precision, errors point away from zero as often as towards it."""
    problem, recipe = trial.case.problem, trial.case.recipe
    if problem.dtype not in ("bfloat16", "float16") or problem.value_head_dim < 16:
        return None  # elsewhere the exponential, not the rounding of the result, is what errs
    if recipe is None or recipe.values not in ("normal", "flat"):
        return None  # values that are alike err alike
    mean, deviations, rows = trial.lean()
    if rows < 12 or abs(mean) < 0.3 or abs(deviations) < 6:
        return None
    way = "towards zero, as truncated" if mean < 0 else "away from zero"
    return f"errors point {way}: {mean:+.2f} on average over {rows} rows, where 0 is expected"


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio < 1e9 else "far beyond"


def _worst(ratios: list[Array]) -> tuple[float, int, tuple[int, ...]] | None:
    """The largest ratio, its sequence and its index there; None of nothing."""
    tops = [(float(r.max()), s) for s, r in enumerate(ratios) if r.size]
    if not tops:
        return None
    top, s = max(tops, key=lambda pair: pair[0])
    return top, s, tuple(int(i) for i in np.unravel_index(np.argmax(ratios[s]), ratios[s].shape))


def _position(trial: Trial, s: int, i: int) -> int:
    return int(trial.case.problem.positions(s)[i])


def _where(trial: Trial, s: int, i: int, h: int, d: int | None = None) -> str:
    element = "" if d is None else f", element {d}"
    return f"sequence {s}, query {i} (position {_position(trial, s, i)}), head {h}{element}"
