"""C4: a prefix that is in the pool is adopted by pointer, not copied, and not computed.

Measured twice: on block tables alone, for prompts as long as no small model takes them; and with
the bundled model, where the time to the first token shows what the pointers save.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from random import Random
from statistics import median

from minipaged.core import BlockPool, BlockTable
from minipaged.core.hashing import root_hash
from minipaged.engine.llm import LLM
from minipaged.engine.sequence import Request

from .claim import Claim, Context, Row, Tolerance
from .real import bundled, greedy, tokens

BLOCK_SIZE = 16
PREFIXES = (80, 341)  # the paper's prompts with one and with five examples
QUESTION = 24  # tokens that follow a prefix and are new
PAPER_SPEEDUPS = {80: "1.67x", 341: "3.58x"}
LOOKUP_LENS = (256, 1024, 4096, 16_384, 65_536)


@dataclass(frozen=True, slots=True)
class Pass:
    """What the engine did from a request's arrival to its first token."""

    computed: int  # prompt tokens that went through the model
    copied_bytes: int  # of K and V, by copy-on-write or swapping
    block_ids: list[int]
    seconds: float


def measure(context: Context) -> Claim:
    """Cold and warm, on the books and in the engine."""
    context.tell("look-ups")
    lookups = _lookups(2 if context.quick else 5)
    llm = LLM(bundled(), block_size=BLOCK_SIZE, num_blocks=512, max_num_batched_tokens=1024)
    rows: list[Row] = []
    for prefix_len in PREFIXES:
        context.tell(f"{prefix_len} tokens in common")
        rows += _engine_rows(llm, prefix_len, Random(context.seed), 2 if context.quick else 7)
    context.tell("the whole prompt again")
    rows.append(_whole_prompt(llm, Random(context.seed)))
    return Claim(
        key="prefix",
        title="C4 A prefix found instead of computed",
        said="A shared prefix is reused at once, by pointer: nothing is copied, nothing computed.",
        source="Kwon et al., SOSP 2023, section 4.4 and figure 16",
        rows=(*rows, *_lookup_rows(lookups, context.quick)),
        left_out="most rounds, so wall times scatter more" if context.quick else "",
        notes=(
            "Cold is a prompt whose beginning was never seen, warm one that begins as one before.",
            f"Bundled model, blocks of {BLOCK_SIZE}, a prefix and {QUESTION} tokens of its own. A "
            "hit ends at the last full block of the prefix, and leaves at least one token to "
            "compute, which yields the logits.",
            "Figure 16 says 1.67x and 3.58x of Orca's throughput behind 80 and 341 common tokens "
            "(13 billion parameters, memory and computing together); here it is the prompt alone.",
        ),
        series={"wall": {"lookup": {"prompt_len": list(lookups), "ms": list(lookups.values())}}},
    )


def _engine_rows(llm: LLM, prefix_len: int, random: Random, rounds: int) -> list[Row]:
    pairs = [_cold_and_warm(llm, prefix_len, random) for _ in range(rounds + 1)][1:]
    (cold, warm), found = pairs[0], prefix_len // BLOCK_SIZE
    cold_ms, warm_ms = (median(p[i].seconds for p in pairs) * 1e3 for i in (0, 1))
    shared = sum(a == b for a, b in zip(cold.block_ids, warm.block_ids))
    copied = sum(p.copied_bytes for pair in pairs for p in pair)
    where = f"{prefix_len} tokens in common"
    told = "nothing is copied"
    return [
        Row(f"{where}: K/V copied", told, copied, "bytes", Tolerance.exactly(0)),
        Row(
            f"{where}: blocks shared",
            f"{found} full ones",
            shared,
            tolerance=Tolerance.exactly(found),
            basis="foretold",
        ),
        _computed(f"{where}: prompt tokens computed, cold", cold, prefix_len + QUESTION),
        _computed(
            f"{where}: prompt tokens computed, warm",
            warm,
            prefix_len + QUESTION - found * BLOCK_SIZE,
        ),
        Row(f"{where}: first token, cold", "", cold_ms, "ms", wall=True),
        Row(f"{where}: first token, warm", "instant", warm_ms, "ms", wall=True),
        Row(
            f"{where}: cold / warm",
            f"{PAPER_SPEEDUPS[prefix_len]} throughput",
            cold_ms / warm_ms,
            "x",
            wall=True,
        ),
    ]


