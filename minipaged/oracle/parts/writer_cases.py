"""Inputs for writers: the ones that broke writers before, and random ones; knows no law."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .contracts import WriterContract
from .memory import Sizes, random_bytes

# Ties of every conversion, numbers that round up to the next power of two, ends of ranges.
TRICKY = [0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11]
TRICKY += [-(1 + 3 * 2**-11), 1 + 2**-9, 1.99999, 65504.0, -65519.0, 65520.0, 1e-7, 6e-8, 2.9e-8]
TRICKY += [
    3.4028234663852886e38,
    -3.3961775292304601e38,
    1e-40,
    -1e-45,
    1.17549435e-38,
    3e38,
    1 / 3,
]


@dataclass(frozen=True)
class WriteCase:
    """One batch to write.

    Attributes:
        sizes: num_blocks, block_size, num_heads, head_dim, value_head_dim.
        slots: Slot of every token, -1 for none.
        extra_rows: Keys and values more than there are slots.
        num_rounds: Calls through the same tensors with new contents.
        numbers: "normal", "tricky" (ties, ends of the range, NaN), "bits" (random ones) or "zeros".
        strided_slots: The slots are a column of a wider tensor.
    """

    sizes: Sizes
    slots: tuple[int, ...]
    cache_dtype: torch.dtype = torch.float32
    key_dtype: torch.dtype = torch.float32
    slot_dtype: torch.dtype = torch.int64
    layout: str = "packed"
    input_layout: str = "packed"
    value_layout: str = "packed"
    extra_rows: int = 0
    num_rounds: int = 1
    numbers: str = "normal"
    strided_slots: bool = False
    seed: int = 0

    def __str__(self) -> str:
        num_blocks, block_size, heads, dim, value_dim = self.sizes
        slots = str(list(self.slots[:12]))[:-1] + (", ...]" if len(self.slots) > 12 else "]")
        text = f"{len(self.slots)} tokens to slots {slots}, {num_blocks} blocks of {block_size}, "
        text += f"{heads} heads, head_dim {dim}" + (f"/{value_dim}" if value_dim != dim else "")
        text += f", {_short(self.key_dtype)} into {_short(self.cache_dtype)}"
        text += f", cache {self.layout}" if self.layout != "packed" else ""
        text += f", keys {self.input_layout}" if self.input_layout != "packed" else ""
        text += f", values {self.value_layout}" if self.value_layout != "packed" else ""
        text += ", slots a column" if self.strided_slots else ""
        text += f", {self.extra_rows} keys without a slot" if self.extra_rows else ""
        return text + (
            f", {self.num_rounds} calls with the same tensors" if self.num_rounds > 1 else ""
        )

    def slots_of(self, round_number: int) -> tuple[int, ...]:
        """Other slots in every round: the same ones, one further."""
        if not round_number:
            return self.slots
        turn = (*self.slots[round_number:], *self.slots[:round_number])
        end = self.sizes[0] * self.sizes[1]
        return tuple(s if s < 0 else end - 1 - s for s in turn)

    def inputs(self, bounds: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Key, value and slot_mapping; within `bounds` per head, and a little beyond, if given."""
        num_rows, (_, _, heads, dim, value_dim) = len(self.slots) + self.extra_rows, self.sizes
        key, value = (
            self._numbers((num_rows, heads, d), i) for i, d in enumerate((dim, value_dim))
        )
        if bounds is not None:
            key, value = (
                self._bounded(x, b, i) for i, (x, b) in enumerate(zip((key, value), bounds))
            )
        return key, value, torch.tensor(self.slots, dtype=self.slot_dtype)

    def _numbers(self, shape: tuple[int, ...], which: int) -> Tensor:
        seed = [self.seed, which, 7]
        if self.numbers == "bits" and self.key_dtype == self.cache_dtype:
            return random_bytes(shape, self.key_dtype, seed)
        if self.numbers == "zeros":
            return torch.zeros(shape, dtype=self.key_dtype)
        rng = np.random.default_rng(seed)
        x = torch.from_numpy(rng.standard_normal(shape)).to(torch.float32)
        if self.numbers != "normal" and x.numel():
            picks = torch.from_numpy(rng.integers(0, len(TRICKY), shape))
            use = torch.from_numpy(rng.random(shape) < 0.7)
            x = torch.where(use, torch.tensor(TRICKY, dtype=torch.float32)[picks], x)
        return x.to(self.key_dtype)

    def _bounded(self, x: Tensor, bound: Tensor, which: int) -> Tensor:
        """Numbers over all of a quantised range, its ends exactly, and beyond them if tricky."""
        rng = np.random.default_rng([self.seed, which, 8])
        ends = (
            [0.0, 1.0, -1.0, 1.3, -1.3, 100.0, -100.0]
            if self.numbers != "normal"
            else [0.0, 1.0, -1.0]
        )
        part = rng.uniform(-1, 1, x.shape) * 10 ** -rng.uniform(0, 3, x.shape)
        part = np.where(rng.random(x.shape) < 0.2, rng.choice(ends, x.shape), part)
        return (torch.from_numpy(part) * bound[:, None]).to(x.dtype)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shuffled(num_tokens: int, sizes: Sizes, seed: int, holes: float = 0.0) -> tuple[int, ...]:
    rng = np.random.default_rng(seed)
    slots = rng.permutation(sizes[0] * sizes[1])[:num_tokens]
    return tuple(np.where(rng.random(num_tokens) < holes, -1, slots).tolist())


