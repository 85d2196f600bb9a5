"""Judges a pool beside the package's own, on every short program of three requests."""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from minipaged.core import BlockPool, OutOfBlocks
from minipaged.learn.exercise import Exercise, Wrong, reject, trying
from minipaged.learn.exercises._programs import listed, programs

NAMED = {"A": (b"x", b"xy"), "B": (b"x", b"xz"), "C": (b"u",)}  # A and B begin alike
NUM_BLOCKS = {"A": 3, "B": 2, "C": 2}  # A and C end with a block that is not full
OPERATIONS = tuple(f"{name} {verb}" for name in NAMED for verb in ("comes", "ends"))
MAX_LEN = 6


class World:
    """The learner's pool, the package's, and the tables of the requests that are alive."""

    def __init__(self, module: ModuleType, num_blocks: int):
        self.module, self.mine = module, module.Pool(num_blocks)
        self.theirs = BlockPool(num_blocks)
        self.tables: dict[str, list[int]] = {}
        self.num_evictions = 0

    def run(self, operation: str) -> bool:
        """Do it in both pools, and compare; False if there is no room for it."""
        name, verb = operation.split()
        if verb == "ends":
            self.end(name)
        elif not self.come(name):
            return False
        self.compare()
        return True

    def come(self, name: str) -> bool:
        """Find what there is, allocate the rest, publish what is full."""
        names = NAMED[name]
        found = self.theirs.lookup_chain(names)
        room = self.theirs.num_free - sum(map(self.theirs.is_free, found))
        if NUM_BLOCKS[name] - len(found) > room:
            return False
        for block_id in found:
            self.module.share(self.mine, block_id)
            self.theirs.share(block_id)
        self.compare()
        table = list(found)
        while len(table) < NUM_BLOCKS[name]:
            table.append(self.take())
        for i in range(len(found), len(names)):
            self.module.publish(self.mine, table[i], names[i])
            self.theirs.publish(table[i], names[i], names[i - 1] if i else None)
        self.tables[name] = table
        return True

    def take(self) -> int:
        """One block from each pool: the same."""
        order, was_blank = self.theirs.free_order(), self.theirs.num_free > self.theirs.num_cached
        counts = list(self.theirs.ref_count)
        (expected,) = self.theirs.allocate()
        got = self.module.allocate(self.mine)
        if got == expected:
            return got
        lines = (f"got      block {got!r}", f"expected block {expected}, of the free ones {order}")
        if got in range(len(counts)) and counts[got]:
            self.say_no("allocate took a block that somebody holds", *lines)
        if was_blank:
            self.say_no("allocate did not take the last blank block, which nobody misses", *lines)
        self.say_no("allocate took the wrong cached block: another was unused for longer", *lines)

    def end(self, name: str) -> None:
        """Give the table back. The package does it block by block, the tail first."""
        table = self.tables.pop(name)
        self.module.release(self.mine, list(table))
        for block_id in reversed(table):
            self.theirs.release(block_id)

    def compare(self) -> None:
        """Both pools must say the same of every block, and of every name."""
        mine, theirs = self.mine, self.theirs
        if list(mine.ref_count) != theirs.ref_count:
            what = "the reference counts are not the numbers of holders"
            self.say_no(what, f"got      {mine.ref_count}", f"expected {theirs.ref_count}")
        for name, block_id in mine.index.items():
            if theirs.prefix_hash[block_id] != name:
                self.say_no(
                    "the index finds a block that holds something else now",
                    f"a request for {name!r} would be given block {block_id}",
                )
        for block_id, name in enumerate(theirs.prefix_hash):
            if name and name not in mine.index:
                self.say_no(f"block {block_id} still holds {name!r}, and cannot be found any more")
            if mine.name_of.get(block_id) != name:
                what = f"block {block_id} has the name {mine.name_of.get(block_id)}"
                self.say_no(what, f"expected {name}")
        self.compare_free()

    def compare_free(self) -> None:
        """The same blocks are blank, and cached in the same order."""
        mine, theirs = self.mine, self.theirs
        order = theirs.free_order()
        num_blank = theirs.num_free - theirs.num_cached
        blank, cached = order[:num_blank], order[num_blank:]
        for block_id in (*mine.blank, *mine.cached):
            if theirs.ref_count[block_id]:
                self.say_no(f"block {block_id} is among the free ones, and somebody holds it")
        lines = (f"got      {list(mine.cached)}", f"expected {cached}")
        if sorted(mine.blank) != sorted(blank):
            lines = (f"got      {sorted(mine.blank)}", f"expected {sorted(blank)}")
            self.say_no("the blank blocks are not those that are free and have no name", *lines)
        if sorted(mine.cached) != sorted(cached):
            self.say_no("the cached blocks are not those that are free and have a name", *lines)
        if list(mine.cached) != cached:
            place = {mine.name_of.get(block_id): i for i, block_id in enumerate(mine.cached)}
            heads = [tail for tail in (b"xy", b"xz") if {tail, b"x"} <= set(place)]
            if any(place[b"x"] < place[tail] for tail in heads):
                self.say_no("the head of a sequence would be forgotten before its tail", *lines)
            self.say_no("the cached blocks are not in the order of their last use", *lines)

    def say_no(self, what: str, *lines: str) -> NoReturn:
        """Reject, with the tables."""
        tables = (f"{name} {table}" for name, table in self.tables.items())
        reject(what, *lines, f"tables   {listed(tables, empty='none')}")


