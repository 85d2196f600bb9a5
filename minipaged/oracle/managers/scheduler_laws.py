"""The laws of waiting: nobody waits without a reason, and nobody for ever; part of the judge."""

from __future__ import annotations

from .judge import Judge, Seq

Work = list[tuple[Seq, int, int]]


class WaitingLaws(Judge):
    """What a scheduler owes to those who are not in the plan."""

    def check_waits(
        self,
        work: Work,
        running: list[Seq],
        waiting: list[Seq],
        tables: dict,
        num_free: int,
        gone: list[Seq],
        came: list[Seq],
    ) -> None:
        """Nobody waits without a reason, and nobody for ever."""
        chosen = {s.name for s, _, _ in work}
        self.num_idle = 0 if work else self.num_idle + 1
        self.require(
            "progress",
            self.num_idle <= self.contract.max_idle_steps + bool(gone),
            lambda: f"nothing is computed, but unfinished are {[*self.live]}",
        )
        spare = self.size.budget - sum(b - a for _, a, b in work)
        idle = [s for s in running if s.name in tables and s.name not in chosen]
        room = spare > 0 and len(work) < self.size.max_seqs and not gone
        if self.contract.work_conserving and room:
            self.require(
                "nobody waits", not idle, lambda: f"{idle[0].name} waits, {spare} to spare"
            )
        here = [s for s in running if s.name in tables]
        oldest = min(here, key=lambda s: s.order, default=None)
        if self.contract.oldest_progresses and oldest is not None:
            self.require(
                "the oldest goes on",
                oldest.name in chosen or not work,
                lambda: f"{oldest.name} is the oldest, but is not computed",
            )
        self._check_decodes(work, idle)
        self._check_overtaking(waiting, came, tables)
        if self.contract.preempts_newest and gone:
            newest = max((s.order for s in here if s not in gone), default=None)
            wrong = [s for s in gone if newest and s.order < newest]
            self.require(
                "the newest is preempted",
                not wrong,
                lambda: f"{wrong[0].name} had to leave, a younger one stayed",
            )
        if self.contract.preempts_late and len(gone) == 1 and not self.size.window:
            self._check_need(gone[0], num_free)
            self.require(
                "preemption only in need", not came, f"{gone[0].name} had to leave, others came"
            )
        if self.contract.waits_for_prefix:
            self._check_twice(work, came)
        if self.size.headroom:
            self._check_headroom(came, here, num_free, tables)
        if self.contract.admits_what_fits and room:
            self._check_admission(waiting, tables, num_free, spare)

    def _check_decodes(self, work: Work, idle: list[Seq]) -> None:
        """A decode is not put off again and again for the prompts of others."""
        prompts = sum(min(b, s.num_prompt) - a for s, a, b in work if a < s.num_prompt - 1)
        for seq, _, _ in work:
            seq.waits = 0
        if prompts > 1 and len(work) < self.size.max_seqs:  # one token of the oldest is its due
            for seq in idle:
                seq.waits += seq.left == 1
        most = self.contract.max_decode_wait
        late = [s for s in idle if most is not None and s.waits > most]
        self.require(
            "decodes go on",
            not late,
            lambda: f"{late[0].name} got no token in {late[0].waits} steps, prompts went first",
        )

    def _check_overtaking(self, waiting: list[Seq], came: list[Seq], tables: dict) -> None:
        most = self.contract.max_overtakes
        for seq in waiting:
            if seq.name in tables:
                seq.overtaken.clear()
                continue
            seq.overtaken |= {s.name for s in came if s.order > seq.order}
            self.require(
                "nobody is overtaken for ever",
                most is None or len(seq.overtaken) <= most,
                lambda s=seq: f"{sorted(s.overtaken)} came later than {s.name} and went first",
            )

    def _check_need(self, seq: Seq, num_free: int) -> None:
        """Whoever had to leave would not have found room for its next tokens."""
        others = self.held({n: t for n, t in self.tables.items() if n != seq.name})
        own = {b for b in self.tables[seq.name] if b >= 0} - others
        missing = -(-len(seq.tokens) // self.size.block_size) - len(self.tables[seq.name])
        # All that it alone held is free again: had it stayed, so much less would be.
        self.require(
            "preemption only in need",
            num_free <= len(own) + missing,
            lambda: f"{seq.name} had to leave its {len(own)} blocks, now {num_free} are free",
        )

    def _check_twice(self, work: Work, came: list[Seq]) -> None:
        """A newcomer waits for a prefix that somebody else is computing, and finds it then."""
        todo: dict[int, Seq] = {}
        size = self.size.block_size
        for seq in self.live.values():
            if seq.name in self.tables and seq not in came and self.caches(seq):
                todo |= dict.fromkeys(self.cache.ends(seq.chain)[seq.computed // size :], seq)
        for seq, start, _ in work:
            if seq in came and self.caches(seq) and not seq.host:
                ends = self.cache.ends(seq.chain, len(seq.chain) - 1)
                for number in ends[start // self.size.block_size :][:1]:
                    self.require(
                        "nothing is computed twice",
                        number not in todo,
                        lambda s=seq, n=number: (
                            f"{s.name} enters though {todo[n].name} computes {self.names.text(n)}"
                        ),
                    )
                for number in self.cache.ends(seq.chain)[start // self.size.block_size :]:
                    todo.setdefault(number, seq)

    def _check_headroom(
        self, came: list[Seq], here: list[Seq], num_free: int, tables: dict
    ) -> None:
        """Who is new and not alone leaves some blocks free, or the next step would preempt it."""
        for seq in came:
            if here and not seq.preempted:
                missing = -(-len(seq.tokens) // self.size.block_size) - len(tables[seq.name])
                left = num_free + self._taken_after(seq, came, tables)
                self.require(
                    "headroom",
                    left - missing >= self.size.headroom,
                    lambda s=seq, left=left: (
                        f"{s.name} entered and left {left} blocks free, the headroom "
                        f"is {self.size.headroom}"
                    ),
                )

    def _taken_after(self, seq: Seq, came: list[Seq], tables: dict) -> int:
        """Blocks of those that entered behind it; who comes back needs no headroom."""
        later = {s.name: tables[s.name] for s in came if s.order > seq.order}
        earlier = {name: table for name, table in tables.items() if name not in later}
        return len(self.held(later) - self.held(earlier))

    def _check_admission(self, waiting: list[Seq], tables: dict, num_free: int, spare: int) -> None:
        """The first in the queue enters if all of its tokens fit."""
        still = [s for s in waiting if s.name not in tables and not s.host]
        if not still or any(s.host or s.unsure for s in waiting):
            return
        seq = min(still, key=lambda s: s.order)
        must, may = self.cache.expect(seq.chain) if self.caches(seq) else (0, 0)
        if must != may or self._may_wait(seq, must):
            return
        missing = len(seq.tokens) - must * self.size.block_size
        if self.contract.admits_what_fits == "whole" and missing > spare:
            return
        ends = self.cache.ends(seq.chain)[:must]
        found = set().union(*(self.cache.blocks[number] for number in ends))
        revived = len(found - self.held(tables))
        needed = -(-len(seq.tokens) // self.size.block_size) - must + revived
        if tables and not seq.preempted:
            needed += self.size.headroom
        self.require(
            "who fits enters",
            needed > num_free,
            lambda: f"{seq.name} needs {needed} blocks, {num_free} are free, but it waits",
        )

    def _may_wait(self, seq: Seq, num_found: int) -> bool:
        """Whether the next block of its prompt is being computed by somebody else."""
        stop = (num_found + 1) * self.size.block_size
        if stop > len(seq.tokens) - 1 or not self.caches(seq):
            return False
        return any(
            other is not seq and other.chain[stop - 1 : stop] == seq.chain[stop - 1 : stop]
            for other in self.live.values()
        )
