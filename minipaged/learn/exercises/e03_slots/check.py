"""Judges ``slots`` and ``position`` on every table of up to three blocks, short ones first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from types import ModuleType

from minipaged.core import BlockPool, BlockTable
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

NUM_BLOCKS = 4
BLOCK_SIZES = (1, 2, 3)


def tables() -> Iterator[BlockTable]:
    """The package's own tables: every choice of up to three blocks, in every order."""
    for length in (1, 2, 3):
        for block_size in BLOCK_SIZES:
            for block_ids in permutations(range(NUM_BLOCKS), length):
                table = BlockTable(BlockPool(NUM_BLOCKS), block_size)
                table.block_ids = list(block_ids)
                yield table


def check(module: ModuleType) -> str | None:
    """Every stretch of positions, and every slot of the pool, -1 included."""
    num_questions = 0
    for table in tables():
        size, capacity = table.block_size, len(table.block_ids) * table.block_size
        for num_tokens in range(capacity - size + 1, capacity + 1):
            for start in range(num_tokens):
                ask_slots(module, table, start, num_tokens)
            for slot in range(-1, NUM_BLOCKS * size):
                ask_position(module, table, slot, num_tokens)
            num_questions += num_tokens + NUM_BLOCKS * size + 1
    return f"{num_questions:,} questions about all tables of up to three blocks"


def ask_slots(module: ModuleType, table: BlockTable, start: int, stop: int) -> None:
    """One stretch of positions, up to the end of the sequence."""
    call = f"slots({table.block_ids}, block_size={table.block_size}, start={start}, stop={stop})"
    trying(call)
    got = module.slots(list(table.block_ids), table.block_size, start, stop)
    expected = table.slots(start, stop)
    same_form(got, expected, "slots(...)")
    if got != expected:
        pool = NUM_BLOCKS * table.block_size
        wild = next((slot for slot in got if slot not in range(pool)), None)
        what = "the slots are wrong" if wild is None else f"there is no slot {wild!r}"
        if len(got) != len(expected):
            what = f"{len(got)} slots for {len(expected)} positions"
        reject(what, f"got      {got}", f"expected {expected}", *drawn(table, stop))


def ask_position(module: ModuleType, table: BlockTable, slot: int, num_tokens: int) -> None:
    """One slot of the pool."""
    rest = f"block_size={table.block_size}, num_tokens={num_tokens}"
    trying(f"position({slot}, {table.block_ids}, {rest})")
    got = module.position(slot, list(table.block_ids), table.block_size, num_tokens)
    holding = dict(zip(table.slots(0, num_tokens), range(num_tokens)))
    expected = holding.get(slot)
    if got == expected and type(got) is type(expected):
        return
    if expected is not None:
        what = f"slot {slot} holds position {expected}"
    elif slot < 0:
        what = f"{slot} is no slot: it holds no position"
    elif slot // table.block_size in table.block_ids:
        what = f"slot {slot} is behind the last token: it holds no position"
    else:
        what = f"slot {slot} is in a block of somebody else"
    reject(what, f"got      {got!r}", f"expected {expected!r}", *drawn(table, num_tokens))


def drawn(table: BlockTable, num_tokens: int) -> list[str]:
    """The pool, block by block: slot numbers, and below them the positions that are there."""
    size = table.block_size
    holding = dict(zip(table.slots(0, num_tokens), range(num_tokens)))
    slots = [f"{slot:3}" for slot in range(NUM_BLOCKS * size)]
    positions = [f"{holding.get(slot, '.'):>3}" for slot in range(NUM_BLOCKS * size)]

    def row(name: str, cells: list[str]) -> str:
        blocks = ("".join(cells[i : i + size]) for i in range(0, len(cells), size))
        return f"{name:10}|{' |'.join(blocks)} |"

    return [row("slots", slots), row("positions", positions)]


EXERCISE = Exercise(
    name="slots",
    title="From positions to slots, and back",
    function=("slots", "position"),
    lines=6,
    hints=(
        "`p // block_size` and `p % block_size` are two different things: which of the "
        "sequence's blocks, and where in it. Only the first is looked up in the table.",
        "For the way back, split the slot the same way: `slot // block_size` is a block id. "
        "Which entry of the table is it, if any? `block_ids.index(...)` says.",
        "`block_ids[p // block_size] * block_size + p % block_size` is a slot. Back: the index "
        "of the block id in the table, times `block_size`, plus the offset; None if the id is not "
        "in the table or the result is not below `num_tokens`.",
    ),
    learnt="slot = block_id * block_size + offset; only the table knows the way from a position "
    "to a block, and back.",
    check=check,
    wrong=(
        Wrong(
            "the table is ignored",
            "block_ids[p // block_size] * block_size + p % block_size",
            "p",
            says="the slots are wrong",
        ),
        Wrong(
            "the block id is taken for a slot",
            "block_ids[p // block_size] * block_size + p % block_size",
            "block_ids[p // block_size] + p % block_size",
            says="the slots are wrong",
        ),
        Wrong(
            "blocks are taken to lie one behind another",
            "block_ids[p // block_size] * block_size + p % block_size",
            "block_ids[0] * block_size + p",
            says="slots([0, 2], block_size=1, start=0, stop=2)",
        ),
        Wrong(
            "the last position is left out",
            "for p in range(start, stop)]",
            "for p in range(start, stop - 1)]",
            says="0 slots for 1 positions",
        ),
        Wrong(
            "the table is looked up by token",
            "block_ids[p // block_size] * block_size + p % block_size",
            "block_ids[min(p, len(block_ids) - 1)] * block_size + p % block_size",
            says="the slots are wrong",
        ),
        Wrong(
            "back without the table",
            "block_ids.index(block_id) * block_size + offset",
            "slot",
            says="holds position",
        ),
        Wrong(
            "back by blocks instead of tokens",
            "block_ids.index(block_id) * block_size + offset",
            "block_ids.index(block_id) + offset",
            says="holds position",
        ),
        Wrong(
            "a whole last block of tokens",
            "return found if found < num_tokens else None",
            "return found",
            says="is behind the last token",
        ),
        Wrong(
            "position 0 counts as none",
            "return found if found < num_tokens else None",
            "return (found or None) if found < num_tokens else None",
            says="holds position 0",
        ),
        Wrong(
            "-1 is the last block",
            "    if block_id not in block_ids:\n",
            "    block_id %= 4\n    if block_id not in block_ids:\n",
            says="-1 is no slot",
        ),
    ),
)
