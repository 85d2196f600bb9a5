"""Judges ``reorder`` by small searches: beams write, are reordered, and read what they wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from types import ModuleType

from minipaged.core import BlockPool
from minipaged.learn.exercise import Exercise, Wrong, reject, same_form, trying

BLOCK_SIZE = 2
NUM_BLOCKS = 16
Program = tuple[int, tuple[tuple[int, ...], ...]]  # length of the prompt, parents of every step


def programs() -> Iterator[Program]:
    """A prompt of one beam, then up to three steps; few and narrow ones first."""
    for num_steps in (1, 2, 3):
        for width in (1, 2, 3):
            if num_steps * width == 9:
                continue  # 729 programs that say nothing new
            later = product(product(range(width), repeat=width), repeat=num_steps - 1)
            for parents in later:
                for prompt_len in (1, 2, 3):
                    yield prompt_len, ((0,) * width, *parents)


class WatchedPool(BlockPool):
    """A pool that is asked only what this exercise needs, and says no in the learner's words."""

    is_reordering = False

    def allocate(self, num_blocks: int = 1) -> list[int]:
        """As ever, but not while beams are reordered."""
        if self.is_reordering:
            reject("reordering allocated a block: nothing may be copied here")
        return super().allocate(num_blocks)

    def share(self, block_id: int) -> None:
        """As ever, for a block that is held."""
        if self.is_free(block_id):
            reject(f"block {block_id} was given back before it was shared: anybody could have it")
        super().share(block_id)

    def release(self, block_id: int) -> None:
        """As ever, for a block that is held."""
        if self.ref_count[block_id] == 0:
            reject(f"block {block_id} was released once more than it has holders")
        super().release(block_id)


