"""Paged attention problems of any shape, and what they must give; knows no implementation.

A `Spec` is drawn by Hypothesis and says everything in small numbers; `build` makes the tensors. The
content comes from one seed and its placement from another, so that a law may change one of them.
Whatever no query may see is NaN: unowned blocks, tails, blocks behind the window, padding.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from support.attention_oracle import Rules, attend
from support.events import count

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Spec:
    """A problem in small numbers."""

    lengths: tuple[tuple[int, int], ...]  # (query_len, seq_len) of each sequence
    num_kv_heads: int = 1
    group: int = 1  # query heads per kv head
    head_dim: int = 4
    value_head_dim: int = 4
    block_size: int = 4
    dtype: str = "float32"
    layout: str = "NHD"
    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    kv_scales: str = "none"  # none, float, or a tensor
    padding: int = -1  # what stands in a table where there is no block
    extra_rows: int = 0  # rows of query that belong to no sequence
    sharpness: float = 2.0  # how far from flat the softmax is
    content: int = 0
    placement: int = 0

    def build(self) -> Problem:
        """The tensors; the same spec always gives the same ones, which nobody may write to."""
        return _build(self)

    def first_visible(self, s: int) -> int:
        """The first position that a query of sequence s sees, or its length if there is none."""
        query_len, seq_len = self.lengths[s]
        if query_len == 0:
            return seq_len
        return 0 if self.window is None else max(0, seq_len - query_len + 1 - self.window)

    def count_events(self) -> None:
        """Note what this problem exercises."""
        for s, (query_len, seq_len) in enumerate(self.lengths):
            if query_len == 0:
                count("a sequence without queries")
                continue
            count("many rows", query_len > 1)
            count("an empty sequence", seq_len == 0)
            count("more queries than keys", query_len > seq_len > 0)
            count("a partial last block", seq_len % self.block_size > 0)
            count("the window binds", self.first_visible(s) > 0)
            count("a freed block", self.first_visible(s) >= self.block_size)
            count("the future is seen", not self.causal and query_len > 1)
            count("a later tile", seq_len > 64)
            count("a later split", seq_len > 256)
        count("rows of nobody", self.extra_rows > 0)


@dataclass(frozen=True)
class Problem:
    """Arguments of a call, and the numbers in them sequence by sequence."""

    spec: Spec
    arguments: dict[str, Any]
    keys: list[Tensor] = field(repr=False)  # [seq_len, num_kv_heads, head_dim] as stored
    values: list[Tensor] = field(repr=False)

    def __call__(self, form, **changes) -> tuple[Tensor, Tensor]:
        """The output and lse of an implementation."""
        return form(**(self.arguments | changes), return_lse=True)

    def rows(self, s: int) -> slice:
        """The rows of the query that belong to a sequence."""
        starts = self.arguments["query_start_loc"].tolist()
        return slice(starts[s], starts[s + 1])

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of a call."""
        return {name: x for name, x in self.arguments.items() if name not in _POSITIONAL}

    def rules(self, head: int) -> Rules:
        """The options for one head."""
        options, kv_head = self.options, head // self.spec.group

        def number(name: str, index: int) -> float | None:
            x = options[name]
            return x[index].item() if isinstance(x, Tensor) else x

        k_scale, v_scale = number("k_scale", kv_head), number("v_scale", kv_head)
        return Rules(
            options["scale"],
            options["causal"],
            options["window"],
            options["softcap"],
            number("alibi_slopes", head),
            number("sinks", head),
            1.0 if k_scale is None else k_scale,
            1.0 if v_scale is None else v_scale,
        )

    @cached_property
    def expected(self) -> Expected:
        """What every implementation must give."""
        spec, query = self.spec, self.arguments["query"]
        shape = (*query.shape[:2], spec.value_head_dim)
        out, out_budget = torch.zeros(shape).double(), torch.zeros(shape).double()
        lse = torch.full(shape[:2], -torch.inf).double()
        lse_budget = torch.zeros(shape[:2]).double()
        compute = "float64" if spec.dtype == "float64" else "float32"
        queries = query.double().tolist()
        for s, (query_len, seq_len) in enumerate(spec.lengths):
            keys, values = self.keys[s].double().tolist(), self.values[s].double().tolist()
            for i in range(query_len):
                row = self.rows(s).start + i
                for head in range(query.shape[1]):
                    kv_head = head // spec.group
                    found = attend(
                        queries[row][head],
                        [key[kv_head] for key in keys],
                        [value[kv_head] for value in values],
                        seq_len - query_len + i,
                        spec.value_head_dim,
                        self.rules(head),
                        compute,
                        spec.dtype,
                    )
                    out[row, head] = torch.tensor(found.out, dtype=torch.float64)
                    out_budget[row, head] = torch.tensor(found.out_budget, dtype=torch.float64)
                    lse[row, head], lse_budget[row, head] = found.lse, found.lse_budget
        return Expected(out, lse, out_budget, lse_budget)


