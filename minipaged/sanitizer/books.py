"""Who holds which block of a pool, told by events; knows blocks and hashes, no tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .slots import BLANK, History
from .state import State, short


class Books(State):
    """The life of every block: handed out, shared, published, freed.

    An event that contradicts the events before it raises ``SanitizerError``.
    """

    def begin_step(self, label: str | None = None) -> None:
        """What follows happens in the next step; ``label`` is told in messages."""
        self.step, self.label, self.planned = self.step + 1, label, self.planned[:0]

    def tokens(self, owner: str, token_ids: Sequence[int], salt: object = None) -> None:
        """What a sequence consists of by now: from here on its slots must hold just that."""
        known = self.histories.get(owner)
        if known is None or known.salt != salt:
            known = self.histories[owner] = History(salt)
        known.update(token_ids)

    def allocated(self, owner: str, block_ids: Iterable[int]) -> None:
        """Blocks were handed out: nobody else holds them, and nothing is in them."""
        for block_id in self.known(block_ids, owner, "is given"):
            if self.holders.get(block_id):
                what = f"is given block {block_id}, but {self.held(block_id)} it"
                self.fail("double-allocation", what, owner, block_id=block_id)
            self.born(block_id)
            self.holders[block_id], self.last_holder[block_id] = [owner], owner
        self.settle()

    def share(
        self, owner: str, block_ids: Iterable[int], prefix_hashes: Sequence[object] | None = None
    ) -> None:
        """One more holder each; with hashes, what was found must be what was published."""
        for i, block_id in enumerate(self.known(block_ids, owner, "shares")):
            if not self.counts[block_id]:
                what = f"shares block {block_id}, which {self.story(block_id)}"
                self.fail("freed-share", what, owner, block_id=block_id)
            if prefix_hashes is not None:
                self._check_found(owner, block_id, prefix_hashes[i])
            self.holders.setdefault(block_id, []).append(owner)

    def fork(self, parent: str, child: str) -> None:
        """The child holds what the parent holds, and has the same history."""
        for names in self.holders.values():
            if parent in names:
                names.append(child)
        if (history := self.histories.get(parent)) is not None:
            self.tokens(child, history.tokens, history.salt)

    def free(self, owner: str, block_ids: Iterable[int]) -> None:
        """One holder less each; the last one leaves a block free, or findable if published."""
        for block_id in self.known(block_ids, owner, "frees"):
            names = self.holders.get(block_id, [])
            if owner not in names:
                why = f"only {self.held(block_id)} it" if names else f"it {self.story(block_id)}"
                self.fail("double-free", f"frees block {block_id}, but {why}", owner)
            names.remove(owner)
            if not names and block_id not in self.published:
                self.died(block_id)
        self.settle()

    def publish(
        self, block_ids: Iterable[int], prefix_hashes: Sequence[object] | None = None
    ) -> None:
        """Make blocks findable: each must be written whole, and one hash means one content."""
        for i, block_id in enumerate(self.known(block_ids, None, "publishes")):
            who, size = self.holder(block_id), self.block_size
            unwritten = np.flatnonzero(self.slots[block_id]["layers"] < self.num_layers)
            if len(unwritten) or not self.counts[block_id]:
                slot = block_id * size + (int(unwritten[0]) if len(unwritten) else 0)
                what = f"publishes block {block_id}, but {self.where(slot)} {self.story(slot=slot)}"
                self.fail("early-publish", what, who, block_id=block_id, slot=slot)
            name = ("block", block_id) if prefix_hashes is None else prefix_hashes[i]
            self.check_named(block_id, name)
            self.published[block_id] = name, self.content(block_id)
            self.named.setdefault(name, (block_id, self.content(block_id)))

    def unpublish(self, block_ids: Iterable[int]) -> None:
        """Blocks are no longer findable; those that nobody holds are free."""
        for block_id in list(block_ids):
            if self.unlist(block_id) is not None and not self.holders.get(block_id):
                self.died(block_id)
        self.settle()

    def check_done(self) -> None:
        """What this step planned to write, it has written, in every layer."""
        flat, last = self.flat, self.num_layers
        for slot in self.planned[flat["layers"][self.planned] != last].tolist():
            done = f"in {flat['layers'][slot]} layers of {last}"
            what = f"planned to write position {flat['position'][slot]} to {self.where(slot)}, and"
            where = {"slot": slot, "position": int(flat["position"][slot])}
            who = str(flat["writer"][slot])
            self.fail("skipped-write", f"{what} did so {done}", who, **where)

    def check_idle(self) -> None:
        """With no sequence left, no block is held."""
        for block_id, names in self.holders.items():
            if names:
                what = f"still holds block {block_id}, allocated at step {self.since[block_id]}"
                self.fail("leak", what, names[0], block_id=block_id)

    # --- what events are made of ---------------------------------------------------------------

    def unlist(self, block_id: int) -> object:
        """A block can no longer be found; returns the hash that it had, if any."""
        name, _ = self.published.pop(block_id, (None, 0))
        if self.named.get(name, (-1, 0))[0] == block_id:
            del self.named[name]
        return name

    def born(self, block_id: int) -> object:
        """A block was handed out; ``settle`` takes away what is in it. Returns the hash it had."""
        name = self.unlist(block_id)
        self.counts[block_id], self.since[block_id] = True, self.step
        self.generation[block_id] += 1
        self.dead.add(block_id)
        return name

    def died(self, block_id: int) -> None:
        """Nobody holds a block any more, and nobody can find it."""
        self.counts[block_id], self.since[block_id] = False, self.step
        self.dead.add(block_id)

    def settle(self, only: Iterable[int] | None = None) -> list[int]:
        """Forget what was in the blocks that were freed or handed out; returns those blocks."""
        done = sorted(self.dead if only is None else self.dead.intersection(only))
        if done:
            self.slots[done] = BLANK
            self.dead.difference_update(done)
        return done

    def forget(self, slots: Sequence[int]) -> None:
        """What was in some slots is gone."""
        self.flat[list(slots)] = BLANK

    def check_named(self, block_id: int, name: object) -> None:
        """No findable block has this hash and another content."""
        other, content = self.named.get(name, (block_id, 0))
        told = content and self.content(block_id)
        if other != block_id and told and content != self.content(block_id):
            what = f"publishes block {block_id} under hash {short(name)}, under which block {other}"
            who = self.holder(block_id)
            self.fail("stale-hash", f"{what} has other content", who, block_id=block_id)

    def _check_found(self, owner: str, block_id: int, prefix_hash: object) -> None:
        found = self.published.get(block_id)
        if found != (prefix_hash, self.content(block_id)):
            now = "is not published" if found is None else f"is published as {short(found[0])}"
            if found is not None and found[0] == prefix_hash:
                now = "was written again since"
            what = f"finds block {block_id} by hash {short(prefix_hash)}, but it {now}"
            self.fail("stale-hash", what, owner, block_id=block_id)
