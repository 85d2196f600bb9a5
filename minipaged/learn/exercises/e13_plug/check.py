"""Judges ``attention`` by numbers on small batches, then by the words of the bundled model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minipaged.attention import paged_attention
from minipaged.engine.llm import LLM
from minipaged.engine.params import SamplingParams
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying
from minipaged.models import Model, load_model

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, SCALE = 4, 2, 4, 0.7
TOLERANCE = 1e-4
PROMPTS = ("Blessed are the", "In the beginning", "And it came to pass in the days of")
GREEDY = SamplingParams(temperature=0, max_tokens=8)


class Batch(NamedTuple):
    """The arguments of one call, all slots that hold no token poisoned."""

    query: Tensor  # [num_tokens, num_heads, head_dim]
    key_cache: Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    block_tables: Tensor  # [num_seqs, max_blocks_per_seq] int32
    seq_lens: Tensor  # [num_seqs] int32
    query_start_loc: Tensor  # [num_seqs + 1] int32


def sizes() -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Block size, then (tokens, new ones) of each sequence: answers, then prompts, then both."""
    for block_size in (2, 3):
        for length in range(1, 8):
            yield block_size, ((length, 1),)
        for lengths in product((1, 2, 4, 5), repeat=2):
            yield block_size, tuple((length, 1) for length in lengths)
    for block_size in (2, 3):
        for length in range(2, 8):
            for num_new in range(2, min(length, 4) + 1):
                yield block_size, ((length, num_new),)
    for block_size, first, second in product((2, 3), (1, 3, 4), (2, 5)):
        yield block_size, ((first, first), (second, 1))
        yield block_size, ((second, 2), (first, 1), (6, 3))


