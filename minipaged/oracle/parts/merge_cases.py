"""States to merge: empty, equal, far apart, huge, and views of larger tensors; knows no law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .contracts import MergeContract
from .memory import laid_out
from .merge_truth import Array

KINDS = ("plain", "near", "apart", "equal", "zero", "empty a", "empty b", "both empty")
KINDS += ("far", "high", "low", "mixed")
POISON = (np.nan, np.inf, -np.inf, 1e30, 0.0)


class State(NamedTuple):
    """Attention over some keys."""

    out: Tensor  # [num_tokens, num_heads, head_dim]
    lse: Tensor  # [num_tokens, num_heads] float32

    @classmethod
    def of(cls, out: Array, lse: Array, dtype: torch.dtype) -> State:
        """Rounded to what a kernel hands on."""
        return cls(torch.from_numpy(out).to(dtype), torch.from_numpy(lse).to(torch.float32))


@dataclass(frozen=True)
class MergeCase:
    """States to merge.

    Attributes:
        shape: num_tokens, num_heads, head_dim.
        lse: Which lse the states have: one of KINDS, or "keys" for halves of real attention.
        num_states: Two are merged both ways round, more are folded.
        num_rounds: Times it is done, with new numbers.
        strided: Which inputs are views with gaps: "a", "b", "ab" or none.
        far: The largest lse.
        infinite: Empty states may have an lse of +inf.
    """

    shape: tuple[int, int, int]
    lse: str = "plain"
    dtype: torch.dtype = torch.float32
    num_states: int = 2
    num_rounds: int = 1
    strided: str = ""
    far: float = 3e4
    infinite: bool = False
    seed: int = 0

    def __str__(self) -> str:
        tokens, heads, dim = self.shape
        text = f"{self.num_states} states of {tokens} tokens, {heads} heads, head_dim {dim}, "
        text += f"{str(self.dtype).removeprefix('torch.')}, lse: {self.lse}"
        text += f", views: {self.strided}" if self.strided else ""
        return text + (f", {self.num_rounds} rounds" if self.num_rounds > 1 else "")

    def states(self, base: float) -> list[State]:
        """As many as asked for."""
        rng = np.random.default_rng([self.seed, 3])
        lses = self._lses(rng) / base
        states = []
        for lse in lses:
            out = rng.standard_normal(self.shape) * 10 ** rng.uniform(-2, 2, (*self.shape[:2], 1))
            poison = rng.choice(POISON, self.shape)
            states.append(
                State.of(np.where(np.isinf(lse)[..., None], poison, out), lse, self.dtype)
            )
        return states

    def _lses(self, rng: np.random.Generator) -> Array:
        """`[num_states, num_tokens, num_heads]`, natural."""
        size = (self.num_states, *self.shape[:2])
        kinds = np.full(self.shape[:2], self.lse)
        if self.lse == "mixed":
            kinds = rng.choice(KINDS[:-1], self.shape[:2])
        plain = rng.normal(0, 3, size)
        common, sign = plain[:1] + 0 * plain, rng.choice([-1.0, 1.0], size)
        other = rng.choice([1.0, 50.0, -300.0, self.far, -self.far], size) * rng.uniform(
            0.5, 1, size
        )
        alone = np.where(rng.random(size) < 0.5, plain, other)  # what an empty state is merged with
        number = np.arange(self.num_states).reshape(-1, 1, 1)
        hole = np.where(rng.random(size) < (0.5 if self.infinite else 0.0), np.inf, -np.inf)
        lses = {
            "plain": plain,
            "apart": common + sign * rng.uniform(0, 110, size) * (number > 0),
            "near": common + sign * 10 ** rng.uniform(-4, 0, size) * (number > 0),
            "equal": common,
            "zero": np.where(rng.random(size) < 0.5, 0.0, plain),
            "empty a": np.where(number % 2 == 0, hole, alone),
            "empty b": np.where(number % 2 == 1, hole, alone),
            "both empty": hole,
            "far": sign * self.far * rng.uniform(0.3, 1, size),
            "high": self.far / 3 + plain,
            "low": -self.far / 3 + plain,
        }
        return np.select([kinds[None] == kind for kind in lses], list(lses.values()))

    def laid_out(self, state: State, which: str, turned: bool) -> tuple[Tensor, Tensor]:
        """Copies for the subject to read as its argument `which`; lse `turned` if it comes so."""
        strided, lse = which in self.strided, state.lse.T if turned else state.lse
        out = laid_out(state.out, "heads first" if strided else "packed")
        if not strided:
            return out, lse.clone(memory_format=torch.contiguous_format)
        return out, torch.stack([lse, torch.full_like(lse, 7.0)], -1)[..., 0]


def keys_of(case: MergeCase) -> tuple[Array, Array]:
    """`[..., num_keys]` scores and `[..., num_keys, head_dim]` values."""
    rng = np.random.default_rng([case.seed, 4])
    scores = rng.normal(0, 3, (*case.shape[:2], 19))
    return scores, rng.standard_normal((*case.shape[:2], 19, case.shape[2]))


def directed_cases(contract: MergeContract) -> Iterator[MergeCase]:
    """Every kind of lse on one row, then shapes, types and strides on mixtures."""
    facts = {"far": contract.far, "infinite": contract.infinite_lse == "empty"}
    one = MergeCase((1, 1, 1), dtype=contract.dtypes[0], **facts)
    for kind in KINDS[:-1]:
        yield replace(one, lse=kind)
    plain = replace(one, shape=(3, 2, 5))
    for kind in KINDS:
        yield replace(plain, lse=kind, seed=1)
    yield replace(plain, lse="keys")
    shapes = [(0, 2, 3), (3, 3, 3), (4, 4, 2), (2, 5, 5), (5, 2, 80), (33, 3, 7), (2, 40, 64)]
    shapes += [(1, 1, 130), (7, 17, 256)]
    for shape in shapes:
        yield replace(plain, shape=shape, lse="mixed", seed=2)
    for dtype in contract.dtypes:
        for kind in ("mixed", "apart", "keys"):
            yield replace(plain, shape=(6, 4, 9), dtype=dtype, lse=kind, seed=3)
    if contract.strided:
        for which in ("ab", "a", "b"):
            yield replace(plain, strided=which)
            yield replace(plain, strided=which, shape=(6, 4, 9), lse="mixed")
    for num_states in (3, 8, 33):
        yield replace(plain, num_states=num_states, lse="mixed", seed=4)
    yield replace(plain, num_states=9, shape=(4, 3, 6), seed=4)
    yield replace(plain, num_rounds=3, shape=(4, 3, 6), lse="mixed", seed=5)


def large_cases(contract: MergeContract) -> Iterator[MergeCase]:
    """More rows than a grid or a 16-bit number has room for."""
    for shape in ((2100, 3, 4), (70_001, 1, 1), (2, 70, 512), (3, 2, 576), (1, 130, 1030)):
        yield MergeCase(shape, "mixed", contract.dtypes[0], far=contract.far)


def random_cases(contract: MergeContract) -> Any:
    """A Hypothesis strategy; one row of plain lse is what it shrinks to."""
    from hypothesis import strategies as st

    shapes = st.tuples(
        st.integers(1, 9), st.integers(1, 9), st.integers(1, 20) | st.sampled_from([64, 100])
    )
    return st.builds(
        MergeCase,
        shapes,
        st.sampled_from([*KINDS, "keys"]),
        st.sampled_from(contract.dtypes),
        st.sampled_from([2, 2, 2, 3, 5]),
        strided=st.sampled_from(["", "ab", "a", "b"] if contract.strided else [""]),
        far=st.just(contract.far),
        infinite=st.just(contract.infinite_lse == "empty"),
        seed=st.integers(0, 2**16),
    )
