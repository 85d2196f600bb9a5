"""Who computes how many tokens this step, and who must make room; knows blocks, no tensors.

One rule serves prefill, chunked prefill, decode and recomputation: a sequence has tokens whose K/V
are missing, and gets as many of them as the step's budget allows.

    1. running sequences share the token budget; single tokens (decodes) before long prompts, so
       that no decode waits for a prompt, but the oldest always gets at least one token;
    2. in order of age they reserve slots; if the pool is short, the newest is preempted;
    3. if nobody was preempted, waiting ones are admitted strictly in order of age.

So the oldest always progresses, and nobody is overtaken for ever. Paper: sections 4.3 and 4.5.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from minipaged.core import BlockPool, Copy, OutOfBlocks, block_hash, relocate, reserve

from .sequence import Sequence


@dataclass(slots=True)
class Step:
    """What one step does, in this order: swap, copy, compute."""

    work: list[tuple[Sequence, int]] = field(default_factory=list)  # and its number of new tokens
    swaps_out: list[Copy] = field(default_factory=list)  # device block -> host block
    swaps_in: list[Copy] = field(default_factory=list)  # host block -> device block
    copies: list[Copy] = field(default_factory=list)  # copy-on-write
    preempted: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)  # swapped in

    @property
    def is_empty(self) -> bool:
        """Nothing to compute and nothing to move."""
        return not (self.work or self.swaps_out or self.swaps_in)


class Scheduler:
    """Continuous batching over one pool.

    Args:
        pool: the device's blocks.
        block_size: tokens per block.
        max_num_seqs: sequences computed in one step.
        max_num_batched_tokens: tokens computed in one step.
        host_pool: where preempted sequences are swapped to; None: they are recomputed.
        window: positions a query sees; blocks wholly before it are given back.
        watermark: share of the pool that new requests leave free while others run, so that
            admitting one does not preempt the next moment.
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        *,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        host_pool: BlockPool | None = None,
        window: int | None = None,
        watermark: float = 0.01,
    ):
        self.pool, self.host_pool, self.block_size = pool, host_pool, block_size
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.window = window
        self.headroom = int(watermark * pool.num_blocks)
        self.waiting: list[Sequence] = []  # both sorted by age
        self.running: list[Sequence] = []
        self.num_preemptions = 0

    # --- requests come and go ------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence that holds no blocks."""
        insort(self.waiting, sequence, key=lambda s: s.order)

    def join(self, sequence: Sequence) -> None:
        """Let a fork of a running sequence run too; it brings its blocks with it."""
        insort(self.running, sequence, key=lambda s: s.order)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, in whatever state, and give its blocks back."""
        for queue in (self.running, self.waiting):
            if sequence in queue:
                queue.remove(sequence)
        sequence.table.release()

    @property
    def sequences(self) -> list[Sequence]:
        """Everyone unfinished, running first."""
        return self.running + self.waiting

    # --- one step ------------------------------------------------------------------------------

    def schedule(self) -> Step:
        """Decide one step and reserve its slots."""
        step = Step()
        try:
            work, budget = self._share_budget()
            self._reserve(work, step)
            if not step.preempted:
                self._admit(step, budget)
            if step.is_empty and not step.preempted and self.waiting and self.running:
                self._preempt(step)  # beams of several requests keep each other's mates out
        except BaseException:
            self.rollback(step)
            raise
        return step

    def commit(self, step: Step) -> None:
        """The step was computed: publish what became full, drop what a window has passed."""
        # Who came back only to wait for mates is published too, or would share less than they do.
        for sequence in dict.fromkeys([*(s for s, _ in step.work), *step.resumed]):
            sequence.table.commit(sequence.token_ids)
            if self.window is not None:
                # One position more than the next query sees, so that ``retry`` can step back.
                sequence.table.drop_before(sequence.table.num_tokens - self.window)

    def rollback(self, step: Step) -> None:
        """The step failed: nothing it would have written is kept, every sequence can go on."""
        for sequence in self.running:
            sequence.table.cancel()
        # Whether their bytes arrived is unknown; their tokens are not, so recompute.
        for sequence in step.resumed + (step.preempted if step.swaps_out else []):
            if sequence in self.running:
                self.running.remove(sequence)
                self.add(sequence)
            sequence.table.release()
            sequence.table.pool = self.pool

    def retry(self) -> None:
        """Sampling failed: whoever got no token computes the last one again, to be sampled then.

        So do siblings that got theirs: who shares a block that is written must be equally long, or
        a step that is rolled back would leave the longer one with the shorter one's slots.
        """
        stuck = {(s.request, s.table.block_ids[-1]) for s in self.running if not s.num_remaining}
        for sequence in self.running:
            if (sequence.request, *sequence.table.block_ids[-1:]) in stuck:
                sequence.table.truncate(sequence.table.num_tokens - 1)

    def check(self) -> None:
        """Raise ``AssertionError`` unless queues, tables and pools agree."""
        for queue in (self.waiting, self.running):
            assert queue == sorted(queue, key=lambda s: s.order), "a queue is out of order"
        assert not set(map(id, self.waiting)) & set(map(id, self.running))
        for pool in filter(None, (self.pool, self.host_pool)):
            pool.check()
            tables = [s.table for s in self.sequences if s.table.pool is pool]
            held = [0] * pool.num_blocks
            for table in tables:
                table.check()
                for block_id in table.block_ids[table.num_dropped :]:
                    held[block_id] += 1
            assert held == pool.ref_count, f"holders {held}, ref_counts {pool.ref_count}"
        for sequence in self.waiting:
            assert not sequence.table.block_ids or sequence.table.pool is self.host_pool

    # --- 1. the token budget -------------------------------------------------------------------

    def _share_budget(self) -> tuple[list[tuple[Sequence, int]], int]:
        ready = [s for s in self.running if s.num_remaining]
        if not ready:
            return [], self.max_num_batched_tokens
        singles = [s for s in ready[1:] if s.num_remaining == 1]
        others = [s for s in ready[1:] if s.num_remaining > 1]
        budget, work = self.max_num_batched_tokens, []
        for sequence in (ready[:1] + singles + others)[: self.max_num_seqs]:
            most = max(1, budget - len(singles)) if sequence is ready[0] else budget
            count = min(sequence.num_remaining, most)
            if count == 0:
                break
            work.append((sequence, count))
            budget -= count
        if others:
            work.sort(key=lambda item: item[0].order)  # memory is handed out by age
        return work, budget

    # --- 2. slots for the running --------------------------------------------------------------

    def _reserve(self, work: list[tuple[Sequence, int]], step: Step) -> None:
        try:  # nearly always there is room for all
            step.copies = reserve([s.table for s, _ in work], [n for _, n in work])
            step.work = work
            return
        except OutOfBlocks:
            pass
        for unit in _units(work):
            while unit[0][0] in self.running:
                try:
                    step.copies += reserve([s.table for s, _ in unit], [n for _, n in unit])
                    step.work += unit
                    break
                except OutOfBlocks:
                    self._preempt(step)

    def _preempt(self, step: Step) -> None:
        """Take the newest running sequence (all beams of it, if it is one) out of the pool."""
        newest = self.running[-1]
        victims = self._mates(newest, self.running)
        # Beams that are not all here would come back with less to share than they had, and nobody
        # must go where he could not come back from.
        whole = not newest.request.is_beam or len(victims) == len(newest.request.sequences)
        returns = self._num_needed(victims, []) <= self.pool.num_blocks
        if self.host_pool is not None and whole and returns:
            with suppress(OutOfBlocks):  # the host is full too: recompute, fail nobody
                step.swaps_out += relocate([s.table for s in victims], self.host_pool)
        for sequence in victims:
            if sequence.table.pool is self.pool:
                sequence.table.release()
            self.running.remove(sequence)
            self.add(sequence)
            step.preempted.append(sequence)
        newest.request.num_preemptions += 1
        self.num_preemptions += 1

    # --- 3. admission --------------------------------------------------------------------------

    def _admit(self, step: Step, budget: int) -> None:
        """Let waiting sequences in, oldest first, as long as all of their tokens will fit.

        The first that does not fit ends it, so a large one is not overtaken by small ones. Budget
        is left only if the running ones are computed whole, so no block is promised to them.
        """
        if not self.waiting:
            return
        in_flight = self._prefixes_in_flight()
        for sequence in list(self.waiting):
            if budget == 0 or len(step.work) >= self.max_num_seqs:
                return
            if sequence not in self.waiting:
                continue  # came back with its mates
            found = self._find_prefix(sequence)
            if self._awaits_prefix(sequence, len(found), in_flight):
                continue  # in a later step it is found instead of computed twice
            unit = self._mates(sequence, self.waiting) if sequence.table.block_ids else [sequence]
            if self._num_needed(unit, found) > self.pool.num_free:
                return
            self._enter(unit, step)
            ready = [member for member in unit if member.num_remaining]
            for member in ready[: self.max_num_seqs - len(step.work)]:
                count = min(member.num_remaining, budget)
                if count:
                    step.copies += member.table.reserve(count)
                    step.work.append((member, count))
                    budget -= count
            in_flight = in_flight.union(*map(self._hashes_to_come, unit))

    def _enter(self, unit: list[Sequence], step: Step) -> None:
        """Move sequences from waiting to running: swapped in, or with the prefix they can adopt."""
        if unit[0].table.block_ids:
            step.swaps_in += relocate([s.table for s in unit], self.pool)
            step.resumed += unit
        else:
            (sequence,) = unit
            sequence.table.pool = self.pool
            found = sequence.table.match_prefix(sequence.token_ids) if self._reads(sequence) else 0
            if sequence.request.num_preemptions == 0:
                sequence.request.num_cached_tokens = found
        for sequence in unit:
            self.waiting.remove(sequence)
            self.join(sequence)

    def _num_needed(self, unit: list[Sequence], found: list[int]) -> int:
        """Free blocks that admitting these takes, until all their present tokens are computed."""
        blocks = sum(s.table.num_missing_blocks(s.num_remaining) for s in unit)
        if unit[0].table.block_ids:  # swapped: all blocks come back, shared tails are copied
            held = {b for s in unit for b in s.table.block_ids[s.table.num_dropped :]}
            tails = [s.table.block_ids[-1] for s in unit if s.table.num_tokens % self.block_size]
            return len(held) + blocks + len(tails) - len(set(tails))
        revived = sum(self.pool.is_free(b) for b in found)  # a hit may itself be a free block
        is_new = unit[0].request.num_preemptions == 0
        headroom = self.headroom if is_new and self.running else 0
        return blocks - len(found) + revived + headroom

    def _find_prefix(self, sequence: Sequence) -> list[int]:
        if sequence.table.block_ids or not self._reads(sequence):
            return []
        usable = (len(sequence.token_ids) - 1) // self.block_size
        return self.pool.lookup_chain(self._hashes(sequence)[:usable])

    def _reads(self, sequence: Sequence) -> bool:
        """Prompt logprobs need the logits of every prompt token, so nothing may be skipped."""
        return getattr(sequence.request.params, "prompt_logprobs", None) is None

    def _awaits_prefix(self, sequence: Sequence, num_found: int, in_flight: set[bytes]) -> bool:
        if not in_flight or sequence.table.block_ids or not self._reads(sequence):
            return False
        hashes = self._hashes(sequence)[: (len(sequence.token_ids) - 1) // self.block_size]
        return num_found < len(hashes) and hashes[num_found] in in_flight

    def _prefixes_in_flight(self) -> set[bytes]:
        return set().union(*(self._hashes_to_come(s) for s in self.running if s.num_remaining))

    def _hashes_to_come(self, sequence: Sequence) -> set[bytes]:
        """The prefixes that this sequence will publish when its present tokens are computed."""
        num_published = sequence.table.num_tokens // self.block_size
        if sequence.num_remaining == 1 and len(sequence.token_ids) % self.block_size:
            return set()
        return set(self._hashes(sequence)[num_published:])

    def _hashes(self, sequence: Sequence) -> list[bytes]:
        parent, size = sequence.request.root, self.block_size
        if parent is None:
            return []
        for i in range(len(sequence.hashes), len(sequence.token_ids) // size):
            parent = sequence.hashes[-1] if i else parent
            tokens = sequence.token_ids[i * size : (i + 1) * size]
            sequence.hashes.append(block_hash(parent, tokens))
        return sequence.hashes

    @staticmethod
    def _mates(sequence: Sequence, among: list[Sequence]) -> list[Sequence]:
        """Those who come and go together: all beams of one request; a sample is alone."""
        if not sequence.request.is_beam:
            return [sequence]
        return [s for s in among if s.request is sequence.request]


def _units(work: list[tuple[Sequence, int]]) -> Iterator[list[tuple[Sequence, int]]]:
    """The work of one step by who comes and goes together."""
    key = lambda item: item[0].request.order if item[0].request.is_beam else item[0].order  # noqa: E731
    return (list(group) for _, group in groupby(work, key=key))
