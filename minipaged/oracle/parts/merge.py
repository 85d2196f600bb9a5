"""Does merging attention over two sets of keys give attention over both?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..report import Report
from .contracts import MergeContract
from .judge import Judge, begin
from .memory import bits
from .merge_cases import MergeCase, State, directed_cases, keys_of, large_cases, random_cases
from .merge_truth import Bounds, attention, merged
from .writer_scaled import as_float64

Rows = NDArray[np.bool_]
LEVELS = {"weighted mean": 1, "identity": 3, "both empty": 3, "folds": 5, "union": 5}


def check_merge(
    merge_states: Callable[..., Any],
    *,
    contract: MergeContract | None = None,
    max_examples: int = 100,
    seed: int = 0,
    deadline_s: float = 20.0,
    call_s: float = 5.0,
    device: str = "cpu",
    name: str | None = None,
) -> Report:
    """Judge `merge_states(out_a, lse_a, out_b, lse_b) -> (out, lse)`.

    The laws: the result is attention over the union, within a bound derived for float32 arithmetic;
    `(anything, -inf)` is the identity, whatever NaN it holds, and two of them give `(0, -inf)`; the
    order of two does not matter, nor that of many; nothing overflows however large or far apart the
    lse are; the inputs stay.

    Args:
        merge_states: The subject. Outs are `[num_tokens, num_heads, head_dim]`.
        contract: Where the subject legitimately differs.
        max_examples: Random cases after the directed ones.
        seed: Of the random cases.
        deadline_s: Seconds after which no new case is begun.
        call_s: Seconds after which one call counts as hung.
        device: Where the tensors lie.
        name: The subject's name in the report.
    """
    contract = contract or MergeContract()
    judge = begin(merge_states, "merge", name, max_examples, seed, deadline_s, call_s, contract)
    bench = _Bench(judge, merge_states, contract, device)
    judge.directed(directed_cases(contract), bench.examine)
    judge.directed(large_cases(contract), bench.examine, only_if_clean=True)
    judge.random(random_cases(contract), bench.examine)
    judge.report.figures["error budget used"] = round(bench.used, 3)
    judge.report.figures["commutes bit for bit"] = bench.commutes
    return judge.finish()


@dataclass
class _Bench:
    judge: Judge
    merge_states: Callable[..., Any]
    contract: MergeContract
    device: str
    used: float = 0.0
    commutes: bool = True

    def examine(self, case: MergeCase) -> None:
        """Two states both ways round, or a fold of many, or the halves of real attention."""
        base = np.log(2) if self.contract.lse_base == "2" else 1.0
        if case.lse == "keys":
            self._union(case, base)
            return
        for round_number in range(case.num_rounds):
            states = replace(case, seed=case.seed + round_number).states(base)
            if case.num_states > 2:
                self._fold(case, states)
                continue
            first, second = states
            one = self._merge(first, second, case)
            two = self._merge(second, first, case)
            self._compare(one, states, case, "a, b")
            self._compare(two, states, case, "b, a")
            self.commutes &= all(torch.equal(bits(x), bits(y)) for x, y in zip(one, two))

    def _fold(self, case: MergeCase, states: list[State]) -> None:
        """Left to right, right to left, and as a tree."""
        left, right, tree = states[0], states[-1], list(states)
        for state in states[1:]:
            left = self._merge(left, state, case)
        for state in states[-2::-1]:
            right = self._merge(state, right, case)
        while len(tree) > 1:
            pairs = zip(tree[::2], tree[1::2])
            odd = tree[-1:] if len(tree) % 2 else []
            tree = [self._merge(a, b, case) for a, b in pairs] + odd
        for title, result in (("left", left), ("right", right), ("as a tree", tree[0])):
            self._compare(
                result, states, case, f"{case.num_states} states, folded {title}", "folds"
            )

    def _union(self, case: MergeCase, base: float) -> None:
        """Split the keys of real attention; all of them at once must give the same."""
        scores, values = keys_of(case)
        cut = scores.shape[-1] // 3
        halves = [
            attention(scores[..., part], values[..., part, :])
            for part in (slice(cut), slice(cut, None))
        ]
        states = [State.of(out, lse / base, case.dtype) for out, lse in halves]
        first, second = states
        result = self._merge(first, second, case)
        self._compare(result, states, case, "two thirds and one third of the keys")
        out, lse = attention(scores, values)
        bounds = self._truth(states).widened(values, case.dtype)
        self._judge(result, replace(bounds, out=out, lse=lse / base), "union", "all keys at once")

    def _merge(self, a: State, b: State, case: MergeCase) -> State:
        """The subject's result for two states."""
        turned = self.contract.lse_layout == "head, token"
        given = [*case.laid_out(a, "a", turned), *case.laid_out(b, "b", turned)]
        given = [x.to(self.device) for x in given]
        before = [bits(x) for x in given]
        result = self.judge.call(self.merge_states, *given)
        if self.contract.in_place == "a":
            result = given[0], given[1]
        require, changed = self.judge.require, []
        for title, old, x in zip(("out_a", "lse_a", "out_b", "lse_b"), before, given):
            may_change = self.contract.in_place == "a" and title.endswith("a")
            changed += [title] if not may_change and not torch.equal(old, bits(x)) else []
        require(not changed, "inputs stay", 0, f"{' and '.join(changed)} changed")
        pair = isinstance(result, tuple | list) and len(result) == 2
        require(
            pair and all(isinstance(x, Tensor) for x in result), "out and lse", 0, _kind(result)
        )
        out, lse = (x.detach().cpu() for x in result)
        right = (a.out.shape, case.dtype), (given[1].shape, torch.float32)
        for title, x, (shape, dtype) in zip(("out", "lse"), (out, lse), right):
            found = f"{title} is {x.dtype} {tuple(x.shape)}, not {dtype} {tuple(shape)}"
            require(x.shape == shape and x.dtype == dtype, "shape and type", 0, found)
        lse = lse.T if self.contract.lse_layout == "head, token" else lse
        # Kept from now on: a subject may hand out the same buffer again.
        return State(out.clone(), lse.clone())

    def _truth(self, states: list[State]) -> Bounds:
        base = np.log(2) if self.contract.lse_base == "2" else 1.0
        return merged(
            [(as_float64(s.out), as_float64(s.lse)) for s in states], base, states[0].out.dtype
        )

    def _compare(
        self, result: State, states: list[State], case: MergeCase, how: str, law: str = ""
    ) -> None:
        truth = self._truth(states)
        empty: Rows = np.stack([~np.isfinite(as_float64(s.lse)) for s in states])
        count = empty.sum(0)
        none, all_of_them = np.equal(count, 0), np.equal(count, len(states))
        laws: dict[str, Rows] = {"both empty": all_of_them}
        laws[law or "weighted mean"] = none
        laws[law or "identity"] = ~none & ~all_of_them if not law else ~all_of_them
        for title, rows in laws.items():
            self._judge(result, truth, title, how, rows, states)

    def _judge(
        self,
        result: State,
        truth: Bounds,
        law: str,
        how: str,
        rows: Rows | None = None,
        states: list[State] | None = None,
    ) -> None:
        """Out and lse of the rows must be within the bounds."""
        out, lse = as_float64(result.out), as_float64(result.lse)
        rows = np.ones(lse.shape, bool) if rows is None else rows
        if not rows.any():
            return
        for title, found, right, bound in (
            ("lse", lse[..., None], truth.lse[..., None], truth.lse_bound[..., None]),
            ("out", out, truth.out, truth.out_bound),
        ):
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                share = np.where(found == right, 0.0, np.abs(found - right) / bound)
            wrong = rows[..., None] & ~(share <= 1)

            def text(title=title, found=found, right=right, wrong=wrong) -> str:
                t, h, d = (int(i) for i in np.argwhere(wrong)[0])
                place = f"token {t}, head {h}" + (f", dim {d}" if title == "out" else "")
                given = ", ".join(_number(s.lse[t, h].item()) for s in states or [])
                given = f" of lse {given}" if given and len(states or []) < 5 else ""
                numbers = f"{_number(found[t, h, d])} instead of {_number(right[t, h, d])}"
                return f"{title} is {numbers} at {place}{given} ({how})"

            self.judge.require(not wrong.any(), f"{law}: {title}", LEVELS[law], text)
            self.used = max(self.used, float(share[rows].max(initial=0.0)))


def _number(x: float) -> str:
    return f"{float(x):.9g}"


def _kind(result: Any) -> str:
    inside = ", ".join(type(x).__name__ for x in result) if isinstance(result, tuple | list) else ""
    return f"returned {type(result).__name__} {inside}".strip() + ", not a pair of tensors"