def directed_cases(
    contract: WriterContract, num_heads: int | None, scaled: bool
) -> Iterator[WriteCase]:
    """Small cases first; each is there because a real writer got it wrong."""
    return _fitting(_directed(contract), contract, num_heads, scaled)


def large_cases(
    contract: WriterContract, num_heads: int | None, scaled: bool
) -> Iterator[WriteCase]:
    """More tokens than a grid or a 16-bit number has room for."""
    sizes, case = (5, 14_000, 1, 1, 1), next(_directed(contract))
    case = replace(case, sizes=sizes, slots=_shuffled(66_000, sizes, 6))
    return _fitting(iter([case]), contract, num_heads, scaled)


def _fitting(
    cases: Iterator[WriteCase], contract: WriterContract, num_heads: int | None, scaled: bool
) -> Iterator[WriteCase]:
    """The same within what the contract and the scales allow."""
    for case in cases:
        nb, bs, heads, dim, value_dim = case.sizes
        value_dim = dim if contract.value_dim == "same" else value_dim
        case = replace(case, sizes=(nb, bs, num_heads or heads, dim, value_dim))
        if scaled and case.key_dtype.itemsize < 2:
            case = replace(case, key_dtype=torch.float32)
        if contract.negative_slots == "not given":
            case = replace(case, slots=tuple(s for s in case.slots if s >= 0))
        yield case


