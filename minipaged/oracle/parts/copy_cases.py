"""Pairs of blocks: chains, cycles, swaps, fans, many of them, and random ones; knows no law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .contracts import CopyContract
from .memory import Sizes

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CopyCase:
    """One list of pairs; `sizes` as those of a writer's case."""

    sizes: Sizes
    pairs: Pairs
    dtype: torch.dtype = torch.float32
    pair_dtype: torch.dtype = torch.int64
    layout: str = "packed"
    strided_pairs: bool = False
    flat: bool = False
    num_rounds: int = 1
    seed: int = 0

    def __str__(self) -> str:
        pairs = ", ".join(f"{a}→{b}" for a, b in self.pairs[:12])
        pairs += ", ..." if len(self.pairs) > 12 else ""
        text = f"pairs [{pairs}], {self.sizes[0]} blocks of {'x'.join(map(str, self.sizes[1:4]))}, "
        text += f"{str(self.dtype).removeprefix('torch.')}, cache {self.layout}"
        text += ", [num_blocks, n]" if self.flat else ""
        text += ", pairs as a view" if self.strided_pairs else ""
        text += f", {str(self.pair_dtype).removeprefix('torch.')} pairs"
        return text + (
            f", {self.num_rounds} calls with the same tensors" if self.num_rounds > 1 else ""
        )

    def pairs_of(self, round_number: int) -> Pairs:
        """Other pairs in every round: all ids mirrored."""
        end = self.sizes[0] - 1
        if round_number % 2 == 0:
            return self.pairs
        return tuple((end - a, end - b) if a >= 0 else (a, b) for a, b in self.pairs)

    def tensor(self, pairs: Pairs) -> Tensor:
        """`[num_pairs, 2]`."""
        array = torch.tensor(pairs, dtype=self.pair_dtype).reshape(-1, 2)
        return array.T.contiguous().T if self.strided_pairs else array


def directed_cases(contract: CopyContract) -> Iterator[CopyCase]:
    """Small cases first; each is there because a real copier got it wrong."""
    plain = CopyCase((6, 2, 2, 3, 3), ((1, 4),), contract.dtypes[0], contract.pair_dtypes[0])
    yield replace(plain, sizes=(2, 1, 1, 1, 1), pairs=((0, 1),))
    yield plain
    yield replace(plain, pairs=())
    yield replace(plain, pairs=((5, 0), (2, 1), (4, 3)))  # ends of the pool, both directions
    yield replace(plain, pairs=((2, 0), (2, 5), (2, 3)))  # one source, several destinations
    yield replace(plain, pairs=((3, 3), (1, 2)))
    if contract.chains == "read first":
        for pairs in (
            ((0, 1), (1, 2)),  # a chain, in the order that breaks a naive loop
            ((1, 2), (0, 1)),
            ((0, 1), (1, 0)),  # a swap
            ((0, 1), (1, 2), (2, 0)),
            ((5, 4), (4, 3), (3, 2), (2, 1), (1, 0), (0, 5)),
            ((2, 0), (2, 5), (4, 2), (1, 4), (3, 3)),
        ):
            yield replace(plain, pairs=pairs)
        for length in (600, 5000):  # longer than any staging buffer
            chain = tuple((i, i + 1) for i in range(length))
            for pairs in (chain, chain[::-1], chain[::7] + chain[1::2][::-1]):
                unique = tuple({b: (a, b) for a, b in pairs}.values())
                yield replace(plain, sizes=(length + 1, 1, 1, 3, 3), pairs=unique)
    if contract.negative_pairs == "skipped":
        yield replace(plain, pairs=((-1, -1), (1, 4), (-1, -1)))
    some = ((5, 0), (2, 4), (2, 3))
    for layout in contract.layouts:
        yield replace(plain, layout=layout, pairs=some)
    for dtype in contract.dtypes:
        yield replace(plain, dtype=dtype, pairs=some)
        yield replace(plain, dtype=dtype, pairs=some, sizes=(6, 3, 1, 5, 5))
    for dtype in contract.pair_dtypes:
        yield replace(plain, pair_dtype=dtype, pairs=some)
    if contract.strided_pairs:
        yield replace(plain, strided_pairs=True, pairs=some)
    if contract.any_rank:
        yield replace(plain, flat=True, pairs=some)
    yield replace(plain, pairs=some, num_rounds=3)
    yield replace(plain, sizes=(6, 17, 3, 101, 101), pairs=some)  # a block of 5151 numbers
    yield replace(plain, sizes=(6, 33, 8, 128, 128), pairs=some)
    yield replace(plain, sizes=(3, 17, 31, 127, 127), pairs=((2, 0),))  # of more than 65535
    rng = np.random.default_rng(0)
    for num_blocks, stop in ((300, 1300), (70_001, 6000)):
        ids = rng.permutation(num_blocks)
        many = [(int(a), int(b)) for a, b in zip(ids[:stop:2], ids[1:stop:2])]
        many += [(num_blocks - 1, int(ids[-1]))] if num_blocks - 1 not in ids[:stop] else []
        yield replace(plain, sizes=(num_blocks, 1, 1, 3, 3), pairs=tuple(many))


def random_cases(contract: CopyContract) -> Any:
    """A Hypothesis strategy; few pairs of a small packed cache is what it shrinks to."""
    from hypothesis import strategies as st

    @st.composite
    def cases(draw: Any) -> CopyCase:
        num_blocks = draw(st.integers(2, 12))
        block = st.integers(0, num_blocks - 1)
        count = draw(st.integers(0, num_blocks))  # drawn first, or long lists are rare
        targets = draw(st.lists(block, unique=True, min_size=count, max_size=count))
        pairs = [(draw(block), target) for target in targets]
        if contract.chains == "not given":
            written = {b for _, b in pairs}
            pairs = [(a, b) for a, b in pairs if a not in written]
        if contract.negative_pairs == "skipped" and draw(st.booleans()):
            pairs.insert(draw(st.integers(0, len(pairs))), (-1, -1))
        dim = draw(st.integers(1, 40))
        return CopyCase(
            (num_blocks, draw(st.integers(1, 17)), draw(st.integers(1, 4)), dim, dim),
            tuple(pairs),
            draw(st.sampled_from(contract.dtypes)),
            draw(st.sampled_from(contract.pair_dtypes)),
            draw(st.sampled_from(contract.layouts)),
            contract.strided_pairs and draw(st.booleans()),
            num_rounds=draw(st.sampled_from([1, 1, 2])),
            seed=draw(st.integers(0, 2**16)),
        )

    return cases()
