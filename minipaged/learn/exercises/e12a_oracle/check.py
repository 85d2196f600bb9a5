"""Judges an oracle: it must tell right managers from wrong ones, in the first wrong state."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from minipaged.core import BlockTable, OutOfBlocks
from minipaged.learn.exercise import Exercise, Wrong, reject, trying
from minipaged.learn.exercises._managers import BLOCK_SIZE, MANAGERS, Manager
from minipaged.learn.exercises._programs import listed, programs

NUM_BLOCKS = 3
OPERATIONS = (
    "start aaaa",
    "start bab",
    "fork the oldest",
    "the oldest writes a",
    "the newest writes b",
    "the oldest ends",
)
REUSED = ("start aabb", "the oldest ends", "start abaabb", "the oldest ends", "start aabba")
BEGINNINGS = ("start bbab", "start ab", "the oldest writes b")


def tokens(text: str) -> list[int]:
    """A number for every letter."""
    return [ord(letter) for letter in text]


class World:
    """A manager at work, what its slots hold, and an oracle that is told of it."""

    def __init__(self, manager: Manager, oracle):
        self.manager, self.oracle = manager, oracle
        self.pool = manager.pool(NUM_BLOCKS)
        self.tables: dict[str, BlockTable] = {}
        self.texts: dict[str, str] = {}
        self.slots: dict[int, str] = {}
        self.num_born = 0

    def run(self, operation: str) -> bool:
        """Do one operation; False: the manager could not."""
        verb, _, text = operation.partition(" ")
        if verb == "start":
            return self.start(text)
        if not self.tables:
            return True
        name = list(self.tables)[-1 if "newest" in operation else 0]
        if verb == "fork":
            self.add(self.tables[name].fork(), self.texts[name])
        elif operation.endswith("ends"):
            self.tables.pop(name).release()
            del self.texts[name]
        else:
            return self.write(name, self.texts[name] + operation[-1])
        return True

    def add(self, table: BlockTable, text: str) -> str:
        """One more living sequence."""
        name = "ABCDEFGH"[self.num_born]
        self.num_born += 1
        self.tables[name], self.texts[name] = table, text
        return name

    def start(self, text: str) -> bool:
        """A new sequence; what is known of it is not computed again."""
        table = self.manager.new_table(self.pool)
        found = table.match_prefix(tokens(text))
        name = self.add(table, text[:found])
        return self.write(name, text)

    def write(self, name: str, text: str) -> bool:
        """A sequence gets its next tokens, and the oracle hears of every copy and every slot."""
        table, start = self.tables[name], len(self.texts[name])
        try:
            copies = table.reserve(len(text) - start)
        except OutOfBlocks:
            return False
        for source, destination in copies:
            for offset in range(BLOCK_SIZE):
                got = self.slots.get(source * BLOCK_SIZE + offset, "")
                self.slots[destination * BLOCK_SIZE + offset] = got
            self.oracle.copied(source, destination)
        for position, slot in enumerate(table.slots(start, len(text)), start):
            self.slots[slot] = text[: position + 1]
            self.oracle.wrote(slot, text[: position + 1])
        self.texts[name] = text
        table.commit(tokens(text))
        return True

    def truth(self) -> str | None:
        """What is wrong now, if anything."""
        for name, text in self.texts.items():
            for position, slot in enumerate(self.tables[name].slots(0, len(text))):
                got, wanted = self.slots.get(slot, ""), text[: position + 1]
                if got != wanted:
                    return f"{name} reads '{got}' at position {position}, not '{wanted}'"
        for block_id, count in enumerate(self.pool.ref_count):
            held = [name for name, table in self.tables.items() if block_id in table.block_ids]
            if count != len(held):
                return f"block {block_id} is held by {listed(held)}, its ref_count is {count}"
        return None

    def asked(self) -> str | None:
        """What the learner's oracle says of the state."""
        tables = {name: list(table.block_ids) for name, table in self.tables.items()}
        said = self.oracle.look(tables, dict(self.texts), list(self.pool.ref_count))
        if said is not None and not (isinstance(said, str) and said):
            reject(
                f"look returned {said!r}", "expected None, or a sentence that says what is wrong"
            )
        return said

    def told(self) -> list[str]:
        """The state in a few lines."""
        lines = ["the state, with the prefix that each slot was computed from:"]
        for name, table in self.tables.items():
            lines.append(f"  {name} = {self.texts[name]!r}, block_ids {table.block_ids}")
        for block_id, count in enumerate(self.pool.ref_count):
            slots = range(block_id * BLOCK_SIZE, (block_id + 1) * BLOCK_SIZE)
            held = listed(repr(self.slots.get(slot, "")) for slot in slots)
            lines.append(f"  block {block_id}: {held}, ref_count {count}")
        return lines


