"""Judges a scheduler over its pool: what a step may contain, who may wait, and what slots hold."""

from __future__ import annotations

from dataclasses import replace

from .judge import Broken, Seq, brief
from .protocol import Plan
from .scheduler_laws import WaitingLaws, Work
from .shadow import brief_key

NEVER_SEEN = 2
"""A token that no drawn prompt holds: nothing is found, so every block must be handed out."""


class SchedulerJudge(WaitingLaws):
    """One method for each act that a program can name."""

    # --- acts ----------------------------------------------------------------------------------

    def add(self, prompt: tuple[int, ...], max_tokens: int, key: str | None, samples: int) -> None:
        """A request arrives; what could never fit must be refused, and nothing else."""
        key = self.known_key(key)
        samples = max(1, samples) if self.contract.samples else 1
        fits = self._fits(len(prompt), max_tokens)
        if not fits and not self.contract.refuses_impossible:
            return
        seq = Seq(
            self.new_name(),
            key,
            list(prompt),
            self.names.chain(key, prompt),
            num_prompt=len(prompt),
            max_tokens=max_tokens,
            num_samples=samples,
            order=(self.num_born, 0),
        )
        more = f", {brief_key(key)}" if key != "" else ""
        more += f", {samples} samples" if samples > 1 else ""
        self.tell(f"add {seq.name} {brief(seq.tokens)}, {max_tokens} to generate{more}")
        refused = self._add(seq)
        self.require(
            "admission",
            refused is None or not fits,
            lambda: f"{seq.name} fits an empty pool, but was refused: {refused}",
        )
        self.require(
            "admission",
            refused is not None or fits,
            lambda: (
                f"{len(prompt)} tokens and {max_tokens} to generate were accepted, "
                f"the pool has {self.capacity} blocks of {self.size.block_size}"
            ),
        )
        if refused is None:
            self.live[seq.name] = seq
            self.settle()

    def step(self, times: int) -> None:
        """Some steps."""
        for _ in range(times):
            if not self.live:
                return
            self._step()

    def stream(self, prompt: tuple[int, ...], times: int) -> None:
        """A new small request arrives before each step."""
        for i in range(times):
            self.add(((*prompt, i % 2, i // 2 % 2, i // 4 % 2)), 1, "", 1)
            self._step()

    def crowd(self, count: int, length: int, max_tokens: int) -> None:
        """Many small requests at once, each with a beginning of its own; few for a tiny pool."""
        for i in range(min(count, self.capacity // 4)):
            own = NEVER_SEEN + 1 + self.num_born
            self.add((own, *(i % 2,) * (length - 1)), max_tokens, "", 1)

    def abort(self, number: int, away: bool = False) -> None:
        """Somebody goes, in whatever state; ``away``: who had to leave, if anybody had to."""
        if not self.live or not self.has("abort"):
            return
        seqs = list(self.live.values())
        if away:
            gone = [seq for seq in seqs if seq.preempted and seq.name not in self.tables]
            seqs = [seq for seq in seqs if seq.host] or gone or seqs
        seq = seqs[number % len(seqs)]
        self.tell(f"abort {seq.name}")
        self.call("abort", seq.name)
        del self.live[seq.name]
        self.settle()

    def reset(self) -> None:
        """All prefixes are forgotten; what runs goes on."""
        if not self.has("reset"):
            return
        self.tell("reset")
        if self.call("reset") is False:
            self.require("reset", self.tables, "reset was refused, though nobody is running")
            return self.settle()
        self.cache.reset()
        for seq in self.live.values():
            seq.sure = seq.name not in self.tables and not seq.host
        return self.settle()

    def fail(self, share: int) -> None:
        """A step is planned and half written, and then the model fails."""
        if not self.has("rollback") or not self.live:
            return
        self.tell("a step that fails")
        plan, tables, work, _ = self._plan()
        for seq, start, stop in work:
            for position in range(start, stop - share % 2):
                self._write_one(seq, position, tables)
        # Whether the bytes of a failed step's swaps arrived, nobody knows.
        self.host.blank({int(b) for _, b in plan.swaps_out})
        self.cells.blank({int(b) for _, b in plan.swaps_in})
        self.call("rollback")
        after, hosts = self.look()[0], self._host_tables()
        self.num_idle = 0
        for seq in self.live.values():
            if seq.name not in after and not (seq.host and seq.name in hosts):
                self._forget_progress(seq)
                seq.unsure = seq.name in tables
        self.settle()

    def end(self) -> None:
        """Everybody is served within a bounded number of steps; then the pool is whole."""
        self.tell("until all are finished")
        most = 40 + 6 * sum(len(s.tokens) + s.max_tokens for s in self.live.values())
        for _ in range(most):
            if not self.live:
                break
            self._step()
        self.require(
            "progress", not self.live, lambda: f"unfinished after {most} steps: {[*self.live]}"
        )
        self._check_whole()
        slots = self.capacity * self.size.block_size
        if self.contract.fills_pool:
            self.add((NEVER_SEEN,) * slots, 1, "", 1)
            for _ in range(slots + 2):
                if self.live:
                    self._step()
            self.require(
                "capacity", not self.live, f"{slots} tokens do not get through an empty pool"
            )
            self._check_whole()

    # --- a step --------------------------------------------------------------------------------

    def unsampled(self, number: int) -> None:
        """A step is computed, but then sampling fails, for all or after ``number``; try again."""
        if self.has("retry") and self.live:
            self.tell("a step after which sampling fails:")
            self._step(most=number)

    def _step(self, *, most: int | None = None) -> None:
        _, tables, work, _ = self._plan()
        self.write(work, tables)
        tokens = {}
        for seq, _, stop in work:
            seq.computed = stop
            if stop == len(seq.tokens) and (most is None or len(tokens) < most):
                tokens[seq.name] = self._next_tokens(seq)
        self._slide(work)
        told = self.call("feed", {name: list(new) for name, new in tokens.items()})
        try:
            finished = {str(name) for name in told}
        except TypeError:
            raise Broken("finishing", f"feed returned {told!r}, not the finished ones") from None
        published = [(seq, tables[seq.name]) for seq, _, _ in work]
        self._append(tokens)
        due = {
            name
            for name, seq in self.live.items()
            if len(seq.tokens) - seq.num_prompt >= seq.max_tokens
        }
        self.require(
            "finishing",
            finished == due,
            lambda: f"finished are {sorted(finished)}, should be {sorted(due)}",
        )
        gone = {name: self.live.pop(name) for name in due}
        after = self.look()[0]
        for seq, table in published:
            kept, now = self._kept(seq, table), after.get(seq.name, [])
            if seq.name not in gone and now:
                kept = [a if a >= 0 else b for a, b in zip(now, kept)]
            self.publish(seq, kept)
        if most is not None:
            self._retry(after)
        self.settle()

    def _retry(self, tables: dict[str, list[int]]) -> None:
        """Who got no token steps back by one, and so do siblings that share the block."""
        self.call("retry")
        ends = {(s.order[0], tables[s.name][-1]) for s in self.live.values() if not s.left}
        for seq in self.live.values():
            if seq.name in tables and (seq.order[0], tables[seq.name][-1]) in ends:
                seq.computed -= 1
                seq.published = min(seq.published, seq.computed // self.size.block_size)

    def _slide(self, work: Work) -> None:
        """A window passes what no later query sees."""
        if self.size.window:
            self.windowed = True
            for seq, _, _ in work:
                seq.first = max(seq.first, seq.computed - self.size.window)

    def _kept(self, seq: Seq, table: list[int]) -> list[int]:
        """Of blocks that are given back at once: a twin's may hold the prefix, the own be blank."""
        if not self.contract.deduplicates:
            return table
        ends = self.cache.ends(seq.chain, seq.computed)
        found = [min(self.cache.blocks.get(number, {b})) for number, b in zip(ends, table)]
        return [f if b >= 0 else b for f, b in zip(found, table)]

    def _plan(self) -> tuple[Plan, dict[str, list[int]], Work, list]:
        """One plan, with all the laws of a plan; blocks have changed hands when it returns."""
        before = self.tables
        running = [s for s in self.live.values() if s.name in before]
        waiting = [s for s in self.live.values() if s.name not in before]
        self.tell("step")
        plan = self.call("step")
        sane = isinstance(plan, Plan)
        self.require("a plan", sane, lambda: f"step returned {type(plan).__name__}, not a Plan")
        tables, num_free = self.look()
        hosts = self._host_tables()
        work = self._read_work(plan)
        told = ", ".join(f"{s.name}[{a}:{b}] in {tables.get(s.name)}" for s, a, b in work)
        self.story[-1] += f": {told or 'nothing'}"
        sizes = self.size.num_blocks, self.size.num_host_blocks
        self._swap_out(self.pairs(plan.swaps_out, *sizes), hosts)
        copies = self.pairs(plan.copies, sizes[0], sizes[0])
        if copies:
            self.story[-1] += f", copies {copies}"
        gone = [s for s in running if s.name not in tables]
        self._leave(gone)
        came = [s for s in waiting if s.name in tables]
        resumed = [s for s in came if s.host]
        starts = {s.name: a for s, a, _ in work}
        self._change_hands(before, tables, came, starts, plan, copies)
        for seq in came:
            if not seq.host:
                self._enter(seq, starts)
        for seq in resumed:
            seq.host = False
            self.read(seq, tables[seq.name], seq.computed)
        self.cache.use(self.held(tables))
        self._check_plan(work, tables)
        self.check_waits(work, running, waiting, tables, num_free, gone, came)
        self.tables, self.num_free = tables, num_free
        return plan, tables, work, copies

    def _read_work(self, plan: Plan) -> Work:
        try:
            items = [(str(name), int(a), int(b)) for name, a, b in plan.work]
        except (TypeError, ValueError):
            raise Broken("a plan", f"the work of a step is {plan.work!r}") from None
        for name, _, _ in items:
            self.require("a plan", name in self.live, lambda n=name: f"{n} is not to be computed")
        names = [name for name, _, _ in items]
        self.require("a plan", len(set(names)) == len(names), lambda: f"twice in one step: {names}")
        return [(self.live[name], a, b) for name, a, b in items]

    def _leave(self, gone: list[Seq]) -> None:
        for seq in gone:
            self.story[-1] += f", {seq.name} is preempted"
            seq.preempted = True
            if not seq.host:
                self._forget_progress(seq)

    def _forget_progress(self, seq: Seq) -> None:
        seq.computed = seq.first = seq.published = seq.waits = 0
        seq.host = False
        seq.sure = True

    def _swap_out(self, pairs: list[tuple[int, int]], hosts: dict[str, list[int]]) -> None:
        read = [(b, self.cells.block(a)) for a, b in pairs]
        for block_id, cells in read:
            self.host.put(block_id, cells)
        for seq in self.live.values():
            if seq.name in hosts and not seq.host and seq.name in self.tables:
                seq.host, seq.published = True, 0
                self.read(seq, hosts[seq.name], seq.computed, self.host)

    def _change_hands(
        self, before: dict, tables: dict, came: list[Seq], starts: dict, plan: Plan, copies: list
    ) -> None:
        size = self.size.block_size
        swapped = self.pairs(plan.swaps_in, self.size.num_host_blocks, self.size.num_blocks)
        fresh = {b for _, b in swapped} | {b for _, b in copies}
        for name, table in tables.items():
            seq, old = self.live[name], before.get(name, [])
            if seq in came and not seq.host:
                fresh |= set(table[starts.get(name, 0) // size :])
            elif seq in came:
                fresh |= set(table[-(-seq.computed // size) :])
            else:
                fresh |= {b for i, b in enumerate(table) if b >= 0 and old[i : i + 1] != [b]}
        # Of those that come together, one may find what another one computes in this very step.
        held, was = self.held(tables), self.held({n: t for n, t in before.items() if n in tables})
        foreign = fresh & was
        self.require(
            "new blocks are nobody's",
            not foreign,
            lambda: f"blocks {sorted(foreign)} were handed out, but others hold them: {tables}",
        )
        self.hand_out(fresh, self.held(before), held, copies)
        for source, target in swapped:
            self.cells.put(target, self.host.block(source))

    def _enter(self, seq: Seq, starts: dict[str, int]) -> None:
        self.require(
            "a plan",
            seq.name in starts,
            lambda: f"{seq.name} got blocks, but nothing of it is computed",
        )
        hit = starts[seq.name]
        if hit:
            self.story[-1] += f", {hit} tokens of {seq.name} were known"
        must, may = self.cache.expect(seq.chain)
        self.check_hit(seq, hit, (0 if seq.unsure else must, may))
        seq.unsure = False
        seq.computed, seq.published = hit, hit // self.size.block_size

    def _check_plan(self, work: Work, tables: dict) -> None:
        size = self.size.block_size
        total = sum(b - a for _, a, b in work)
        if all(b - a == 1 for _, a, b in work) and not self.contract.decodes_in_budget:
            total = 0
        self.require(
            "budget",
            total <= self.size.budget,
            lambda: f"{total} tokens, budget {self.size.budget}",
        )
        self.require(
            "budget", len(work) <= self.size.max_seqs, lambda: f"{len(work)} sequences in a step"
        )
        for seq, start, stop in work:
            sane = start == seq.computed and start < stop <= len(seq.tokens)
            self.require(
                "planned range",
                sane,
                lambda s=seq, a=start, b=stop: (
                    f"{s.name} is to compute [{a}:{b}], it has "
                    f"{s.computed} of {len(s.tokens)} tokens"
                ),
            )
            table = tables.get(seq.name, [])
            least = -(-stop // size)
            most = least if self.contract.exact_tables else -(-(len(seq.tokens) + 1) // size)
            self.require(
                "table length",
                least <= len(table) <= most,
                lambda s=seq, b=stop, t=table: f"{s.name} computes up to {b} in blocks {t}",
            )

    # --- small parts ---------------------------------------------------------------------------

    def _fits(self, num_prompt: int, max_tokens: int) -> bool:
        slots = self.capacity * self.size.block_size
        if not self.contract.fills_pool:
            slots -= self.size.block_size
        return num_prompt > 0 and max_tokens > 0 and num_prompt + max_tokens - 1 <= slots

    def _add(self, seq: Seq) -> str | None:
        """Why it was refused, or None."""
        self.calls += 1
        args = seq.name, [*seq.tokens], seq.max_tokens, seq.key, seq.num_samples
        try:
            self.adapter.add(*args)
        except self.contract.refusals as refusal:
            self.tell(f"    refused: {refusal}")
            return f"{type(refusal).__name__}: {refusal}"
        except Exception as error:
            told = f"add raised {type(error).__name__}: {error}"
            raise Broken("does not crash", told) from error
        return None

    def _next_tokens(self, seq: Seq) -> list[int]:
        """What a model would say: it depends on the whole prefix and on nothing else."""
        count = seq.num_samples if not seq.born else 1
        return [(seq.chain[-1] * 2654435761 >> 7) + i & 1 for i in range(count)]

    def _append(self, tokens: dict[str, list[int]]) -> None:
        for name, new in tokens.items():
            first = self.live[name]
            first.born, family = True, [first]
            for i in range(1, len(new)):
                child = replace(
                    first,
                    name=f"{name}/{i}",
                    tokens=[*first.tokens],
                    chain=[*first.chain],
                    order=(first.order[0], i),
                    overtaken=set(),
                )
                self.live[child.name] = child
                family.append(child)
            for seq, token in zip(family, new):
                seq.tokens.append(token)
                seq.chain.append(self.names.after(seq.chain[-1], token))

    def _host_tables(self) -> dict[str, list[int]]:
        if not self.size.num_host_blocks or not self.has("host_tables"):
            return {}
        return self.read_tables("host_tables", self.size.num_host_blocks)

    def _check_whole(self) -> None:
        self.require(
            "everything comes back",
            self.num_free == self.capacity and not self._host_tables(),
            lambda: f"nobody is left, {self.num_free} of {self.capacity} blocks are free",
        )