def check(module: ModuleType) -> str:
    """Every program of up to six steps, in pools of three to five blocks."""
    _must_run_out(module)
    tried = evictions = 0
    for program in programs(OPERATIONS, max_len=MAX_LEN):
        if not _alternates(program):
            continue
        for num_blocks in (3, 4, 5):
            trying(
                f"{num_blocks} blocks; A needs those named x, xy, and one without a name",
                "B needs x, xz, and C needs u and one without a name",
                f"then: {listed(program)}",
            )
            world = World(module, num_blocks)
            if all(world.run(operation) for operation in program):
                tried, evictions = tried + 1, evictions + world.theirs.num_evictions
    return f"{evictions:,} evictions in {tried:,} programs, none of the wrong block"


def _alternates(program: tuple[str, ...]) -> bool:
    """Nobody comes twice without an end, or ends without having come."""
    alive: set[str] = set()
    for operation in program:
        name, verb = operation.split()
        if (verb == "comes") == (name in alive):
            return False
        alive ^= {name}
    return True


def _must_run_out(module: ModuleType) -> None:
    trying("a pool of 1 block", "then: allocate, allocate")
    pool = module.Pool(1)
    module.allocate(pool)
    try:
        got = module.allocate(pool)
    except OutOfBlocks:
        return
    reject(f"allocate returned {got!r}, though the only block is held", "expected OutOfBlocks")


EXERCISE = Exercise(
    name="evict",
    title="Free is not forgotten",
    function=("Pool", "publish", "allocate", "share", "release"),
    lines=18,
    hints=(
        "A block has a name in two places: pool.name_of and pool.index. When it is taken "
        "for something new, both must forget it in the same breath.",
        "share: a cached block must leave pool.cached, or it will be handed out while it is held. "
        "release: only when the count has come to 0 is a block free.",
        "allocate: pool.blank.pop(), else pool.cached.popitem(last=False). release: walk over "
        "reversed(block_ids), so that the tail stands before the head among the cached.",
    ),
    learnt="A freed block stays findable until it is taken; its name dies with it, and the tail of "
    "a sequence goes before its head.",
    check=check,
    wrong=(
        Wrong(
            "the old name stays in the index (nano-vllm #163)",
            "del pool.index[pool.name_of.pop(block_id)]",
            "pool.name_of.pop(block_id)",
            says="the index finds a block that holds something else now",
        ),
        Wrong(
            "the block keeps its old name (kvcached #362)",
            "pool.name_of.pop(block_id)",
            "pool.name_of[block_id]",
            says="has the name",
        ),
        Wrong(
            "the head goes first",
            "reversed(block_ids)",
            "block_ids",
            says="forgotten before its tail",
        ),
        Wrong(
            "the newest goes first",
            "popitem(last=False)",
            "popitem(last=True)",
            says="another was unused for longer",
        ),
        Wrong(
            "cached blocks go before blank ones",
            text="""from minipaged.core import OutOfBlocks
from minipaged.learn.exercises.e07b_evict.solution import Pool, publish, release, share


def allocate(pool):
    if pool.cached:
        block_id, _ = pool.cached.popitem(last=False)
        del pool.index[pool.name_of.pop(block_id)]
    elif pool.blank:
        block_id = pool.blank.pop()
    else:
        raise OutOfBlocks("every block is held")
    pool.ref_count[block_id] = 1
    return block_id
""",
            says="did not take the last blank block",
        ),
        Wrong(
            "a hit stays among the free blocks",
            "    pool.cached.pop(block_id, None)\n",
            "",
            says="among the free ones, and somebody holds it",
        ),
        Wrong(
            "a hit does not count",
            "    pool.ref_count[block_id] += 1\n",
            "    pool.ref_count[block_id] = 1\n",
            says="the reference counts are not the numbers of holders",
        ),
        Wrong(
            "whoever goes first frees what is shared",
            "if pool.ref_count[block_id] == 0:",
            "if pool.ref_count[block_id] >= 0:",
            says="among the free ones, and somebody holds it",
        ),
        Wrong(
            "freed is forgotten",
            "                pool.cached[block_id] = None\n",
            "                del pool.index[pool.name_of.pop(block_id)]\n"
            "                pool.blank.append(block_id)\n",
            says="cannot be found any more",
        ),
        Wrong(
            "a block without a name is cached",
            "if block_id in pool.name_of:",
            "if True:",
            says="the blank blocks are not those that are free and have no name",
        ),
        Wrong(
            "hands out what there is not",
            'raise OutOfBlocks("every block is held")',
            "block_id = 0",
            says="though the only block is held",
        ),
    ),
)
