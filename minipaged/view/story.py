"""Fourteen calls that show what a block manager does, and a picture after each; draws nothing.

The code that is shown is the code that is run, and the pictures are of the pool it ran on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minipaged.core import (
    BlockPool,
    BlockTable,
    Ledger,
    MinipagedError,
    Snapshot,
    reserve,
    root_hash,
)

from .changes import Change, changes

BLOCK_SIZE = 4

STEPS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "Eight blocks of four slots",
        ("pool = BlockPool(num_blocks=8)", "def new(): return BlockTable(pool, 4, root_hash())"),
        "A slot is the room for one token's key and value. All are empty; the free order says "
        "which block is handed out next.",
    ),
    (
        "A reserves room for its prompt",
        ('a_ids = ids("the cat sat on the mat and ate fish")', "a = new()", "a.reserve(9)"),
        "Nine tokens need three blocks, and no copy has to be made first. They need not lie side "
        "by side: from now on A is the list of its blocks.",
    ),
    (
        "The model has written: A commits",
        ("a.commit(a_ids)",),
        "Only now are the full blocks published, under a hash of everything up to their end. The "
        "third is not full: three empty slots are all that paging wastes.",
    ),
    (
        "B begins with the same words",
        (
            'b_ids = ids("the cat sat on the mat and ate all of the")',
            "b = new()",
            "b.match_prefix(b_ids)",
        ),
        "Eight of its eleven tokens are known. B adopts two blocks by pointer: nothing is "
        "computed, nothing copied.",
    ),
    (
        "B computes the rest",
        ("b.reserve(3)", "b.commit(b_ids)"),
        "What is its own goes into a block of its own.",
    ),
    (
        "B is forked twice",
        ("c, d = b.fork(), b.fork()", "c_ids = d_ids = b_ids"),
        "A fork copies a list of numbers, and no block. Parallel samples and beams begin so.",
    ),
    (
        "B and C write: copy-on-write",
        ("reserve([b, c], [1, 1])",),
        "Three sequences read block 3, so none may write there. Whoever writes gets a copy first; "
        "D, the last holder, will not need one.",
    ),
    (
        "D writes in place",
        (
            'b_ids, c_ids, d_ids = (b_ids + ids(word) for word in ("fish", "rice", "soup"))',
            "b.commit(b_ids); c.commit(c_ids)",
            "d.reserve(1)",
            "d.commit(d_ids)",
        ),
        "Three siblings cost two copies of one block. Their last blocks are full and different, "
        "so each is published under a name of its own.",
    ),
    (
        "C takes back four tokens",
        ("c.truncate(8)",),
        "Its last block is free, but not forgotten: published and free is called cached.",
    ),
    (
        "B and C leave",
        ("b.release()", "c.release()"),
        "What others hold stays. The free order has the blank blocks first, then the cached ones, "
        "the longest unused first.",
    ),
    (
        "E needs three blocks",
        ('e_ids = ids("a dog ran to the sea and saw a ship")', "e = new()", "e.reserve(10)"),
        "Two blank blocks, then the oldest cached one: its prefix is evicted.",
    ),
    (
        "B's words come again",
        (
            "e.commit(e_ids)",
            'b_ids = ids("the cat sat on the mat and ate all of the fish again")',
            "b = new()",
            "b.match_prefix(b_ids)",
        ),
        "Twelve of thirteen tokens are found, those of the block that was free as well.",
    ),
    (
        "There is no room for one more",
        ("b.reserve(1)",),
        "All or nothing: a call that fails changes nothing. A scheduler would now preempt the "
        "newest sequence, and compute it again later.",
    ),
    (
        "Everybody leaves",
        ("for table in (e, d, b, a): table.release()",),
        "All blocks are free, and six of them still hold a prefix that is found.",
    ),
)


@dataclass(frozen=True)
class Frame:
    """One step of the story, with everything there is to show of it."""

    title: str
    session: tuple[str, ...]  # the lines of code and what they returned, as Python prints them
    why: str
    changes: tuple[Change, ...]
    snapshot: Snapshot
    ledger: Ledger
    texts: dict[str, str]  # the words of each sequence, cut at the borders of its blocks


def frames() -> Iterator[Frame]:
    """Run the story; the same each time.

    Examples:
        >>> [frame.title for frame in frames()][3:6]
        ['B begins with the same words', 'B computes the rest', 'B is forked twice']
    """
    vocabulary: list[str] = []
    scope: dict[str, Any] = {
        "BlockPool": BlockPool,
        "BlockTable": BlockTable,
        "reserve": reserve,
        "root_hash": root_hash,
        "ids": lambda text: [_token_id(word, vocabulary) for word in text.split()],
    }
    before: Snapshot | None = None
    for title, code, why in STEPS:
        session = tuple(line for source in code for line in _run(source, scope))
        pool, tables = scope["pool"], _tables(scope)
        texts = {
            name: _text(scope[f"{name.lower()}_ids"], t, vocabulary) for name, t in tables.items()
        }
        after = Snapshot.take(pool, tables, BLOCK_SIZE)
        happened = tuple(changes(before or after, after))
        ledger = Ledger.measure(list(tables.values()), pool, BLOCK_SIZE)
        yield Frame(title, session, why, happened, after, ledger, texts)
        before = after


def _run(source: str, scope: dict[str, Any]) -> Iterator[str]:
    """Run one line as Python's prompt does: shown, and followed by its value if it has one."""
    yield f">>> {source}"
    try:
        try:
            code = compile(source, "<story>", "eval")
        except SyntaxError:
            exec(source, scope)
            return
        value = eval(code, scope)
    except MinipagedError as error:
        yield f"{type(error).__name__}: {error}"
    else:
        if value is not None:
            yield repr(value)


def _tables(scope: dict[str, Any]) -> dict[str, BlockTable]:
    """The sequences that hold something, by the names of their variables."""
    tables = ((n.upper(), t) for n, t in scope.items() if len(n) == 1)
    return {name: table for name, table in sorted(tables) if table.block_ids}


def _token_id(word: str, vocabulary: list[str]) -> int:
    if word not in vocabulary:
        vocabulary.append(word)
    return vocabulary.index(word)


def _text(token_ids: list[int], table: BlockTable, vocabulary: list[str]) -> str:
    """The words whose keys and values are written, block by block."""
    words = [vocabulary[i] for i in token_ids[: table.num_tokens]]
    blocks = [words[i : i + BLOCK_SIZE] for i in range(0, len(words), BLOCK_SIZE)]
    return " | ".join(" ".join(block) for block in blocks)
