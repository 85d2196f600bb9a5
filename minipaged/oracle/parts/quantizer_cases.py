"""Rows to quantise: zero, constant, far from zero, with one outlier, tiny, huge; knows no law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..truth.formats import FORMATS
from .contracts import QuantizerContract
from .memory import INPUT_LAYOUTS, laid_out

KINDS = ("normal", "sweep", "ends", "zero", "constant", "off centre", "one-sided", "outlier")
KINDS += ("last one", "tiny", "denormal", "huge", "mixed")
SHARED = {"tensor": (), "head": (1,), "token": (0,), "token, head": (0, 1), "channel": (1, 2)}


def group_ids(shape: tuple[int, ...], granularity: str) -> NDArray[np.int64]:
    """As x: number of the group of numbers that share a scale."""
    kept = SHARED[granularity]
    sizes = [shape[axis] if axis in kept else 1 for axis in range(3)]
    ids = np.arange(int(np.prod(sizes))).reshape(sizes)
    return np.broadcast_to(ids, shape)


@dataclass(frozen=True)
class QuantizerCase:
    """A tensor to quantise; `kind` says what its groups hold, "mixed" something each."""

    shape: tuple[int, int, int]
    kind: str = "normal"
    dtype: torch.dtype = torch.float32
    layout: str = "packed"
    twice: bool = False
    seed: int = 0

    def __str__(self) -> str:
        tokens, heads, dim = self.shape
        text = f"{tokens} tokens, {heads} heads, head_dim {dim}, "
        text += str(self.dtype).removeprefix("torch.")
        text += f", rows: {self.kind}" + (f", {self.layout}" if self.layout != "packed" else "")
        return text + (", two calls" if self.twice else "")

    def laid_out(self, x: Tensor) -> Tensor:
        """The same numbers in the case's memory order."""
        return laid_out(x, self.layout)

    def numbers(self, contract: QuantizerContract) -> Tensor:
        """`[num_tokens, num_heads, head_dim]`."""
        rng = np.random.default_rng([self.seed, 9])
        ids = group_ids(self.shape, contract.granularity)
        num_groups = int(ids.max(initial=-1)) + 1
        kinds = np.full(num_groups, self.kind)
        if self.kind == "mixed":
            kinds = rng.choice(KINDS[:-1], num_groups)
        largest = min(contract.largest, float(torch.finfo(self.dtype).max))
        top = FORMATS[contract.format].max
        z = rng.standard_normal(self.shape)
        size, sign = (
            10 ** rng.uniform(-3, 3, num_groups)[ids],
            rng.choice([-1.0, 1.0], num_groups)[ids],
        )
        ties = (rng.integers(-int(top), int(top), self.shape) + 0.5) / top
        first, last = np.zeros((2, ids.size), bool)
        first[np.unique(ids, return_index=True)[1]] = True
        last[ids.size - 1 - np.unique(ids[::-1, ::-1, ::-1], return_index=True)[1]] = True
        spread = np.linspace(-1, 1, max(z.size, 2))[: z.size].reshape(self.shape)
        rows = {
            "normal": z * size,
            "sweep": spread * size,
            "ends": np.where(rng.random(self.shape) < 0.4, np.sign(z), ties) * size,
            "zero": np.where(z > 0, 0.0, -0.0),
            "constant": sign * size,
            "off centre": sign * 1000 + 0.5 * z,
            "one-sided": sign * (np.abs(z) + 0.1) * size,
            "outlier": np.where(first.reshape(self.shape), sign * 1e4, z),
            "last one": np.where(last.reshape(self.shape), sign * 100, z),
            "tiny": z * contract.smallest * 4,
            "denormal": z * float(torch.finfo(self.dtype).tiny) / 8,
            "huge": np.clip(z, -3, 3) / 3 * largest,
        }
        x = np.select([kinds[ids] == kind for kind in rows], list(rows.values()))
        return torch.from_numpy(np.clip(x, -largest, largest)).to(self.dtype)


def directed_cases(contract: QuantizerContract) -> Iterator[QuantizerCase]:
    """Every kind of row in small, then shapes, types and strides on mixtures."""
    for case in _directed(contract):
        yield _fitting(case, contract)


def _fitting(case: QuantizerCase, contract: QuantizerContract) -> QuantizerCase:
    """The same, head_dim rounded up to the multiple that it must be."""
    tokens, heads, dim = case.shape
    multiple = contract.dim_multiple
    return replace(case, shape=(tokens, heads, -(-dim // multiple) * multiple))


def _directed(contract: QuantizerContract) -> Iterator[QuantizerCase]:
    plain = QuantizerCase((2, 2, 8), dtype=contract.dtypes[0])
    for kind in KINDS:
        yield replace(plain, kind=kind)
    yield replace(plain, shape=(3, 5, 40), kind="sweep")
    for shape in (
        (1, 1, 1),
        (1, 1, 2),
        (4, 1, 17),
        (1, 4, 3),
        (3, 3, 3),
        (33, 2, 130),
        (5, 17, 64),
    ):
        yield replace(plain, shape=shape)
        yield replace(plain, shape=shape, kind="mixed", seed=1)
        yield replace(plain, shape=shape, kind="last one", seed=1)
    yield replace(plain, shape=(300, 2, 4), kind="ends", seed=2)
    if contract.granularity in ("token", "token, head"):
        yield replace(plain, shape=(0, 2, 4))
    for dtype in contract.dtypes:
        for kind in ("normal", "mixed", "ends", "huge"):
            yield replace(plain, shape=(6, 3, 16), kind=kind, dtype=dtype, seed=3)
    for layout in INPUT_LAYOUTS if contract.strided else ():
        yield replace(plain, shape=(4, 3, 10), layout=layout, seed=4)
    yield replace(plain, shape=(4, 3, 10), twice=True, seed=5)
    # Beyond what a tile, a row of threads or a grid may cover.
    for kind in ("normal", "outlier", "last one"):
        yield replace(plain, shape=(2, 3, 300), kind=kind, seed=1)
        yield replace(plain, shape=(2, 1, 1030), kind=kind, seed=1)
    yield replace(plain, shape=(2, 130, 3), kind="mixed", seed=1)
    yield replace(plain, shape=(70_000, 1, 2), kind="mixed", seed=2)


def random_cases(contract: QuantizerContract) -> Any:
    """A Hypothesis strategy; one number is what it shrinks to."""
    from hypothesis import strategies as st

    return st.builds(
        QuantizerCase,
        st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 40)),
        st.sampled_from(KINDS),
        st.sampled_from(contract.dtypes),
        st.sampled_from(INPUT_LAYOUTS if contract.strided else ["packed"]),
        st.booleans(),
        st.integers(0, 2**16),
    ).map(lambda case: _fitting(case, contract))
