"""What is known of every block and slot of a pool, and how it is told; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from .errors import SanitizerError
from .slots import History, blank_slots


class State:
    """The notes of a shadow. ``Books`` keeps those on blocks, ``Shadow`` those on slots."""

    def __init__(self, num_blocks: int, block_size: int, *, num_layers: int = 1):
        self.num_blocks, self.block_size, self.num_layers = num_blocks, block_size, num_layers
        self.step, self.label = 0, None
        self.slots = blank_slots(num_blocks, block_size)
        self.flat = self.slots.reshape(-1)
        self.holders: dict[int, list[str]] = {}
        self.last_holder: dict[int, str] = {}  # only to name somebody
        self.published: dict[int, tuple[object, int]] = {}  # block -> its hash, its content
        self.named: dict[object, tuple[int, int]] = {}  # hash -> the block found by it, its content
        self.counts = np.zeros(num_blocks, dtype=bool)  # held or findable: its content counts
        self.since = np.zeros(num_blocks, dtype=np.int64)  # the step of that; 0: never used
        self.generation = np.zeros(num_blocks, dtype=np.int64)  # how often it was handed out
        self.planned = np.zeros(0, dtype=np.int64)  # slots that this step writes
        self.dead: set[int] = set()  # blocks whose content no longer counts, but is still noted
        self.histories: dict[str, History] = {}

    def fail(self, kind: str, what: str, sequence: str | None = None, **where: int) -> NoReturn:
        """Raise what was found."""
        step, label = self.step, self.label
        raise SanitizerError(kind, what, step=step, label=label, sequence=sequence, **where)

    def known(self, block_ids: Iterable[int], owner: str | None, does: str) -> list[int]:
        """The same blocks, if the pool has them all."""
        block_ids = list(block_ids)
        for block_id in block_ids:
            if not 0 <= block_id < self.num_blocks:
                what = f"{does} block {block_id}; the pool has blocks 0 to {self.num_blocks - 1}"
                self.fail("out-of-pool", what, owner, block_id=block_id)
        return block_ids

    def holder(self, block_id: int) -> str | None:
        """One of those who hold a block, or the last who did."""
        return next(iter(self.holders.get(block_id, ())), self.last_holder.get(block_id))

    def held(self, block_id: int) -> str:
        """Who holds a block, with the verb."""
        names = self.holders.get(block_id, [])
        verb = "hold" if len(names) > 1 else "holds"
        return f"{quoted(names)} {verb}" if names else "nobody holds"

    def where(self, slot: int) -> str:
        """A slot in words."""
        return f"slot {slot} (block {slot // self.block_size}, offset {slot % self.block_size})"

    def content(self, block_id: int) -> int:
        """The name of the prefix that ends with a block; 0 if nobody told."""
        return int(self.slots[block_id]["content"][-1])

    def story(self, block_id: int = -1, *, slot: int = -1) -> str:
        """What happened to a block, or to a slot of it: the end of a sentence."""
        block_id = slot // self.block_size if slot >= 0 else block_id
        since = self.since[block_id]
        if not self.counts[block_id]:
            freed = f"was freed at step {since} and never written since"
            return freed if since else "was never allocated"
        record = self.flat[max(slot, 0)]
        if slot < 0 or record["position"] < 0:
            return f"was not written since block {block_id} was allocated at step {since}"
        if record["layers"] < self.num_layers and record["step"] < self.step:
            done = f"{record['layers']} of {self.num_layers} layers"
            return f"was written in {done} only, at step {record['step']}"
        by = f'of sequence "{record["writer"]}", written at step {record["step"]}'
        return f"holds position {record['position']} {by}"


def quoted(names: Iterable[str]) -> str:
    """Sequences by name.

    Examples:
        >>> quoted(["a", "b"])
        'sequences "a", "b"'
    """
    names = list(names)
    return f"sequence{'s' * (len(names) > 1)} " + ", ".join(f'"{name}"' for name in names)


def short(name: object) -> str:
    """A hash as people read it."""
    return name.hex()[:8] if isinstance(name, bytes) else repr(name)
