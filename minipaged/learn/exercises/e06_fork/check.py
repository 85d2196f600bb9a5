"""Judges ``append`` on every short program of three sequences that share a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from types import ModuleType
from typing import NoReturn

from minipaged.core import BlockPool, Copy, OutOfBlocks
from minipaged.learn.exercise import Exercise, Wrong, reject, trying
from minipaged.learn.exercises._programs import drawn, listed, programs

BLOCK_SIZE = 3
NAMES = "ABC"
OPERATIONS = (*(f"{name} writes" for name in NAMES), "A ends", "A takes back a token")


@dataclass
class Row:
    """One sequence: its table, and what it must read."""

    block_ids: list[int]
    wrote: list[str] = field(default_factory=list)

    def fork(self) -> Row:
        """A sequence with the same table and the same past."""
        return Row(list(self.block_ids), list(self.wrote))


class World:
    """A pool, three sequences in it, what every slot holds, and what published blocks promise."""

    def __init__(self, append, prompt_len: int, num_blocks: int):
        self.append, self.num_copies, self.num_written = append, 0, 0
        self.pool = BlockPool(num_blocks)
        self.slots: dict[int, str] = {}
        self.promised: dict[int, list[str]] = {}
        first = Row(self.pool.allocate(-(-prompt_len // BLOCK_SIZE)))
        for position in range(prompt_len):
            self.write(first, f"p{position}")
        self.rows = {"A": first}
        for name in NAMES[1:]:
            self.rows[name] = first.fork()
            for block_id in first.block_ids:
                self.pool.share(block_id)

    def slot(self, row: Row, position: int) -> int:
        """Where a position of a sequence lives."""
        return row.block_ids[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE

    def content(self, block_id: int) -> list[str]:
        """What stands in a block."""
        first = block_id * BLOCK_SIZE
        return [self.slots.get(slot, "") for slot in range(first, first + BLOCK_SIZE)]

    def write(self, row: Row, token: str) -> None:
        """Put a token behind the last one; a block that is full now is published."""
        row.wrote.append(token)
        slot = self.slot(row, len(row.wrote) - 1)
        self.slots[slot] = token
        block_id = slot // BLOCK_SIZE
        if len(row.wrote) % BLOCK_SIZE == 0 and self.pool.prefix_hash[block_id] is None:
            self.pool.publish(block_id, sha256(repr(row.wrote).encode()).digest(), None)
            self.promised[block_id] = self.content(block_id)

    def run(self, operation: str) -> None:
        """Do one operation, and judge the state it leaves."""
        name, _, verb = operation.partition(" ")
        if name not in self.rows:
            return
        if verb == "writes":
            self.grow(name)
            for reader in self.rows:
                self.judge_what_is_read(reader, writer=name)
            self.judge_what_is_promised(writer=name)
            self.judge_the_books()
        else:
            self.shrink(name, 0 if verb == "ends" else len(self.rows[name].wrote) - 1)

    def shrink(self, name: str, num_tokens: int) -> None:
        """A sequence ends, or forgets its last token."""
        row = self.rows[name]
        keep = -(-max(num_tokens, 0) // BLOCK_SIZE)
        for block_id in reversed(row.block_ids[keep:]):
            self.pool.release(block_id)
        del row.block_ids[keep:], row.wrote[max(num_tokens, 0) :]
        if num_tokens == 0:
            del self.rows[name]

    def grow(self, name: str) -> None:
        """One more token, by the learner's ``append``."""
        row, pool = self.rows[name], self.pool
        before, free, counts = list(row.block_ids), pool.num_free, list(pool.ref_count)
        is_full = len(row.wrote) == len(before) * BLOCK_SIZE
        must_copy = not is_full and not pool.writable(before[-1])
        try:
            copy = self.append(pool, row.block_ids, len(row.wrote), BLOCK_SIZE)
        except OutOfBlocks:
            if free or not (is_full or must_copy):
                self.say_no("append ran out of blocks, but needs no more than there are")
            if (row.block_ids, pool.ref_count) != (before, counts):
                self.say_no("append ran out of blocks and did not leave everything as it was")
            return
        self.judge_the_copy(name, copy, before, is_full, must_copy)
        if isinstance(copy, Copy):
            self.num_copies += 1
            for offset, token in enumerate(self.content(copy.source)):
                self.slots[copy.destination * BLOCK_SIZE + offset] = token
        needed = len(row.wrote) // BLOCK_SIZE + 1
        if len(row.block_ids) < needed:
            self.say_no(f"the table of {name} has no slot for its new token", name, before)
        if len(row.block_ids) > needed:
            self.say_no(f"the table of {name} has more blocks than its tokens need", name, before)
        self.num_written += 1
        self.write(row, f"{name}{self.num_written}")

    def judge_the_copy(self, name, copy, before: list[int], is_full: bool, must_copy: bool) -> None:
        """No copy without need, and the one that is needed in the right direction."""
        after = self.rows[name].block_ids
        if copy is not None and not isinstance(copy, Copy):
            self.say_no(f"append returned {copy!r}, expected a Copy or None")
        if is_full and (copy or after[: len(before)] != before):
            self.say_no("copied a full block: nobody writes into it again", name, before)
        if not is_full and not must_copy and (copy or after != before):
            self.say_no("copied a block that nobody else can read", name, before)
        if copy and (copy.source, copy.destination) != (before[-1], after[-1]):
            expected = Copy(before[-1], after[-1])
            self.say_no(f"append returned {copy}, and its table says {expected}", name, before)

    def judge_what_is_read(self, reader: str, writer: str) -> None:
        """Every sequence reads what it wrote, whoever wrote last."""
        row = self.rows[reader]
        got = [self.slots.get(self.slot(row, p), "") for p in range(len(row.wrote))]
        if got == row.wrote:
            return
        what = f"{writer} wrote into a block that {reader} still reads"
        if reader == writer:
            what = f"{reader} has lost what it wrote: its new block is not a copy of the old one"
        self.say_no(what, told=[f"{reader} reads  {listed(got)}", f"it wrote {listed(row.wrote)}"])

    def judge_what_is_promised(self, writer: str) -> None:
        """Whoever finds a published block by its prefix reads what was there then."""
        for block_id, prefix_hash in enumerate(self.pool.prefix_hash):
            if prefix_hash is None:
                continue
            got, promised = self.content(block_id), self.promised[block_id]
            if got != promised:
                self.say_no(
                    f"{writer} wrote into a published block: a later request may find it",
                    told=[f"block {block_id} holds {listed(got)}", f"promised {listed(promised)}"],
                )

    def judge_the_books(self) -> None:
        """The reference count of a block is the number of tables that hold it."""
        for block_id, count in enumerate(self.pool.ref_count):
            holders = [name for name, row in self.rows.items() if block_id in row.block_ids]
            if count != len(holders):
                self.say_no(
                    f"block {block_id} is in {len(holders)} tables, but its ref_count is {count}",
                    told=[f"held by {listed(holders)}"],
                )

    def say_no(
        self, what: str, name: str = "", before: list[int] | None = None, told=()
    ) -> NoReturn:
        """Reject, with the tables before and after, and a picture."""
        lines = list(told)
        if name:
            lines.append(f"table of {name}: {before} -> {self.rows[name].block_ids}")
        tables = {name: (row.block_ids, len(row.wrote)) for name, row in self.rows.items()}
        reject(what, *lines, "", drawn(self.pool, tables, BLOCK_SIZE))