class Search:
    """Beams over one pool; every slot remembers the whole history that was written into it."""

    def __init__(self, module: ModuleType, prompt_len: int):
        self.reorder, self.pool = module.reorder, WatchedPool(NUM_BLOCKS)
        self.tables: list[list[int]] = [[]]
        self.histories = [""]  # what every beam should read
        self.memory: dict[tuple[int, int], str] = {}
        self.num_copies = 0
        for _ in range(prompt_len):
            self.write()

    def write(self) -> None:
        """One token for every beam: a new block, in place, or a copy."""
        end = len(self.histories[0])
        offset = end % BLOCK_SIZE
        for i, table in enumerate(self.tables):
            if offset == 0:
                table += self.pool.allocate()
            elif not self.pool.writable(table[-1]):
                self.copy(table, offset)
            self.histories[i] += "abc"[i]
            self.memory[table[-1], offset] = self.histories[i]

    def copy(self, table: list[int], num_tokens: int) -> None:
        """A block of its own for the writer of a shared one."""
        (own,) = self.pool.allocate()
        for j in range(num_tokens):
            self.memory[own, j] = self.memory[table[-1], j]
        self.pool.release(table[-1])
        table[-1] = own
        self.num_copies += 1

    def step(self, parents: tuple[int, ...]) -> None:
        """Reorder, judge, write."""
        before = [list(table) for table in self.tables]
        self.pool.is_reordering = True
        children = self.reorder(self.pool, self.tables, list(parents))
        self.pool.is_reordering = False
        same_form(children, [], "reorder(...)")
        if len(children) != len(parents):
            reject(f"{len(children)} tables for {len(parents)} children")
        for child in children:
            same_form(child, [], "a table of reorder(...)")
        self.tables = children
        self.histories = [self.histories[parent] for parent in parents]
        self.judge_lists(before, parents)
        self.judge_reading()
        self.judge_holders()
        partial = bool(len(self.histories[0]) % BLOCK_SIZE)
        self.judge_writing(len(parents) - len(set(parents)) if partial else 0)

    def judge_lists(self, before: list[list[int]], parents: tuple[int, ...]) -> None:
        """No two children may write into one list."""
        for i, table in enumerate(self.tables):
            if any(table is other for other in self.tables[:i]):
                reject(
                    f"two children have one and the same list: what child {i} appends, both have"
                )
        for i, (table, parent) in enumerate(zip(self.tables, parents)):
            if len(table) != len(before[parent]):
                reject(
                    f"child {i} has {len(table)} blocks, its parent had {len(before[parent])}",
                    f"got      {table}",
                    f"expected {before[parent]}",
                )

    def judge_reading(self) -> None:
        """Every child reads what its parent has written."""
        for i, (table, history) in enumerate(zip(self.tables, self.histories)):
            for p in range(len(history)):
                place = table[p // BLOCK_SIZE], p % BLOCK_SIZE
                found = self.memory.get(place)
                if found != history[: p + 1]:
                    reject(
                        f"child {i} reads another beam's past at position {p}",
                        f"in block {place[0]} lies what follows {found!r}",
                        f"expected {history[: p + 1]!r} (a letter for every beam that wrote)",
                        f"tables {self.tables}",
                    )

    def judge_holders(self) -> None:
        """As many holders as tables that name a block."""
        named = Counter(block_id for table in self.tables for block_id in table)
        for block_id, count in enumerate(self.pool.ref_count):
            if count != named[block_id]:
                more = "leaks" if count > named[block_id] else "will be freed too early"
                reject(
                    f"block {block_id} {more}: it has ref_count {count}, "
                    f"and {named[block_id]} children name it",
                    f"tables    {self.tables}",
                    f"ref_count {self.pool.ref_count}",
                )

    def judge_writing(self, budget: int) -> None:
        """The next tokens cost as many copies as they must, and no more."""
        before = self.num_copies
        self.write()
        if self.num_copies - before != budget:
            reject(f"{self.num_copies - before} blocks were copied, {budget} would do")


def check(module: ModuleType) -> str | None:
    """Run every program; its parents are the whole story."""
    num_programs = num_copies = 0
    for prompt_len, steps in programs():
        told = [f"step {i + 1}: parents {list(parents)}" for i, parents in enumerate(steps)]
        trying(f"blocks of {BLOCK_SIZE}, a prompt of {prompt_len}", *told)
        search = Search(module, prompt_len)
        for parents in steps:
            search.step(parents)
        num_programs += 1
        num_copies += search.num_copies
    return f"{num_programs} searches, {num_copies} blocks copied, none too many"


FORK = """    for child in children:
        for block_id in child:
            pool.share(block_id)
"""
RELEASE = """    for table in tables:
        for block_id in table:
            pool.release(block_id)
"""
ONE_AFTER_THE_OTHER = """    children = tables
    for i, parent in enumerate(parents):
        child = list(children[parent])
        for block_id in child:
            pool.share(block_id)
        if i < len(children):
            for block_id in children[i]:
                pool.release(block_id)
            children[i] = child
        else:
            children.append(child)
"""

EXERCISE = Exercise(
    name="reorder",
    title="Reorder beams",
    function="reorder",
    lines=8,
    hints=(
        "There are three loops: one builds the lists, one adds holders, one removes holders. "
        "Their order is the exercise.",
        "Every child needs a list of its own (`list(...)`), for it will append to it.",
        "Share every block of every child first. Then release every block of every old table, "
        "whether that beam has children or not.",
    ),
    learnt="Fork all, then release all: between the two every block that is needed has a holder, "
    "so beams change places without moving a single number.",
    check=check,
    wrong=(
        Wrong(
            "releases before it shares",
            FORK + RELEASE,
            RELEASE + FORK,
            says="was given back before it was shared",
        ),
        Wrong(
            "one after the other, in place",
            "    children = [list(tables[parent]) for parent in parents]\n" + FORK + RELEASE,
            ONE_AFTER_THE_OTHER,
            says="reads another beam's past",
        ),
        Wrong(
            "forgets those without children",
            "    for table in tables:\n",
            "    for table in [tables[parent] for parent in set(parents)]:\n",
            says="leaks",
        ),
        Wrong(
            "releases a parent once for every child",
            "    for table in tables:\n",
            "    for table in [tables[parent] for parent in parents]:\n",
            says="it has ref_count",
        ),
        Wrong("releases nothing", RELEASE, "", says="leaks"),
        Wrong(
            "releases only who has no children",
            "    for table in tables:\n",
            "    for table in [t for i, t in enumerate(tables) if i not in parents]:\n",
            says="leaks",
        ),
        Wrong(
            "two children have one list",
            "[list(tables[parent]) for parent in parents]",
            "[tables[parent] for parent in parents]",
            says="one and the same list",
        ),
        Wrong(
            "shares only full blocks",
            "for block_id in child:",
            "for block_id in child[:-1]:",
            says="will be freed too early",
        ),
        Wrong(
            "copies every child",
            FORK,
            "    children = [pool.allocate(len(child)) for child in children]\n",
            says="reordering allocated a block",
        ),
        Wrong(
            "children in the order of their parents",
            "for parent in parents]",
            "for parent in sorted(parents)]",
            says="reads another beam's past",
        ),
    ),
)