def batch_of(block_size: int, sequences: tuple[tuple[int, int], ...]) -> Batch:
    """Random numbers in blocks that do not lie in ascending order."""
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    counts = [-(-length // block_size) for length, _ in sequences]
    num_blocks = sum(counts) + 2
    ids = list(reversed(range(num_blocks)))
    caches = torch.full((2, num_blocks, block_size, NUM_KV_HEADS, HEAD_DIM), torch.nan)
    tables = torch.full((len(sequences), max(counts)), -1, dtype=torch.int32)
    for s, (length, _) in enumerate(sequences):
        for p in range(length):
            if p % block_size == 0:
                tables[s, p // block_size] = ids.pop(0)
            block_id = int(tables[s, p // block_size])
            caches[:, block_id, p % block_size] = draw(2, NUM_KV_HEADS, HEAD_DIM)
    starts = [sum(n for _, n in sequences[:s]) for s in range(len(sequences) + 1)]
    lens = [length for length, _ in sequences]
    query = 2 * draw(starts[-1], NUM_HEADS, HEAD_DIM)
    return Batch(query, caches[0], caches[1], tables, torch.tensor(lens).int(),
                 torch.tensor(starts).int())  # fmt: skip


def judge_numbers(module: ModuleType) -> int:
    """Every row of every small batch is what the package's function gives."""
    num_batches = 0
    for block_size, sequences in sizes():
        told = [f"{n} new of {length} tokens" for length, n in sequences]
        batch = batch_of(block_size, sequences)
        trying(f"blocks of {block_size}; sequences: {'; '.join(told)}",
               f"block_tables {batch.block_tables.tolist()}")  # fmt: skip
        copies = Batch(*(tensor.clone() for tensor in batch))
        expected = paged_attention(*batch, scale=SCALE)
        assert isinstance(expected, Tensor)
        got = module.attention(*batch, scale=SCALE)
        same_form(got, expected, "attention(...)")
        for name, now, before in zip(Batch._fields, batch, copies):
            if not torch.equal(now.nan_to_num(9.0), before.nan_to_num(9.0)):
                reject(f"{name} was changed: it is to be read only")
        error = (got - expected).abs().flatten(1).amax(1)  # of each row
        wrong = [row for row, e in enumerate(error.tolist()) if not e <= TOLERANCE]
        if wrong:
            tell(batch, sequences, wrong[0], got, expected)
        num_batches += 1
    return num_batches


def tell(
    batch: Batch,
    sequences: tuple[tuple[int, int], ...],
    row: int,
    got: Tensor,  # [num_tokens, num_heads, head_dim]
    expected: Tensor,  # [num_tokens, num_heads, head_dim]
) -> None:
    """Reject, and say which query it is and what its output looks like."""
    starts = batch.query_start_loc.tolist()
    s = max(s for s in range(len(sequences)) if starts[s] <= row)
    length, num_new = sequences[s]
    position = length - num_new + row - starts[s]
    one_each = all(n == 1 for _, n in sequences)
    what = "a single new token" if one_each else "several new tokens"
    lines = [
        f"row {row} of the query: sequence {s}, position {position} of 0..{length - 1}",
        f"got      {numbers(got[row])}",
        f"expected {numbers(expected[row])}   (heads 0 and 1, their first two numbers)",
        f"it looks as if {reason}" if (reason := likeness(batch, row, got)) else "",
        "" if one_each else "With one new token for each sequence it was right.",
    ]
    reject(f"wrong with {what}: position {position} of a sequence of {length}",
           *filter(None, lines))  # fmt: skip


def numbers(row: Tensor) -> str:  # [num_heads, head_dim]
    """The first few numbers of a row."""
    return " ".join(f"{x:.3f}" for x in row[:2, :2].flatten().tolist())


def likeness(batch: Batch, row: int, got: Tensor) -> str:
    """A known mistake that gives this row."""
    if got[row].isnan().any():
        return "a slot that holds no token takes part, or a query sees nothing"
    if not got[row].any():
        return "nothing was written there"
    calls = {
        "it sees the future": partial(paged_attention, *batch, scale=SCALE, causal=False),
        "`scale` is ignored": partial(paged_attention, *batch, scale=HEAD_DIM**-0.5),
        "query heads take K/V heads in turns": partial(
            paged_attention,
            batch.query[:, [0, 2, 1, 3]],  # which gives what those heads should not have had
            *batch[1:],
            scale=SCALE,
        ),
    }
    for reason, call in calls.items():
        like = call()
        assert isinstance(like, Tensor)
        if "turns" in reason:
            like = like[:, [0, 2, 1, 3]]
        if torch.allclose(like[row], got[row], atol=TOLERANCE):
            return reason
    return ""


# --- the model -----------------------------------------------------------------------------------


@cache
def model() -> Model:
    """The bundled one, loaded once."""
    return load_model("bundled", dtype=torch.float32, device=torch.device("cpu"))


def said(attention: Callable[..., Any]) -> list[list[int]]:
    """What the model says to the prompts, which come in chunks, beside each other's answers."""
    llm = LLM(model(), attention, num_blocks=24, block_size=4, max_num_batched_tokens=6)
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY)]


@cache
def expected_tokens() -> list[list[int]]:
    """The same with the package's attention."""
    return said(paged_attention)


def judge_words(module: ModuleType) -> int:
    """The model says the same words, token by token."""
    expected = expected_tokens()
    trying(f"the bundled model, prompts in chunks: {', '.join(map(repr, PROMPTS))}")
    decode = model().tokenizer.decode
    for prompt, got, tokens in zip(PROMPTS, said(module.attention), expected):
        if got != tokens:
            reject(
                f"the model says other words after {prompt!r}",
                f"got      {decode(got)!r}",
                f"expected {decode(tokens)!r}",
            )
    return sum(map(len, expected))


def check(module: ModuleType) -> str | None:
    """Numbers first: they say where it is wrong. Words then: they say that it can be used."""
    num_batches = judge_numbers(module)
    num_tokens = judge_words(module)
    return f"{num_batches} batches, and {num_tokens} tokens of the model are the same"


EXERCISE = Exercise(
    name="plug",
    title="Let a model write with your attention",
    function="attention",
    lines=16,
    hints=(
        "Loop over the sequences. `key_cache[blocks]` with the block ids of one of them, "
        "`.flatten(0, 1)` and `[:length]` give its keys in order.",
        "`repeat_interleave(num_heads // num_kv_heads, dim=1)` gives every query head its K/V "
        'head. Scores of all pairs are `torch.einsum("qhd,khd->hqk", query[rows], key)`.',
        "With n queries, query i is at position `length - n + i`. Fill the scores of all later "
        "keys with `-torch.inf` before the softmax.",
    ),
    learnt="One function serves prompts, chunks and answers if it asks for positions and never for "
    "phases; a test with one token per sequence passes half of those that are known to be wrong.",
    check=check,
    seconds=120.0,
    wrong=(
        Wrong(
            "never hides the future",
            "scores.masked_fill(future, -torch.inf).softmax(-1)",
            "scores.softmax(-1)",
            says="it looks as if it sees the future",
        ),
        Wrong(
            "hidden keys have score 0",
            "masked_fill(future, -torch.inf)",
            "masked_fill(future, 0.0)",
            says="With one new token for each sequence it was right",
        ),
        Wrong(
            "hides the future after the softmax",
            "masked_fill(future, -torch.inf).softmax(-1)",
            "softmax(-1).masked_fill(future, 0.0)",
            says="With one new token for each sequence it was right",
        ),
        Wrong(
            "one row for each sequence",
            "rows = slice(starts[s], starts[s + 1])",
            "rows = slice(s, s + 1)",
            says="With one new token for each sequence it was right",
        ),
        Wrong(
            "writes the last row only",
            'output[rows] = torch.einsum("hqk,khd->qhd", weights, value)',
            'output[rows.stop - 1] = torch.einsum("hqk,khd->qhd", weights, value)[-1]',
            says="nothing was written there",
        ),
        Wrong(
            "all queries sit at the newest position",
            "torch.arange(length - scores.shape[1], length)",
            "torch.full((scores.shape[1],), length - 1)",
            says="it looks as if it sees the future",
        ),
        Wrong(
            "positions begin at 0 in every chunk",
            "torch.arange(length - scores.shape[1], length)",
            "torch.arange(scores.shape[1])",
            says="wrong with a single new token",
        ),
        Wrong(
            "a query does not see itself",
            "torch.arange(len(key)) > position",
            "torch.arange(len(key)) >= position",
            says="a query sees nothing",
        ),
        Wrong(
            "the whole last block takes part",
            "flatten(0, 1)[:length]",
            "flatten(0, 1)",
            says="a slot that holds no token takes part",
        ),
        Wrong(
            "blocks in ascending order",
            ".long()",
            ".long().sort().values",
            says="wrong with",
        ),
        Wrong(
            "K/V heads in turns",
            "repeat_interleave(group, dim=1)",
            "repeat(1, group, 1)",
            says="query heads take K/V heads in turns",
        ),
        Wrong(
            "a scale of its own",
            "scale * torch.einsum",
            "query.shape[-1] ** -0.5 * torch.einsum",
            says="`scale` is ignored",
        ),
    ),
)