@dataclass(frozen=True)
class Expected:
    """The right output, and how far off each number may be."""

    out: Tensor
    lse: Tensor
    out_budget: Tensor
    lse_budget: Tensor

    def check(self, out: Tensor, lse: Tensor, what: str = "") -> None:
        """Fail, naming the worst number, unless everything is within its budget."""
        for name, got, want, budget in (
            ("out", out, self.out, self.out_budget),
            ("lse", lse, self.lse, self.lse_budget),
        ):
            assert got.shape == want.shape, f"{what} {name}: {got.shape}, not {want.shape}"
            excess = (got.double() - want).abs() / budget
            excess[got.double() == want] = 0.0  # both -inf, too
            wrong = ~(excess <= 1)  # NaN is wrong
            if wrong.any():
                worst = wrong.nonzero()[0].tolist()
                at = tuple(worst)
                raise AssertionError(
                    f"{what} {name}{worst} is {got[at].item()}, should be {want[at].item()} "
                    f"within {budget[at].item():.3g}; {int(wrong.sum())} of {wrong.numel()} wrong"
                )


@lru_cache(maxsize=512)
def _build(spec: Spec) -> Problem:
    return _Builder(spec).problem()


_POSITIONAL = (
    "query",
    "key_cache",
    "value_cache",
    "block_tables",
    "seq_lens",
    "query_start_loc",
)


