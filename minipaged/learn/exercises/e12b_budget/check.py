"""Judges a budget: right kernels stay within it, kernels that are wrong by one key do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

BFLOAT16, FLOAT16 = 2.0**-8, 2.0**-11
ALMOST = 0.95  # of a unit: what is squared and tiny is not asked for


@dataclass(frozen=True)
class Case:
    """One query's weights and values, and the precision of the kernel."""

    what: str
    weights: np.ndarray  # [num_keys]
    values: np.ndarray  # [num_keys, head_dim]
    unit: float = BFLOAT16

    def told(self) -> list[str]:
        """The case in a few lines, with its numbers if they are few."""
        lines = [f"{self.what}, unit 1/{1 / self.unit:g}"]
        if len(self.weights) < 3:
            lines.append(f"weights {self.weights.tolist()}, values {self.values.tolist()}")
        return lines


def rounded(x: np.ndarray, unit: float) -> np.ndarray:
    """The nearest numbers of a format with this unit."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa / unit) * unit, exponent)


def nearest(case: Case) -> np.ndarray:
    """A right kernel, as most are."""
    return rounded(rounded(case.weights, case.unit) @ case.values, case.unit)


def unlucky(case: Case, element: int) -> np.ndarray:
    """A right kernel whose roundings all go one way in this element."""
    off = ALMOST * case.unit
    out = (case.weights * (1 + off * np.sign(case.values[:, element]))) @ case.values
    return out * (1 + off)


def right_kernels(case: Case) -> Iterator[tuple[str, np.ndarray]]:
    """What right kernels may return."""
    yield "rounds to the nearest number", nearest(case)
    for element in range(case.values.shape[1]):
        yield "is unlucky in every rounding", unlucky(case, element)


def without(key: int) -> Callable[[Case], np.ndarray]:
    """A kernel that has lost a key, and gives its weight to the others."""

    def kernel(case: Case) -> np.ndarray:
        weights = np.delete(case.weights, key)
        return (weights / weights.sum()) @ np.delete(case.values, key, axis=0)

    return kernel


def twice_the_first(case: Case) -> np.ndarray:
    """A kernel that reads the first key's value in place of the last one's."""
    return case.weights @ np.vstack([case.values[:-1], case.values[:1]])


WRONG_KERNELS: dict[str, Callable[[Case], np.ndarray]] = {
    "has lost the last key": without(-1),
    "has lost the first key": without(0),
    "reads the first value in place of the last": twice_the_first,
}


def cases() -> Iterator[Case]:
    """The smallest first; wrong kernels are far from the truth in each with more than one key."""
    one = np.array([1.0])
    yield Case("1 key", one, np.array([[1.0, -3.0]]))
    even = np.full(2, 0.5)
    yield Case("2 keys, values that cancel", even, np.array([[1.0, 2.0], [-1.0, 1.0]]))
    yield Case("2 keys, an element without values", even, np.array([[0.0, 1.0], [0.0, -1.0]]))
    yield Case("2 keys, large values", even, np.array([[1000.0], [500.0]]))
    yield Case("2 keys, small values", even, np.array([[0.0001], [0.0003]]))
    scales = np.array([1.0, 1000.0])
    yield Case(
        "2 keys, a small element beside a large one", even, np.array([[1, 1], [2, 1]]) * scales
    )
    for num_keys, unit in ((60, BFLOAT16), (500, FLOAT16)):
        dice = np.random.default_rng(num_keys)
        values = dice.standard_normal((num_keys, 4))
        values[0], values[-1] = 3.0, -3.0
        what = f"{num_keys} keys of equal weight"
        yield Case(what, np.full(num_keys, 1 / num_keys), values, unit)
        values = np.where(np.arange(num_keys) % 2, -1.0, 1.0)[:, None] * np.ones(2)
        values[0], values[-1] = 3.0, -3.0
        yield Case(what + ", values that cancel", np.full(num_keys, 1 / num_keys), values, unit)


def check(module: ModuleType) -> str:
    """Hold right and wrong kernels against the budget of every case."""
    num_right = num_wrong = 0
    for case in cases():
        trying(*case.told())
        got = module.budget(case.weights.copy(), case.values.copy(), case.unit)
        same_form(got, np.zeros(case.values.shape[1]), "budget(...)")
        if not np.all(np.isfinite(got)) or np.any(got < 0):
            reject("a budget is a finite number, and not below 0", f"got {got.tolist()}")
        for what, out in right_kernels(case):
            num_right += 1
            judge(case, got, out, what, is_right=True)
        for what, kernel in WRONG_KERNELS.items():
            if len(case.weights) > 1:
                num_wrong += 1
                judge(case, got, kernel(case), what, is_right=False)
    return f"{num_right} right results accepted, {num_wrong} wrong ones rejected"


def judge(case: Case, allowed: np.ndarray, out: np.ndarray, what: str, is_right: bool) -> None:
    """Reject the budget if it says the wrong thing of a kernel."""
    truth = case.weights @ case.values
    error = np.abs(out - truth)
    if np.all(error <= allowed) == is_right:
        return
    worst = int(np.argmax(error - allowed)) if is_right else int(np.argmax(error))
    verdict = "your budget blames a right kernel" if is_right else "your budget lets a kernel pass"
    reject(
        f"{verdict} that {what}",
        f"truth        {truth[worst]:.6g} (element {worst})",
        f"kernel       {out[worst]:.6g}",
        f"off by       {error[worst]:.4g}",
        f"your budget  {allowed[worst]:.4g}",
    )


EXERCISE = Exercise(
    name="budget",
    title="Say how far a right kernel may be from the truth",
    function="budget",
    lines=3,
    hints=(
        "There are two roundings. Take them one after the other: how far can each move an element?",
        "A weight w moves by at most unit * w, so its part of element d moves by at most "
        "unit * w * abs(v[d]). These may all go the same way, so they add up, without signs.",
        "Then the sum is rounded, which moves it by at most unit times itself. The sum may be as "
        "large as the truth plus what the first rounding has moved.",
    ),
    learnt="An error budget follows from the roundings and from the numbers of the row, element by "
    "element; a tolerance that is the same for all is too small for one and too large for another.",
    check=check,
    wrong=(
        Wrong(
            "2 % of everything",
            "return moved + unit * largest",
            "return np.full_like(moved, 2e-2)",
            says="your budget",
        ),
        Wrong(
            "allclose with 2 %",
            "return moved + unit * largest",
            "return 2e-2 + 2e-2 * np.abs(weights @ values)",
            says="lets a kernel pass that has lost the last key",
        ),
        Wrong(
            "as for float32",
            "return moved + unit * largest",
            "return 1e-5 + 1e-5 * np.abs(weights @ values)",
            says="blames a right kernel",
        ),
        Wrong(
            "relative to the result",
            "return moved + unit * largest",
            "return 2 * unit * np.abs(weights @ values)",
            says="blames a right kernel",
        ),
        Wrong(
            "lets the signs cancel",
            "(weights @ np.abs(values))",
            "np.abs(weights @ values)",
            says="blames a right kernel",
        ),
        Wrong(
            "forgets that the output is rounded",
            "return moved + unit * largest",
            "return moved",
            says="blames a right kernel",
        ),
        Wrong(
            "forgets that the weights are rounded",
            "return moved + unit * largest",
            "return unit * np.abs(weights @ values)",
            says="blames a right kernel",
        ),
        Wrong(
            "one budget for the whole row",
            "return moved + unit * largest",
            "return np.full_like(moved, (moved + unit * largest).max())",
            says="lets a kernel pass",
        ),
        Wrong(
            "grows with the number of keys",
            "return moved + unit * largest",
            "return len(weights) * (moved + unit * largest)",
            says="lets a kernel pass",
        ),
    ),
)
