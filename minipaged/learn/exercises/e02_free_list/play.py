"""One program of allocations and releases against a learner's free list; knows no other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from minipaged.core import OutOfBlocks
from minipaged.learn.exercise import reject, same_form, trying


@dataclass
class Play:
    """One program against the learner's object, and what should be true beside it."""

    blocks: Any
    num_blocks: int
    holder: dict[int, str] = field(default_factory=dict)  # insertion order: the oldest first
    gave_back: dict[int, str] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return self.num_blocks - len(self.holder)

    def told(self, event: str) -> None:
        """Another operation begins."""
        self.story.append(event)
        self.told_so_far()

    def take(self, owner: str, count: int) -> None:
        """``owner`` takes ``count`` blocks, or there are too few."""
        self.told(f"{owner} takes {count}")
        if count > self.num_free:
            try:
                got = self.blocks.allocate(owner, count)
            except OutOfBlocks:
                return
            reject(f"allocate returned {got}, but only {self.num_free} were free")
        try:
            got = self.blocks.allocate(owner, count)
        except OutOfBlocks as error:
            reject(
                f"allocate refused, though {self.num_free} blocks were free", f"got      {error}"
            )
        same_form(got, [0], "allocate(...)")
        self.story[-1] += f" and gets {got}"
        self.told_so_far()
        for block_id in got:
            self.handed_out(block_id, owner)
        if len(got) != count:
            reject(f"allocate returned {len(got)} blocks, {count} were asked for")

    def told_so_far(self) -> None:
        """The program, a line for each operation."""
        steps = (f"  {number}. {event}" for number, event in enumerate(self.story, start=1))
        trying(f"a pool of {self.num_blocks}", *steps)

    def handed_out(self, block_id: int, owner: str) -> None:
        """A block that nobody holds, and one of the pool."""
        if not isinstance(block_id, int) or block_id not in range(self.num_blocks):
            reject(f"allocate handed out {block_id!r}: there are 0 to {self.num_blocks - 1}")
        if block_id in self.holder:
            other = self.holder[block_id]
            reject(
                f"block {block_id} was handed out twice: {other} holds it, and {owner} got it",
                "What one of them writes there, the other one reads.",
            )
        self.holder[block_id] = owner
        self.gave_back.pop(block_id, None)

    def give(self, owner: str, block_id: int) -> None:
        """A right release."""
        self.told(f"{owner} gives back {block_id}")
        self.blocks.free(owner, block_id)
        del self.holder[block_id]
        self.gave_back[block_id] = owner

    def give_wrongly(self, owner: str, block_id: int) -> None:
        """A block that is free, or somebody else's: to be refused, with names."""
        holder = self.holder.get(block_id)
        self.told(f"{owner} gives back {block_id}{'' if holder else ' again'}")
        try:
            self.blocks.free(owner, block_id)
        except ValueError as error:
            culprit = holder or self.gave_back[block_id]
            words = re.findall(r"\w+", str(error))
            if str(block_id) not in words or culprit not in words:
                fact = f"{culprit} {'holds it' if holder else 'gave it back before'}"
                reject(
                    f"the error does not name block {block_id} and {culprit}",
                    f"got      {error!s:.100}",
                    f"the fact {fact}",
                )
            return
        if holder:
            reject(f"{owner} gave back block {block_id}, which {holder} holds: not refused")
        reject(
            f"block {block_id} was given back twice: not refused",
            "Is it on the list twice now? Then the next two who ask get the same block.",
        )

    def check_free(self) -> None:
        """The count is right."""
        got = self.blocks.num_free
        same_form(got, 0, "num_free")
        if got != self.num_free:
            held = ", ".join(f"{b} by {who}" for b, who in sorted(self.holder.items()))
            reject(
                f"num_free is {got}, not {self.num_free}",
                f"held: {held or 'nothing'}; everything else is free",
            )

    def take_the_rest(self) -> None:
        """Whatever is free can be had: nothing leaked, nothing is there twice."""
        if self.num_free:
            self.take("Z", self.num_free)
            self.check_free()


OPERATIONS = ("A takes 1", "A takes 2", "B takes 1", "A gives", "B gives", "B again", "A foreign")


def step(play: Play, operation: str) -> bool:
    """Do one operation; False where it means nothing in this state."""
    owner, verb, *rest = operation.split()
    if verb == "takes":
        play.take(owner, int(rest[0]))
        return True
    own = [b for b, who in play.holder.items() if who == owner]
    if verb == "gives":
        if own:
            play.give(owner, own[0])
        return bool(own)
    others = [b for b, who in play.holder.items() if who != owner]
    given = [b for b, who in play.gave_back.items() if who == owner]
    targets = others if verb == "foreign" else given
    if targets:
        play.give_wrongly(owner, targets[-1])
    return bool(targets)