class _Builder:
    def __init__(self, spec: Spec):
        self.spec = spec
        self.dtype = DTYPES[spec.dtype]
        self.generator = torch.Generator().manual_seed(spec.content)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def problem(self) -> Problem:
        spec = self.spec
        num_heads = spec.num_kv_heads * spec.group
        num_rows = sum(query_len for query_len, _ in spec.lengths)
        query = (self.normal(num_rows, num_heads, spec.head_dim) * spec.sharpness).to(self.dtype)
        extra = torch.full((spec.extra_rows, num_heads, spec.head_dim), torch.nan).to(self.dtype)
        extra[1::2] = 1  # NaN may vanish in a comparison; a number that is taken shows
        kv = [
            tuple(
                self.normal(seq_len, spec.num_kv_heads, dim).to(self.dtype)
                for dim in (spec.head_dim, spec.value_head_dim)
            )
            for _, seq_len in spec.lengths
        ]
        starts = [0, *torch.tensor([q for q, _ in spec.lengths]).cumsum(0).tolist()]
        arguments = {
            "query": torch.cat([query, extra]),
            **self.place(kv),
            "seq_lens": torch.tensor([n for _, n in spec.lengths], dtype=torch.int32),
            "query_start_loc": torch.tensor(starts, dtype=torch.int32),
            "scale": spec.head_dim**-0.5,
            "causal": spec.causal,
            "window": spec.window,
            "softcap": spec.softcap,
            "alibi_slopes": self.vector(num_heads, spec.alibi),
            "sinks": self.vector(num_heads, spec.sinks),
            "k_scale": None,
            "v_scale": None,
        }
        if spec.kv_scales == "float":
            arguments |= {"k_scale": 0.5, "v_scale": 3.0}
        elif spec.kv_scales == "tensor":
            k_scale, v_scale = self.normal(2, spec.num_kv_heads).float().abs() + 0.25
            arguments |= {"k_scale": k_scale, "v_scale": v_scale}
        return Problem(spec, arguments, [k for k, _ in kv], [v for _, v in kv])

    def vector(self, size: int, wanted: bool) -> Tensor | None:
        return self.normal(size).float() if wanted else None

    def place(self, kv: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        """Put what is visible into blocks, anywhere, and NaN into all else."""
        spec, shuffle = self.spec, random.Random(self.spec.placement)
        needed = [-(-seq_len // spec.block_size) for _, seq_len in spec.lengths]
        num_blocks = sum(needed) + 2
        free = list(range(num_blocks))
        shuffle.shuffle(free)
        caches = [self.empty(num_blocks, d) for d in (spec.head_dim, spec.value_head_dim)]
        tables = torch.full((len(needed), max([0, *needed]) + 1), spec.padding, dtype=torch.int32)
        for s, (_, seq_len) in enumerate(spec.lengths):
            first = spec.first_visible(s)
            for logical in range(first // spec.block_size, needed[s]):
                tables[s, logical] = free.pop()
            for position in range(first, seq_len):
                block = tables[s, position // spec.block_size]
                for cache, numbers in zip(caches, kv[s]):
                    cache[block, position % spec.block_size] = numbers[position]
        return {"key_cache": caches[0], "value_cache": caches[1], "block_tables": tables}

    def empty(self, num_blocks: int, dim: int) -> Tensor:
        """A cache of NaN in some storage: always `[num_blocks, block_size, num_kv_heads, dim]`."""
        block_size, num_kv_heads = self.spec.block_size, self.spec.num_kv_heads
        shape = {
            "NHD": (num_blocks, block_size, num_kv_heads, dim),
            "HND": (num_blocks, num_kv_heads, block_size, dim),
            "padded": (num_blocks + 1, block_size + 1, num_kv_heads + 1, dim + 3),
            "interleaved": (num_blocks, 2, block_size, num_kv_heads, dim),
        }[self.spec.layout]
        storage = torch.full(shape, torch.nan, dtype=self.dtype)
        if self.spec.layout == "HND":
            return storage.transpose(1, 2)
        if self.spec.layout == "interleaved":
            return storage[:, 1]
        return storage[:num_blocks, :block_size, :num_kv_heads, :dim]


def _lengths(min_len: int, max_len: int, max_rows: int) -> st.SearchStrategy[tuple[int, int]]:
    """(query_len, seq_len), with lengths around the edges of blocks, tiles and splits."""
    edges = (1, 2, 3, 4, 5, 8, 15, 16, 17, 63, 64, 65, 256, 257, 320, 512, 513)
    edges = [n for n in edges if min_len <= n <= max_len]
    seq_lens = st.one_of(st.integers(min_len, max_len), st.sampled_from(edges))

    def with_rows(seq_len: int) -> st.SearchStrategy[tuple[int, int]]:
        all_and_more = [min(seq_len + more, max_rows) for more in (0, 1, 2)]
        rows = st.one_of(st.just(1), st.sampled_from(all_and_more), st.integers(0, all_and_more[2]))
        return rows.map(lambda query_len: (query_len, seq_len))

    return seq_lens.flatmap(with_rows)


@st.composite
def specs(
    draw,
    *,
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "float16"),
    min_len: int = 0,
    max_len: int = 20,
    max_rows: int = 6,
    max_seqs: int = 3,
) -> Spec:
    """Small problems with everything: features are drawn so that they bind."""
    some = st.sampled_from
    sequences = _lengths(min_len, max_len, max_rows)
    head_dim = draw(some([1, 2, 3, 4, 8, 17]))
    return Spec(
        lengths=tuple(draw(st.lists(sequences, min_size=1, max_size=max_seqs))),
        num_kv_heads=draw(some([1, 2, 2, 3])),
        group=draw(some([1, 2, 3])),
        head_dim=head_dim,
        value_head_dim=draw(some([head_dim, head_dim, 1, 3, 20])),
        block_size=draw(some([1, 2, 3, 4, 16])),
        dtype=draw(some(dtypes)),
        layout=draw(some(["NHD", "HND", "padded", "interleaved"])),
        causal=draw(some([True, True, False])),
        window=draw(st.one_of(st.none(), st.integers(1, 6), st.integers(1, max_len))),
        softcap=draw(some([None, None, 0.5, 2.0, 5.0])),
        alibi=draw(st.booleans()),
        sinks=draw(st.booleans()),
        kv_scales=draw(some(["none", "none", "float", "tensor"])),
        padding=draw(some([-1, -1, 2**31 - 1])),
        extra_rows=draw(some([0, 0, 2])),
        content=draw(st.integers(0, 2**20)),
        placement=draw(st.integers(0, 2**20)),
    )
