"""An engine over the shadow model and everything one can do to it; each act checks its laws.

``ShadowLLM`` looks at slots. This file looks at decisions: what a step may contain, who may enter
before whom, that something always goes on, and what every request gets in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from minipaged.core import InvalidRequest
from minipaged.engine.intake import Params
from minipaged.engine.scheduler import Scheduler, Step
from minipaged.engine.sequence import Request
from minipaged.engine.sequence import Sequence as Seq

from .engine_reference import Expected, expected
from .engine_shadow import Broken, ShadowLLM, name
from .events import count

LONG = 3000  # steps; nothing that is tested here takes so many


class EngineWorld:
    """One ``ShadowLLM``, its requests, and what they must get."""

    def __init__(self, num_blocks: int, block_size: int, **options) -> None:
        self.llm = ShadowLLM(num_blocks=num_blocks, block_size=block_size, **options)
        self.expected: dict[Request, Expected] = {}  # of the unfinished
        self.scheduler: Scheduler = self.llm.scheduler
        self._schedule, self.scheduler.schedule = self.scheduler.schedule, self.schedule
        self.num_evictions = 0
        self._watch_adoptions()

    # --- acts ----------------------------------------------------------------------------------

    def _watch_adoptions(self) -> None:
        """Count the blocks that a commit exchanges for the same prefix elsewhere."""
        commit = self.scheduler.commit

        def counting(step: Step) -> None:
            before = [(s, list(s.table.block_ids)) for s, _ in step.work]
            commit(step)
            for s, ids in before:
                changed = [new for old, new in zip(ids, s.table.block_ids) if old != new]
                count("adoption", sum(new >= 0 for new in changed))
                count("window passed a block", changed.count(-1))

        self.scheduler.commit = counting  # type: ignore[method-assign]

    def add(self, prompt: Sequence[int], params: Params, salt: str | None = None) -> Request | None:
        """A new request, or None where none could ever be served."""
        before = self.llm.scheduler.sequences
        try:
            request = self.llm.add(prompt, params, salt=salt)
        except InvalidRequest:
            assert not self.fits_alone(len(prompt), params), "refused although it would fit"
            assert self.llm.scheduler.sequences == before
            count("refusal")
            return None
        assert self.fits_alone(len(prompt), params), "accepted although it cannot fit"
        request.inbox = []
        self.expected[request] = expected(request)
        return request

    def fits_alone(self, num_prompt: int, params: Params) -> bool:
        """Counted block by block: the last token takes no slot, beams share the prompt's blocks."""
        size, width = self.llm.block_size, getattr(params, "beam_width", 1)
        num_tokens = num_prompt + (params.max_tokens or 1) - 1
        blocks = range(-(-num_tokens // size))
        sharing = self.llm.prefix_caching and width > 1
        needed = sum(1 if sharing and (i + 1) * size <= num_prompt else width for i in blocks)
        return needed <= self.llm.pool.num_blocks

    def step(self) -> Step | None:
        """One step of the engine; returns the plan."""
        self.plan: Step | None = None
        unfinished = self.llm.has_unfinished
        self.llm.step()
        assert (self.plan is not None) or not unfinished
        self.settle()
        return self.plan

    def break_model(self, num_written: int, error: type[BaseException] = Broken) -> None:
        """The model fails with some of the step's K and V written."""
        before = {s: (s.table.num_tokens, list(s.token_ids)) for s in self.scheduler.running}
        self.llm.shadow.fail_after, self.llm.shadow.error = num_written, error
        try:
            self.llm.step()
        except error:
            count("rollback")
            for s in self.scheduler.running:
                if s in before:
                    assert (s.table.num_tokens, s.token_ids) == before[s], f"{name(s)} was changed"
        self.llm.shadow.fail_after = None
        self.settle()

    def break_sampling(self, fuse: int | None) -> None:
        """The logits fail, or the tokenizer fails at its ``fuse``-th text from now."""
        if fuse is None:
            self.llm.shadow.logits_fail = True
        else:
            self.llm.words.fuse = fuse
        try:
            self.llm.step()
        except Broken:
            count("retry")
        self.llm.shadow.logits_fail, self.llm.words.fuse = False, None
        self.settle()

    def break_allocation(self, at_call: int) -> None:
        """The pool fails in the middle of planning a step."""
        pool, calls = self.llm.pool, 0
        sound = pool.allocate

        def sabotaged(num_blocks: int = 1) -> list[int]:
            nonlocal calls
            calls += 1
            if calls == at_call:
                raise Broken("allocator")
            return sound(num_blocks)

        pool.allocate = sabotaged  # type: ignore[method-assign]
        try:
            self.llm.step()
        except Broken:
            count("broken plan")
        finally:
            del pool.allocate
        self.settle()

    def abort(self, request: Request) -> None:
        """End a request in whatever state."""
        held = {b for s in request.sequences for b in s.table.block_ids if b >= 0}
        count("abort of a running one", bool(held))
        self.llm.abort(request.request_id)
        self.settle()

    def forget_prefixes(self) -> None:
        self.llm.pool.forget_prefixes()
        self.settle()

    def drain(self) -> None:
        """Until nobody is left, which must happen."""
        for _ in range(LONG):
            if not self.llm.has_unfinished:
                break
            self.step()
        assert not self.llm.has_unfinished, "this never ends"
        assert not self.expected
        self.llm.check_idle()

    # --- laws of results -----------------------------------------------------------------------

    def settle(self) -> None:
        """After every act: slots and books are right, and so is what everybody has got by now."""
        self.llm.check()
        count("eviction", self.llm.pool.num_evictions - self.num_evictions)
        self.num_evictions = self.llm.pool.num_evictions
        for request in list(self.expected):
            self._check_results(request)
            done = not request.unfinished
            assert done != (request.request_id in self.llm._requests)
            if done:
                del self.expected[request]

    def _check_results(self, request: Request) -> None:
        (wanted, prompt), known = self.expected[request], request.prompt_logprobs
        if known is not None:
            assert known == prompt[: len(known)], "prompt logprobs"
        for sequence in request.sequences:
            news = [d for d in request.inbox or () if d.index == sequence.index]
            reasons = [d.finish_reason for d in news if d.finish_reason]
            ended = [sequence.finish_reason] if sequence.finish_reason else []
            assert reasons == ended, f"{name(sequence)} ended as {ended}, it was told {reasons}"
            if request.is_beam and sequence.finish_reason in (None, "abort"):
                continue  # what a beam has so far may still lose
            told = [t for d in news for t in d.token_ids], "".join(d.text for d in news)
            # Without a stream its text is to be made anew, after a failure of the tokenizer.
            text = sequence.stream.text if sequence.stream else told[1]
            got = sequence.output_token_ids, text
            assert told == got, f"{name(sequence)} was told {told}, it has {got}"
            answer = wanted[sequence.index]
            assert got[0] == answer.token_ids[: len(got[0])], f"{got[0]}, expected {answer}"
            whole = self.llm.words.decode(answer.token_ids)
            # What was held back, because a stop string might have come of it, ends an aborted one.
            assert (whole if ended else answer.text).startswith(got[1])
            if sequence.finish_reason not in (None, "abort"):
                assert (*got, sequence.finish_reason) == answer
        if not request.unfinished and all(s.finish_reason != "abort" for s in request.sequences):
            assert len(request.sequences) == len(wanted)
            assert known is None or len(known) == len(request.prompt_token_ids)

    # --- laws of a step ------------------------------------------------------------------------

    def schedule(self) -> Step:
        """What the scheduler decides, judged."""
        waiting, running = list(self.scheduler.waiting), list(self.scheduler.running)
        missing = {s: s.num_remaining for s in running + waiting}
        bare = {s for s in waiting if not s.table.block_ids}
        self.plan = step = self._schedule()
        entered = [s for s in self.scheduler.running if s in waiting]
        self._check_plan(step, missing)
        self._check_running(step, [s for s in running if missing[s]])
        self._check_preempted(step, entered)
        self._check_entered(step, entered, [s for s in entered if s in bare])
        if waiting or running:
            assert step.work or step.preempted, "nothing goes on"
        count("copy-on-write", len(step.copies))
        return step

    def _check_plan(self, step: Step, missing: dict[Seq, int]) -> None:
        counts = [n for _, n in step.work]
        assert len({id(s) for s, _ in step.work}) == len(counts) <= self.scheduler.max_num_seqs
        assert sum(counts) <= self.scheduler.max_num_batched_tokens
        for s, n in step.work:
            assert s in self.scheduler.running
            assert s.finish_reason is None
            assert 1 <= n <= s.num_remaining
            assert s.table.num_reserved == s.table.num_tokens + n, "planned is not reserved"
            count("chunk", n < s.num_remaining)
        destinations = [c.destination for c in step.copies]
        assert not {c.source for c in step.copies} & set(destinations), "copies chain"
        assert len(set(destinations)) == len(destinations)

    def _check_running(self, step: Step, ready: list[Seq]) -> None:
        """The oldest goes on, and no decode waits for a prompt."""
        if not ready:
            return
        assert ready[0] in [s for s, _ in step.work] or ready[0] in step.preempted
        singles = [s for s in ready[1:] if s.num_remaining == 1 and s not in step.preempted]
        room = min(self.scheduler.max_num_seqs, self.scheduler.max_num_batched_tokens) - 1
        planned = [s for s, _ in step.work]
        assert all(s in planned for s in singles[:room]), "a decode waits"

    def _check_preempted(self, step: Step, entered: list[Seq]) -> None:
        if not step.preempted:
            assert not step.swaps_out
            return
        assert not entered, "somebody enters while another must leave"
        oldest = min(s.order for s in step.preempted)
        assert all(s.order < oldest for s in self.scheduler.running), "not the newest had to leave"
        for s in step.preempted:
            assert s in self.scheduler.waiting
            mates = [m for m in self.scheduler.running if m.request is s.request]
            assert not (s.request.is_beam and mates), "beams were torn apart"
            count("preemption by swap" if s.table.block_ids else "preemption by recompute")

    def _check_entered(self, step: Step, entered: list[Seq], bare: list[Seq]) -> None:
        if not entered:
            return
        count("swap in", len(step.swaps_in))
        newest = max(s.order for s in entered)
        for s in self.scheduler.waiting:
            if s.order < newest:
                assert self._awaits(s), f"{name(s)} was overtaken"
                count("wait for a prefix")
        size = self.llm.block_size
        running = self.scheduler.running
        promised = sum(-(-len(s.token_ids) // size) - len(s.table.block_ids) for s in running)
        assert promised <= self.llm.pool.num_free, "entered without room for its tokens"
        for s in bare:
            count("prefix hit", bool(s.table.num_tokens))
            assert not self._computed_elsewhere(s, s.table.num_tokens // size), "computed twice"

    def _awaits(self, s: Seq) -> bool:
        """Whether somebody computes a block that ``s`` could use.

        Which one it lacked when it was passed over is not known any more: who entered after it may
        have taken the blocks that it had found.
        """
        ends = range(self.llm.block_size, len(s.token_ids), self.llm.block_size)
        return any(
            self._computes(other, s, end) for other in self.scheduler.running for end in ends
        )

    def _computed_elsewhere(self, s: Seq, num_found: int) -> bool:
        """Whether an older running sequence will publish the next block that ``s`` needs."""
        end = (num_found + 1) * self.llm.block_size
        older = [other for other in self.scheduler.running if other.order < s.order]
        return end < len(s.token_ids) and any(self._computes(other, s, end) for other in older)

    def _computes(self, other: Seq, s: Seq, end: int) -> bool:
        """Whether ``other`` will publish the first ``end`` tokens, and ``s`` may use them."""
        return bool(
            other.num_remaining
            and s.request.root is not None
            and not self._wants_every_logit(s)
            and other.table.num_tokens < end <= len(other.token_ids)
            and other.request.root == s.request.root
            and other.token_ids[:end] == s.token_ids[:end]
        )

    @staticmethod
    def _wants_every_logit(s: Seq) -> bool:
        return getattr(s.request.params, "prompt_logprobs", None) is not None