def check(module: ModuleType) -> str:
    """Try every prompt of up to 4 tokens, and every program of up to 4 operations."""
    tried = copies = 0
    for program in programs(OPERATIONS, max_len=4):
        for prompt_len in (1, 2, 3, 4):
            for num_blocks in (6, 2):  # the second runs out
                trying(
                    f"blocks of {BLOCK_SIZE}, {num_blocks} in the pool; A has a prompt of "
                    f"{prompt_len} and is forked into B and C; full blocks are published",
                    f"then: {listed(program)}",
                )
                world = World(module.append, prompt_len, num_blocks)
                for operation in program:
                    world.run(operation)
                tried, copies = tried + 1, copies + world.num_copies
    return f"{copies:,} copies in {tried:,} programs, none too many"


EXERCISE = Exercise(
    name="fork",
    title="Write into a block that others may read",
    function="append",
    lines=8,
    hints=(
        "When is it safe to write into the last block? Who else could be reading it, now or later?",
        "A full block is never written again, so ask first whether the last block is full. Only "
        "then does it matter how many hold it, and whether it is published.",
        "Not its own: allocate first (that may fail, and then nothing must have changed), put the "
        "new block into the table, release the old one, return Copy(old, new).",
    ),
    learnt="A block may be written if one table holds it and it is unpublished; else it is copied "
    "by whoever writes first, and the last holder writes in place.",
    check=check,
    wrong=(
        Wrong(
            "writes into a shared block",
            "if pool.ref_count[last] == 1 and",
            "if pool.ref_count[last] >= 1 and",
            says="wrote into a block that",
        ),
        Wrong(
            "counts the holders and forgets who may come later",
            " and pool.prefix_hash[last] is None:",
            ":",
            says="wrote into a published block",
        ),
        Wrong(
            "every child copies, the last one too",
            "if pool.ref_count[last] == 1 and",
            "if False and",
            says="copied a block that nobody else can read",
        ),
        Wrong(
            "keeps its share of the old block",
            "    pool.release(last)\n",
            "",
            says="but its ref_count is",
        ),
        Wrong(
            "a shared full block is copied as well",
            "if num_tokens == len(block_ids) * block_size:",
            "full = num_tokens == len(block_ids) * block_size\n"
            "    if full and (not block_ids or pool.ref_count[block_ids[-1]] == 1):",
            says="copied a full block",
        ),
        Wrong(
            "does not say that there is something to copy",
            "return Copy(last, block_ids[-1])",
            "return None",
            says="has lost what it wrote",
        ),
        Wrong(
            "copies the wrong way round",
            "return Copy(last, block_ids[-1])",
            "return Copy(block_ids[-1], last)",
            says="and its table says",
        ),
        Wrong(
            "gives back before it has got",
            "    (block_ids[-1],) = pool.allocate()\n    pool.release(last)\n",
            "    pool.release(last)\n    (block_ids[-1],) = pool.allocate()\n",
            says="did not leave everything as it was",
        ),
        Wrong(
            "takes the last slot for the end",
            "if num_tokens == len(block_ids) * block_size:",
            "if num_tokens + 1 >= len(block_ids) * block_size:",
            says="has more blocks than its tokens need",
        ),
    ),
)
