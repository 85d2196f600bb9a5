"""Judges ``gather_attention`` against dense attention, on poisoned caches and scrambled tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import ModuleType

import torch
from torch import Tensor

from minipaged.attention import dense_attention
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

NUM_BLOCKS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 6, 2, 1, 4
SCALE = 0.9
TABLES = ([4, 1, 3, 0], [2, 5, 0, 4])
TAILS = ([], [-1], [0], [5])  # what stands in a table behind the sequence
POISONS = ("NaN", "tokens of somebody else")


@dataclass
class Case:
    """One sequence in a cache, and what attention over it is."""

    block_size: int
    seq_len: int
    query_len: int
    table: list[int]
    poison: str

    def words(self) -> str:
        """The situation, for a reader."""
        queries = "1 query" if self.query_len == 1 else f"{self.query_len} queries, causal"
        tokens = "1 token" if self.seq_len == 1 else f"{self.seq_len} tokens"
        where = f"in blocks of {self.block_size}, table {self.table}"
        return f"{tokens} {where}, {queries}; other slots hold {self.poison}"

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value, and the two caches, the same numbers for the same lengths."""
        generator = torch.Generator().manual_seed(100 * self.seq_len + self.query_len)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        query = 2 * random(self.query_len, NUM_HEADS, HEAD_DIM)
        kv = random(2, self.seq_len, NUM_KV_HEADS, HEAD_DIM)
        caches = random(2, NUM_BLOCKS, self.block_size, NUM_KV_HEADS, HEAD_DIM)
        if self.poison == "NaN":
            caches.fill_(torch.nan)
        for p in range(self.seq_len):
            caches[:, self.table[p // self.block_size], p % self.block_size] = kv[:, p]
        return query, kv[0], kv[1], caches[0], caches[1]


def cases() -> Iterator[Case]:
    """Short sequences first; decode before several queries, poison before plausible numbers."""
    for seq_len in range(1, 8):
        for query_len in sorted({1, min(2, seq_len), seq_len}):
            for block_size in (1, 2, 3):
                for table in TABLES:
                    needed = -(-seq_len // block_size)
                    if needed > len(table):
                        continue
                    for tail, poison in product(TAILS, POISONS):
                        ids = table[:needed] + tail
                        if len(set(ids)) == len(ids):
                            yield Case(block_size, seq_len, query_len, ids, poison)


def check(module: ModuleType) -> str | None:
    """Every case, the first failure is the shortest."""
    num_cases = 0
    for case in cases():
        trying(case.words())
        query, key, value, key_cache, value_cache = case.tensors()
        expected = dense_attention(query, key, value, scale=SCALE)
        assert isinstance(expected, Tensor)
        given = query.clone(), key_cache.clone(), value_cache.clone(), list(case.table)
        got = module.gather_attention(*given, case.seq_len, SCALE)
        same_form(got, expected, "gather_attention(...)")
        if got.isnan().any():
            reject("the output is NaN: a slot was read that holds no token", *drawn(case))
        if not torch.allclose(got, expected, rtol=0, atol=1e-9):
            compare(case, got, expected)
        for mine, yours in zip((key_cache, value_cache), given[1:3]):
            if not torch.allclose(mine, yours, rtol=0, atol=0, equal_nan=True):
                reject("the cache was changed: attention only reads", *drawn(case))
        num_cases += 1
    return f"{num_cases} cases, each equal to dense attention"


def compare(case: Case, got: Tensor, expected: Tensor) -> None:
    """Say which query is off, and by how much."""
    difference = (got - expected).abs().amax(dim=-1)
    row = int((difference.amax(dim=1) > 1e-9).nonzero()[0])
    head = int(difference[row].argmax())
    position = case.seq_len - case.query_len + row
    reject(
        f"the output is off by {difference.max():.2g}",
        f"first at the query of position {position}, most in head {head}:",
        f"got      {[round(x, 3) for x in got[row, head].tolist()]}",
        f"expected {[round(x, 3) for x in expected[row, head].tolist()]}",
        *drawn(case),
    )


def drawn(case: Case) -> list[str]:
    """The pool: which position lies in which slot."""
    size = case.block_size
    cells = ["  ."] * (NUM_BLOCKS * size)
    for p in range(case.seq_len):
        cells[case.table[p // size] * size + p % size] = f"{p:3}"
    blocks = ("".join(cells[i : i + size]) for i in range(0, len(cells), size))
    ids = "  ".join(f"{b:<{3 * size}}" for b in range(NUM_BLOCKS)).rstrip()
    return [f"block        {ids}", f"positions |{' |'.join(blocks)} |"]


EXERCISE = Exercise(
    name="gather",
    title="Attention over K and V in blocks",
    function="gather_attention",
    lines=5,
    hints=(
        "Which positions are there? `torch.arange(seq_len)`. Where does each of them lie? Two "
        "tensors say it: its block, and its offset in the block.",
        "A tensor indexed by two tensors gives one row for each pair: `cache[block, offset]` has "
        "the shape [seq_len, num_kv_heads, head_dim].",
        "`block = torch.tensor(block_ids)[position // block_size]`, and the offset is "
        "`position % block_size`; block_size is `key_cache.shape[1]`.",
    ),
    learnt="Paging changes where rows are read, not what is computed; and a test sees a wrong "
    "order only if its queries see different keys.",
    check=check,
    wrong=(
        Wrong(
            "whole blocks",
            "position = torch.arange(seq_len)\n    block_size = key_cache.shape[1]",
            "block_size = key_cache.shape[1]\n"
            "    position = torch.arange(-(-seq_len // block_size) * block_size)",
            says="the output is NaN",
        ),
        Wrong(
            "zeros are harmless",
            "    position = torch.arange(seq_len)\n    block_size = key_cache.shape[1]\n",
            "    key_cache, value_cache = key_cache.nan_to_num(), value_cache.nan_to_num()\n"
            "    block_size = key_cache.shape[1]\n"
            "    position = torch.arange(-(-seq_len // block_size) * block_size)\n",
            says="the output is off",
        ),
        Wrong(
            "one token too many",
            "torch.arange(seq_len)",
            "torch.arange(min(seq_len + 1, len(block_ids) * key_cache.shape[1]))",
            says="the output is NaN",
        ),
        Wrong(
            "one token too few",
            "torch.arange(seq_len)",
            "torch.arange(max(1, seq_len - 1))",
            says="the output is off",
        ),
        Wrong(
            "the table is ignored",
            "torch.tensor(block_ids)[position // block_size]",
            "position // block_size",
            says="the output is NaN",
        ),
        Wrong(
            "full blocks in the order of memory",
            "    block = torch.tensor(block_ids)[",
            "    full = seq_len // block_size\n"
            "    block_ids = sorted(block_ids[:full]) + block_ids[full:]\n"
            "    block = torch.tensor(block_ids)[",
            says="2 queries, causal",
        ),
        Wrong(
            "V is read by position",
            "key, value = (cache[block, position % block_size] "
            "for cache in (key_cache, value_cache))",
            "key = key_cache[block, position % block_size]\n"
            "    value = value_cache.flatten(0, 1)[position]",
            says="the output is NaN",
        ),
        Wrong(
            "every query sees everything",
            "dense_attention(query, key, value, scale=scale)",
            "dense_attention(query, key, value, scale=scale, causal=False)",
            says="2 queries, causal",
        ),
        Wrong(
            "NaN is wiped off in the end",
            "    return dense_attention(query, key, value, scale=scale)",
            "    key, value = (c[block_ids].flatten(0, 1) for c in (key_cache, value_cache))\n"
            "    return dense_attention(query, key, value, scale=scale).nan_to_num()",
            says="the output is off",
        ),
    ),
)
