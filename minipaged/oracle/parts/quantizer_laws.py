"""The laws of one round trip through a quantiser; knows numbers in float64, and no subject."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..truth.formats import FORMATS
from .contracts import QuantizerContract
from .judge import Judge
from .quantizer_cases import group_ids
from .writer_scaled import half_steps

Array = NDArray[np.float64]
Where = NDArray[np.bool_]


@dataclass
class Groups:
    """Per number, what its group of numbers with one scale is like."""

    ids: NDArray[np.int64]  # as x: the group
    count: int
    largest: Array  # as x: largest magnitude of the group
    step: Array  # as x: range of the group by number of codes, 0 if one code does

    @classmethod
    def of(cls, x: Array, contract: QuantizerContract) -> Groups:
        """The groups of `[num_tokens, num_heads, head_dim]` numbers."""
        ids = group_ids(x.shape, contract.granularity)
        count = int(ids.max(initial=-1)) + 1
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(low, ids, x)
        np.maximum.at(high, ids, x)
        largest = np.maximum(np.abs(low), np.abs(high))
        if contract.includes_zero:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        top = FORMATS[contract.format].max
        step = largest / top if contract.symmetric else (high - low) / (2 * top + 1)
        return cls(ids, count, largest[ids], step[ids])


@dataclass
class RoundTrip:
    """Numbers and what came back; every method is a law, and raises `Broken` if it is broken."""

    judge: Judge
    contract: QuantizerContract
    x: Array
    found: Array
    groups: Groups
    unit: float  # unit roundoff of the type that came back

    @property
    def is_audible(self) -> Where:
        """Where the group is large enough that losing it would be a fault."""
        return self.groups.largest >= self.contract.smallest

    @property
    def slack(self) -> Array:
        """Roundings of float32 arithmetic on numbers of the group's size, and of the result."""
        return self.groups.largest * 2.0**-20 + 1.01 * self.unit * np.abs(self.x) + 1e-44

    def zeros_and_signs(self) -> None:
        """Rows of zeros come back as zeros; no number comes back with the other sign."""
        zero = self.groups.largest == 0
        if zero.any():
            self._forbid(zero & (self.found != 0), "zeros stay zeros", 3)
        if self.contract.symmetric:
            self._forbid(self.x * np.sign(self.found) < 0, "signs stay", 1)

    def half_a_step(self) -> float:
        """The error is within the steps that the group's range asks for; returns the share used."""
        form, contract, groups = FORMATS[self.contract.format], self.contract, self.groups
        allowed = contract.error_steps * groups.step * contract.step_ratio
        if not form.is_integer:  # relative to each number, but to the smallest step near 0
            allowed = np.maximum(np.abs(self.x) * form.unit_roundoff, allowed * form.tiny)
        allowed = allowed * (1 + 2**-10) + self.slack
        lost = np.maximum(allowed, groups.largest * 1.01)
        allowed = np.where(self.is_audible, allowed, lost)
        error, constant = np.abs(self.found - self.x), groups.step == 0
        if constant.any():
            self._forbid(constant & (error > allowed), "constant rows come back", 3, allowed)
        self._forbid(error > allowed, "half a step", 1, allowed)
        share = (error / allowed)[self.is_audible]
        return float(share.max(initial=0.0))

    def nearest_on_its_grid(self, scale: Array) -> None:
        """One scale per group; every number the nearest that the scale has, the largest exactly."""
        shape, granularity = self.x.shape, self.contract.granularity
        text = f"{scale.size} scales, where {granularity!r} of {shape} has {self.groups.count}"
        self.judge.require(scale.size == self.groups.count, "a scale per group", 0, text)
        if not self.x.size:
            return
        scales, form = scale.reshape(-1)[self.groups.ids], FORMATS[self.contract.format]
        usable = (scales > 1e-30) & self.is_audible
        quotient = self.x / np.where(usable, scales, 1.0)
        target = np.clip(quotient, -form.max - form.is_integer, form.max)
        grid = getattr(torch, "int8" if form.is_integer else form.name)
        steps = half_steps(target, grid) * 2 * self.contract.error_steps
        allowed = steps * (1 + 2**-10) * scales + self.slack
        error = np.abs(self.found - self.x)
        self._forbid(usable & (error > allowed), "nearest on its grid", 1, allowed)
        if self.contract.exact_ends:
            ends = usable & (np.abs(self.x) == self.groups.largest)
            self._forbid(ends & (error > 2 * self.slack), "the largest comes back", 1)

    def monotone(self) -> None:
        """Within a group, a larger number does not come back smaller."""
        ids, largest = self.groups.ids.reshape(-1), self.groups.largest.reshape(-1)
        order = np.lexsort((self.x.reshape(-1), ids))
        x, back = self.x.reshape(-1)[order], self.found.reshape(-1)[order]
        falls = (np.diff(back) < -largest[order][1:] * 2.0**-21) & (np.diff(ids[order]) == 0)

        def text() -> str:
            i = int(np.argmax(falls))
            pair = f"{x[i]:.7g} < {x[i + 1]:.7g}"
            return f"{pair} come back as {back[i]:.7g} > {back[i + 1]:.7g}"

        self.judge.require(not falls.any(), "monotone", 2, text)

    def idempotent(self, second: Array) -> None:
        """What came back comes back again, in `second`."""
        step = self.groups.step * (1 if FORMATS[self.contract.format].is_integer else 1e-3)
        allowed = step / 8 + self.groups.largest * 2.0**-19 + 1e-44
        moved = self.is_audible & (np.abs(second - self.found) > allowed)
        self.judge.require(
            not moved.any(),
            "idempotent",
            2,
            lambda: first_place(self.found, second, moved) + ", quantised again",
        )

    def _forbid(self, where: Where, law: str, level: int, allowed: Array | None = None) -> None:
        self.judge.require(
            not where.any(), law, level, lambda: first_place(self.x, self.found, where, allowed)
        )


def first_place(x: Array, found: Array, where: Where, allowed: Array | None = None) -> str:
    """The first place where something is wrong."""
    t, h, d = (int(i) for i in np.argwhere(where)[0])
    text = f"{x[t, h, d]:.7g} comes back as {found[t, h, d]:.7g} at token {t}, head {h}, dim {d}"
    return text + (
        f"; an error of {allowed[t, h, d]:.3g} is allowed" if allowed is not None else ""
    )