def _computed(what: str, done: Pass, expected: int) -> Row:
    tolerance = Tolerance.exactly(expected)
    return Row(what, "by counting", done.computed, "tokens", tolerance, basis="foretold")


def _cold_and_warm(llm: LLM, prefix_len: int, random: Random) -> tuple[Pass, Pass]:
    """Two requests that begin alike, one after the other, with a beginning never seen before."""
    size = llm.config.vocab_size
    prefix = tokens(random, prefix_len, size)
    cold = _first_token(llm, prefix + tokens(random, QUESTION, size))
    return cold, _first_token(llm, prefix + tokens(random, QUESTION, size))


def _whole_prompt(llm: LLM, random: Random) -> Row:
    """What is left to compute when a prompt of whole blocks comes a second time."""
    prompt = tokens(random, 20 * BLOCK_SIZE, llm.config.vocab_size)
    _first_token(llm, prompt)
    again = _first_token(llm, prompt)
    return Row(
        "the same 320 tokens again: computed",
        "the last block",
        again.computed,
        "tokens",
        Tolerance.exactly(BLOCK_SIZE),
        basis="foretold",
        note="one token would do, but it would be written into a block that others read; so the "
        "last block is computed anew",
    )


def _first_token(llm: LLM, prompt: list[int]) -> Pass:
    before, begin = copy(llm.stats), time.perf_counter()
    request = llm.add(prompt, greedy(2))
    _step_until_first(llm, request)
    seconds = time.perf_counter() - begin
    block_ids = list(request.sequences[0].table.block_ids)
    llm.abort(request.request_id)
    done = llm.stats.since(before)
    moved = done.blocks_copied + done.blocks_swapped
    return Pass(done.prompt_tokens_computed, moved * llm.cache.bytes_per_block, block_ids, seconds)


def _step_until_first(llm: LLM, request: Request) -> None:
    while not request.sequences[0].output_token_ids:
        llm.step()


def _lookups(rounds: int) -> dict[int, float]:
    """Milliseconds to hash a prompt and find all its blocks, by its length."""
    root, found = root_hash(), dict[int, float]()
    for num_tokens in LOOKUP_LENS:
        prompt = list(range(num_tokens + 1))
        pool = BlockPool(num_tokens // BLOCK_SIZE + 1)
        table = BlockTable(pool, BLOCK_SIZE, root)
        table.reserve(len(prompt))
        table.commit(prompt)
        found[num_tokens] = min(_lookup_ms(table, prompt) for _ in range(rounds))
    return found


def _lookup_ms(table: BlockTable, prompt: list[int]) -> float:
    begin = time.perf_counter()
    blocks = table.find_prefix(prompt)
    seconds = time.perf_counter() - begin
    assert len(blocks) == len(prompt) // BLOCK_SIZE, "a published prefix was not found"
    return seconds * 1e3


def _lookup_rows(lookups: dict[int, float], few: bool = False) -> list[Row]:
    rows = [
        Row(f"look-up of {n:,} tokens ({n // BLOCK_SIZE:,} pointers)", "", ms, "ms", wall=True)
        for n, ms in lookups.items()
    ]
    (short, short_ms), *_, (long, long_ms) = lookups.items()
    growth = long_ms / short_ms / (long / short)
    return [
        *rows,
        Row(
            f"time per token, {long:,} tokens against {short}",
            "1, as it is linear",
            growth,
            "x",
            Tolerance.at_most(2),
            wall=True,
            basis="foretold",
            few=few,
        ),
    ]