def judge(module: ModuleType, manager: Manager, program: tuple[str, ...]) -> bool:
    """Play a program up to the first wrong state; True: there was one, and it was seen."""
    oracle = module.Oracle(BLOCK_SIZE)
    world = World(manager, oracle)
    for done, operation in enumerate(program, start=1):
        try:
            if not world.run(operation):
                return False
        except ValueError:  # a wrong manager stumbles over its own books
            return False
        said, truth = world.asked(), world.truth()
        if (said is None) != (truth is None):
            trying(
                f"{NUM_BLOCKS} blocks of {BLOCK_SIZE}; a manager that "
                f"{manager.what or 'does everything right'}",
                f"program: {listed(program[:done])}",
            )
        if said and not truth:
            who = "a right state of a wrong manager" if manager.what else "a right manager"
            reject(f"your oracle blames {who}", f"it says: {said}", *world.told())
        if truth and not said:
            reject(
                f"your oracle accepts a manager that {manager.what}",
                f"it says nothing, but {truth}",
                *world.told(),
            )
        if truth:
            return True
    return False


def all_programs() -> Iterator[tuple[str, ...]]:
    """Every one of up to four operations, the shortest first, and two longer ones."""
    yield from programs(OPERATIONS, max_len=4)
    yield BEGINNINGS
    yield REUSED


def check(module: ModuleType) -> str:
    """Play every program on every manager; the right ones come first."""
    seen: dict[str, int] = {}
    tried = 0
    for program in all_programs():
        for manager in MANAGERS:
            trying(
                f"{NUM_BLOCKS} blocks of {BLOCK_SIZE}; a manager that "
                f"{manager.what or 'does everything right'}",
                f"program: {listed(program)}",
            )
            with manager.in_force():
                seen[manager.what] = seen.get(manager.what, 0) + judge(module, manager, program)
            tried += 1
    wrong = [manager.what for manager in MANAGERS if manager.what]
    assert all(seen[what] for what in wrong), f"a wrong manager that is never wrong: {seen}"
    return f"{len(wrong)} wrong managers told from right ones, in {tried:,} programs"


EXERCISE = Exercise(
    name="oracle",
    title="Tell right block managers from wrong ones",
    function="Oracle",
    lines=14,
    hints=(
        "What does K of a token depend on? Keep that for every slot, and nothing less. Two tokens "
        "may be equal and stand behind different beginnings.",
        "A copy takes along whatever the source's slots hold, and leaves it there. A slot of the "
        "source may never have been written: use `get`.",
        "In `look`, walk over every position of every living sequence, not only over what was "
        "written last: a write can spoil what somebody else reads. Compare with text[: p + 1].",
        "Then the books: for each block, count the tables that contain it and compare with its "
        "ref_count. A leak changes nothing that is read.",
    ),
    learnt="An oracle compares the whole prefix in every slot that anybody reads, and counts the "
    "holders of every block; planted bugs show that it sees, right managers that it does not cry "
    "wolf.",
    check=check,
    wrong=(
        Wrong(
            "compares the tokens only",
            "if got != wanted:",
            "if got is None or got[-1:] != wanted[-1:]:",
            says="accepts a manager that names a block without what comes before it",
        ),
        Wrong(
            "only counts blocks",
            "for name, text in texts.items():",
            "for name, text in {}.items():",
            says="accepts a manager that",
        ),
        Wrong(
            "looks only at what is read",
            "if count != holders:",
            "if False:",
            says="accepts a manager that",
        ),
        Wrong(
            "counts only what is free",
            "if count != holders:",
            "if (count == 0) != (holders == 0):",
            says="accepts a manager that keeps a share of what it copied",
        ),
        Wrong(
            "does not hear of copies",
            "            self.memory[destination * size + offset] = "
            'self.memory.get(source * size + offset, "")\n',
            "            pass\n",
            says="blames a right manager",
        ),
        Wrong(
            "moves instead of copying",
            'self.memory.get(source * size + offset, "")',
            'self.memory.pop(source * size + offset, "")',
            says="blames a right",
        ),
        Wrong(
            "takes sharing for a mistake",
            "if count != holders:",
            "if count != holders or holders > 1:",
            says="blames a right manager",
        ),
        Wrong(
            "looks only at the newest sequence",
            "for name, text in texts.items():",
            "for name, text in list(texts.items())[-1:]:",
            says="accepts a manager that",
        ),
        Wrong(
            "looks only at the last token",
            "for position in range(len(text)):",
            "for position in range(len(text) - 1, len(text)):",
            says="accepts a manager that",
        ),
        Wrong(
            "takes a slot that nobody wrote for right",
            "if got != wanted:",
            "if got and got != wanted:",
            says="accepts a manager that does not say what must be copied",
        ),
        Wrong(
            "is content as soon as one sequence reads the right thing",
            "                if got != wanted:\n"
            '                    return f"{name} reads {got!r} at {position}, not {wanted!r}"\n',
            "                if got == wanted:\n                    return None\n",
            says="accepts a manager that",
        ),
        Wrong(
            "says True and False",
            "        return None\n",
            "        return False\n",
            says="look returned False",
        ),
    ),
)