def _directed(contract: WriterContract) -> Iterator[WriteCase]:
    cache = contract.cache_dtypes[0]
    own = cache if cache.itemsize > 1 else (*contract.key_dtypes, torch.float32)[0]
    plain = WriteCase((3, 4, 2, 3, 5), (9, 2, 4, 0, 11), cache, own, contract.slot_dtypes[0])
    yield replace(plain, sizes=(2, 2, 1, 1, 1), slots=(1,))
    yield replace(plain, sizes=(2, 2, 2, 2, 2), slots=(2, 1))
    yield plain
    yield replace(plain, slots=(-1, 5, -1, 0, -1, 3))
    yield replace(plain, slots=(-1, -1))
    yield replace(plain, slots=())
    yield replace(
        plain, numbers="tricky", sizes=(5, 3, 2, 16, 16), slots=_shuffled(9, (5, 3, 0, 0, 0), 1)
    )
    yield replace(plain, numbers="bits", slots=_shuffled(8, plain.sizes, 2))
    yield replace(plain, num_rounds=3)
    yield replace(plain, num_rounds=2, slots=(9, -1, 4, 0))
    for layout in contract.layouts:
        yield replace(plain, layout=layout)
    if "only values HND" in contract.layouts:
        yield replace(plain, layout="only values HND", sizes=(3, 4, 2, 3, 3))
    for layout in contract.input_layouts:
        yield replace(plain, input_layout=layout, value_layout=layout)
        if layout != "packed":
            yield replace(plain, input_layout=layout, sizes=(3, 4, 2, 3, 3))
            yield replace(plain, value_layout=layout, sizes=(3, 4, 2, 3, 3))
    if contract.strided_slots:
        yield replace(plain, strided_slots=True)
    yield replace(plain, numbers="zeros")
    for block_size in (1, 5, 17, 48, 300):
        sizes = (4, block_size, 2, 4, 4)
        yield replace(plain, sizes=sizes, slots=_shuffled(min(33, 4 * block_size), sizes, 3, 0.2))
    for heads, dim, value_dim in (
        (1, 130, 64),
        (3, 80, 80),
        (17, 20, 24),
        (40, 72, 72),
        (5, 256, 260),
        (1, 576, 576),
        (1, 72, 1030),
        (65, 2, 2),
        (130, 3, 1),
    ):
        yield replace(plain, sizes=(3, 4, heads, dim, value_dim), slots=(7, 0, 11))
    for dtype in contract.cache_dtypes:
        for key_dtype in _key_dtypes(contract, dtype):
            change = {"cache_dtype": dtype, "key_dtype": key_dtype}
            slots = _shuffled(30, (8, 6, 0, 0, 0), 4)
            yield replace(plain, sizes=(8, 6, 2, 9, 9), slots=slots, numbers="tricky", **change)
    for dtype in contract.slot_dtypes:
        yield replace(plain, slot_dtype=dtype, slots=(3, -1, 7, 11))
    if contract.longer_keys != "not given":
        yield replace(plain, extra_rows=2)
    yield replace(plain, sizes=(3, 4, 2, 3, 3), slots=tuple(reversed(range(12))))
    yield replace(plain, sizes=(50, 50, 1, 2, 2), slots=_shuffled(2300, (50, 50, 0, 0, 0), 5, 0.1))
    yield replace(plain, sizes=(70_001, 1, 1, 2, 2), slots=(70_000, 32_768, 65_536, 255, 40_000))


def _key_dtypes(contract: WriterContract, cache: torch.dtype) -> list[torch.dtype]:
    """Types of keys to write into a cache of a type."""
    if cache.itemsize == 1:
        return list(contract.key_dtypes) or [torch.float32]
    others = contract.key_dtypes if contract.conversion != "not given" else ()
    return list(dict.fromkeys((cache, *others)))


def random_cases(contract: WriterContract, num_heads: int | None, scaled: bool) -> Any:
    """A Hypothesis strategy; few tokens, packed, of one type is what it shrinks to."""
    from hypothesis import strategies as st

    @st.composite
    def cases(draw: Any) -> WriteCase:
        heads = num_heads or draw(st.integers(1, 5))
        dim = draw(st.integers(1, 20) | st.sampled_from([33, 64, 100, 128]))
        value_dim = dim if contract.value_dim == "same" else draw(st.just(dim) | st.integers(1, 20))
        sizes = draw(st.integers(1, 9)), draw(st.integers(1, 20)), heads, dim, value_dim
        end = sizes[0] * sizes[1]
        count = draw(st.integers(0, min(end, 40)))  # drawn first, or long lists are rare
        slots = st.lists(st.integers(0, end - 1), unique=True, min_size=count, max_size=count)
        slots = draw(slots)
        if contract.negative_slots == "skipped":
            holes = draw(st.lists(st.integers(0, len(slots)), max_size=4))
            for place in holes:
                slots.insert(place, -1)
        cache = draw(st.sampled_from(contract.cache_dtypes))
        key = draw(st.sampled_from(_key_dtypes(contract, cache)))
        return WriteCase(
            sizes,
            tuple(slots),
            cache,
            key,
            draw(st.sampled_from(contract.slot_dtypes)),
            draw(st.sampled_from(contract.layouts)),
            draw(st.sampled_from(contract.input_layouts)),
            draw(st.sampled_from(contract.input_layouts)),
            num_rounds=draw(st.sampled_from([1, 1, 2])),
            numbers=draw(st.sampled_from(["normal", "tricky", "bits"])),
            strided_slots=contract.strided_slots and draw(st.booleans()),
            seed=draw(st.integers(0, 2**16)),
        )

    return cases()
