"""Judges ``FreeList`` on every program of up to five operations, the shortest first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType

from minipaged.learn.exercise import Exercise, Wrong, trying

from .play import OPERATIONS, Play, step

LONGEST = 5
POOLS = (1, 2, 3)


def programs() -> Iterator[tuple[int, tuple[str, ...]]]:
    """All programs, short ones first."""
    for length in range(1, LONGEST + 1):
        for program in product(OPERATIONS, repeat=length):
            if "takes" in program[0]:
                for num_blocks in POOLS[: 1 + length]:
                    yield num_blocks, program


def check(module: ModuleType) -> str | None:
    """Play every program; the first that goes wrong is the shortest story there is."""
    num_programs = 0
    for num_blocks, program in programs():
        trying(f"a pool of {num_blocks} is made")
        play = Play(module.FreeList(num_blocks), num_blocks)
        play.check_free()
        for operation in program:
            if not step(play, operation):
                break
            play.check_free()
        else:
            play.take_the_rest()
            num_programs += 1
    return f"{num_programs:,} programs of up to {LONGEST} operations"


EXERCISE = Exercise(
    name="free_list",
    title="A free list that refuses to free twice",
    function="FreeList",
    lines=16,
    hints=(
        "Which two questions must `free` answer before it changes anything? And which one must "
        "`allocate` answer?",
        "A list of free ids is enough for `allocate`. For `free` you need to know who holds a "
        "block (a dict), and for a good error who gave it back last (another dict).",
        "In `allocate` compare `num_blocks` with the number of free ids first, then pop so many. "
        "In `free`: not in the dict of holders: it is free already; another holder: refuse; "
        "else delete the holder, remember who gave it back, append the id to the free ones.",
    ),
    learnt="A block is free or held, never both: checked where it is given back, a wrong release "
    "has a name, instead of a wrong answer somewhere else, later.",
    check=check,
    wrong=(
        Wrong(
            "a free block goes onto the list again",
            'raise ValueError(f"block {block_id} is free already: {who} gave it back")',
            "return self._free.append(block_id)",
            says="was given back twice: not refused",
        ),
        Wrong(
            "a second release is passed over in silence",
            'raise ValueError(f"block {block_id} is free already: {who} gave it back")',
            "return",
            says="was given back twice: not refused",
        ),
        Wrong(
            "anybody may give back a block",
            "if holder != owner:",
            "if False:",
            says="holds: not refused",
        ),
        Wrong(
            "blocks are taken until there is none",
            "        if num_blocks > self.num_free:\n"
            "            raise OutOfBlocks(\n"
            '                f"{owner} needs {num_blocks} blocks, '
            '{self.num_free} of {self._num_blocks} are free"\n'
            "            )\n"
            "        block_ids = [self._free.pop() for _ in range(num_blocks)]\n",
            "        block_ids = []\n"
            "        for _ in range(num_blocks):\n"
            "            if not self._free:\n"
            '                raise OutOfBlocks("no block is free")\n'
            "            block_ids.append(self._free.pop())\n",
            says="num_free is 0, not 1",
        ),
        Wrong(
            "blocks never come back",
            "        self._free.append(block_id)\n",
            "",
            says="num_free is",
        ),
        Wrong(
            "one block is kept back",
            "if num_blocks > self.num_free:",
            "if num_blocks >= self.num_free:",
            says="allocate refused, though 1 blocks were free",
        ),
        Wrong(
            "a block is handed out and stays on the list",
            "[self._free.pop() for _ in range(num_blocks)]",
            "self._free[:num_blocks]",
            says="num_free is",
        ),
        Wrong(
            "the count is right, the list is not",
            "[self._free.pop() for _ in range(num_blocks)]",
            "self._free[:num_blocks]\n        self._free = self._free[:-num_blocks]",
            says="was handed out twice",
        ),
        Wrong(
            "an error without names",
            'f"block {block_id} is free already: {who} gave it back"',
            '"double free"',
            says="the error does not name block",
        ),
        Wrong(
            "the last owner is forgotten",
            "        self._gave_back[block_id] = owner\n",
            "",
            says="the error does not name block",
        ),
        Wrong(
            "the first owner is remembered for ever",
            "self._gave_back[block_id] = owner",
            "self._gave_back.setdefault(block_id, owner)",
            says="the error does not name block 0 and B",
        ),
        Wrong(
            "changed, and then refused",
            "        if holder != owner:\n",
            "        self._free.append(block_id)\n        if holder != owner:\n",
            says="num_free is",
        ),
    ),
)
