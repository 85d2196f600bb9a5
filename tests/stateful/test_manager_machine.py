"""Random programs on pool, tables and real K/V tensors; after every act everything must hold.

The exhaustive programs are complete but short; these are long and use what does not fit there:
steps of many sequences at once, chunked prompts, new weights, groups that swap, explosions.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.events import must_happen
from support.fingerprint import TensorCache
from support.world import Seq, World

PROFILE = os.environ.get("MINIPAGED_PROFILE", "quick")
MAX_SEQS, MAX_TOKENS = 5, 12

# Two letters only: prefixes must collide often, or the prefix cache is never in danger.
tokens = st.lists(st.integers(0, 1), min_size=1, max_size=7)
salts = st.sampled_from(["", "", "", "x", None])
picks = st.lists(st.integers(0, MAX_SEQS - 1), min_size=1, max_size=3)
chunks = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=3)


class Manager(RuleBasedStateMachine):
    """The acts of ``World``, with what they need drawn at random."""

    @initialize(
        num_blocks=st.integers(3, 8),
        block_size=st.sampled_from([2, 3, 4, 1]),
        num_host_blocks=st.integers(2, 6),
        window=st.sampled_from([None, None, 1, 2, 4]),
    )
    def start(self, num_blocks, block_size, num_host_blocks, window):
        # Where a window has passed, prefixes may be orphaned, and fewer laws hold.
        self.window = window
        self.world = World(
            num_blocks, block_size, num_host_blocks=num_host_blocks, make_cache=TensorCache
        )

    def teardown(self):
        if hasattr(self, "world"):
            self.world.check_pool_is_whole()

    @precondition(lambda self: len(self.world.live) < MAX_SEQS)
    @rule(prompt=tokens, salt=salts, chunk=st.integers(0, 9))
    def admit(self, prompt, salt, chunk):
        seq = self.world.admit(prompt, salt)
        count = min(chunk, seq.num_pending)
        if count and not self.world.step([(seq, count, count)]):
            self.world.release(seq)
            self.settle(False)

    @precondition(lambda self: len(self.world.live) < MAX_SEQS - 1)
    @rule(prompt=tokens, others=tokens)
    def admit_two_with_one_beginning(self, prompt, others):
        born = [self.world.admit([*prompt, *rest]) for rest in (others, others[::-1])]
        if not self.world.step([(seq, seq.num_pending, seq.num_pending) for seq in born]):
            for seq in born:
                self.world.release(seq)
            self.settle(False)

    @precondition(lambda self: self.world.on_device())
    @rule(picks=picks, chunks=chunks, accept_all=st.booleans())
    def step(self, picks, chunks, accept_all):
        self.settle(self.world.step(self.work(picks, chunks, accept_all)))

    @precondition(lambda self: self.world.on_device())
    @rule(token=st.integers(0, 1), alternate=st.booleans())
    def decode_everybody(self, token, alternate):
        work = []
        for i, seq in enumerate(self.world.on_device()):
            if not seq.num_pending:
                seq.tokens.append((token + i) % 2 if alternate else token)
            work.append((seq, 1, 1))
        self.settle(self.world.step(work))

    @precondition(lambda self: self.world.on_device())
    @rule(picks=picks, chunks=chunks, go=st.sampled_from([False, False, True]))
    def cancel(self, picks, chunks, go):
        """A step is taken back; ``go``: because its sequences are."""
        end = self.world.abort if go else self.world.cancel
        self.settle(end(self.work(picks, chunks, True)))

    @precondition(lambda self: self.world.on_device())
    @rule(picks=picks, chunks=chunks, at_call=st.integers(1, 4))
    def explode(self, picks, chunks, at_call):
        self.world.explode(self.work(picks, chunks, True), at_call)
        self.settle(True)

    @precondition(lambda self: self.world.on_device() and len(self.world.live) < MAX_SEQS)
    @rule(pick=st.integers(0, MAX_SEQS - 1))
    def fork(self, pick):
        self.world.fork(self.pick(pick))

    @precondition(lambda self: self.world.on_device())
    @rule(pick=st.integers(0, MAX_SEQS - 1), back=st.integers(1, 4), again=st.integers(0, 2))
    def truncate(self, pick, back, again):
        """Back by a few tokens; ``again``: and on at once in another direction."""
        seq = self.pick(pick)
        first = seq.table.num_dropped * self.world.block_size
        if seq.table.num_tokens - back >= max(first, 1):
            self.world.truncate(seq, seq.table.num_tokens - back)
            seq.tokens += [again % 2] * again
            self.settle(self.world.step([(seq, again, again)]))

    @precondition(lambda self: self.world.live)
    @rule(pick=st.integers(0, MAX_SEQS - 1), publish=st.booleans(), all_of_them=st.booleans())
    def swap(self, pick, publish, all_of_them):
        """Out or in, alone or with everybody who is at the same place."""
        seq = self.world.live[pick % len(self.world.live)]
        mates = [s for s in self.world.live if s.table.pool is seq.table.pool]
        self.world.swap(mates if all_of_them else [seq], publish=publish)

    @precondition(lambda self: self.world.live)
    @rule(pick=st.integers(0, MAX_SEQS - 1))
    def release(self, pick):
        self.world.release(self.world.live[pick % len(self.world.live)])

    @rule(dice=st.integers(0, 9))
    def forget_prefixes(self, dice):
        if dice == 0 or (dice == 1 and self.window):
            self.world.forget_prefixes(new_weights=dice == 0)

    @invariant()
    def everything_holds(self):
        if hasattr(self, "world"):
            self.world.check()

    def pick(self, pick: int) -> Seq:
        here = self.world.on_device()
        return here[pick % len(here)]

    def work(self, picks, chunks, accept_all):
        """Some sequences, each with a few of its pending tokens, or with new ones."""
        work = []
        for seq in {id(s): s for s in map(self.pick, picks)}.values():
            num_new, num_kept = chunks[len(work) % len(chunks)]
            if not seq.num_pending:
                room = max(1, MAX_TOKENS - len(seq.tokens))
                seq.tokens += [(num_new + i) % 2 for i in range(min(num_new, room))]
            num_new = min(num_new, seq.num_pending)
            work.append((seq, num_new, num_new if accept_all else min(num_kept, num_new)))
        return work

    def settle(self, done):
        """Without room the newest goes; then the window slides, and lost tokens are forgotten."""
        if not done and self.world.on_device():
            self.world.release(self.world.on_device()[-1])
        for seq in self.world.live:
            if seq.num_pending and seq.table.num_tokens:  # else: a prompt that has not begun
                del seq.tokens[seq.table.num_tokens :]
            if self.window and seq.table.pool is self.world.device.pool:
                self.world.drop_before(seq, seq.table.num_tokens - self.window + 1)


def run(max_examples: int, stateful_step_count: int = 40, **more) -> None:
    chosen = settings(max_examples=max_examples, stateful_step_count=stateful_step_count, **more)
    run_state_machine_as_test(Manager, settings=chosen)


@pytest.mark.invariant(1, 2, 3, 4, 5, 7, 8, 9, 13, 14)
@pytest.mark.timeout(3600 if PROFILE == "deep" else 300)
def test_the_manager_keeps_every_law():
    with must_happen(
        "aborted step",
        "adoption of a twin",
        "adoption without a copy",
        "cancelled step",
        "copy of a published block",
        "copy-on-write",
        "eviction",
        "explosion",
        "last sibling writes in place",
        "orphan",
        "prefix hit",
        "refused move",
        "refused step",
        "rejected draft",
        "swap in",
        "swap out",
        "truncation into a published block",
        "window passed a block",
        at_least=10,
    ):
        run(max_examples=3000 if PROFILE == "deep" else 500)
