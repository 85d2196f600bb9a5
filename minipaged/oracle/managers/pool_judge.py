"""Judges a pool with block tables: every act of a program, and the law it must keep."""

from __future__ import annotations

from dataclasses import replace

from .judge import brief
from .pool_steps import PoolSteps

NEVER_SEEN = 2
"""A token that no drawn prompt holds: nothing is found, so every block must be handed out."""


class PoolJudge(PoolSteps):
    """One method for each act that a program can name."""

    # --- acts ----------------------------------------------------------------------------------

    def add(self, prompts: tuple[tuple[int, ...], ...], key: str | None, num_new: int) -> None:
        """New sequences in one step; ``num_new``: tokens to compute now, 0 for all of them."""
        opened, copies = [], []
        for prompt in prompts:
            seq = self._new_seq(list(prompt), key)
            work = self._open(seq, num_new or len(prompt))
            if work:
                opened.append(work)
        self._compute(opened, {seq.name: stop for seq, _, stop in opened}, copies)

    def step(
        self,
        picks: tuple[int, ...],
        news: tuple[tuple[int, ...], ...],
        kept: int,
        newcomer: tuple[int, ...] = (),
    ) -> None:
        """Some sequences get new tokens (or the next of a prompt); ``kept`` of them stay."""
        work = self._work(picks, news)
        if not work:
            return
        if not self.contract.drafts:
            kept = 99
        stops = {s.name: min(stop, max(start, start + kept)) for s, start, stop in work}
        told = ", ".join(f"{s.name} {brief(s.tokens[a:b])}" for s, a, b in work)
        cut = "" if all(stops[s.name] == b for s, _, b in work) else f", {kept} kept of each"
        self.tell(f"step {told}{cut}")
        copies = self._reserve(work)
        if copies is not None:
            entered = self._join(newcomer, copies) if newcomer else []
            stops |= {seq.name: stop for seq, _, stop in entered}
            self._compute([*work, *entered], stops, copies)
        self._forget(work)

    def decode(self, token: int, alternate: bool) -> None:
        """Everybody gets one token."""
        everyone = [seq for seq in self.live.values() if not seq.host]
        news = tuple(((token + i * alternate) % 2,) for i in range(len(everyone)))
        if everyone:
            self.step(tuple(range(len(everyone))), news, 99)

    def fork(self, number: int) -> None:
        """A second sequence with the same tokens; nothing is allocated."""
        parent = self.pick(number)
        if not self.has("fork") or parent is None or parent.name not in self.tables:
            return
        child = replace(
            parent, name=self.new_name(), tokens=[*parent.tokens], chain=[*parent.chain]
        )
        self._shorten(child, child.computed)
        self.tell(f"fork {parent.name} -> {child.name}")
        self.live[child.name] = child
        copies = self.pairs(
            self.call("fork", parent.name, child.name), self.size.num_blocks, self.size.num_blocks
        )
        tables, num_free = self.look()
        self.require("a fork shares", child.name in tables, lambda: f"{child.name} has no blocks")
        if self.contract.fewest_copies:
            self.require(
                "a fork shares",
                not copies and num_free == self.num_free,
                lambda: f"fork copied {copies} and left {num_free} of {self.num_free} blocks free",
            )
        before, held = self.held(self.tables), self.held(tables)
        self.hand_out(held - before, before, held, copies)
        self.settle()

    def truncate(self, number: int, back: int, again: tuple[int, ...]) -> None:
        """Back by a few tokens; ``again``: and on at once in another direction."""
        seq = self.pick(number)
        if not self.has("truncate") or seq is None:
            return
        stop = seq.computed - back
        if stop < max(1, seq.first):
            return
        self.tell(f"truncate {seq.name} to {stop} tokens")
        self._shorten(seq, stop)
        seq.computed, seq.published = stop, min(seq.published, stop // self.size.block_size)
        self.call("truncate", seq.name, stop)
        self.settle()
        if again:
            self.step((list(self._here()).index(seq.name),), (again,), 99)

    def free(self, number: int, away: bool = False) -> None:
        """Somebody ends, ``away``: on the host; to end twice is to end once."""
        seq = self.pick(number, host=away) or self.pick(number)
        if seq is not None:
            self._free(seq)

    def holders(self, number: int, count: int) -> None:
        """Very many hold one sequence's blocks, forks and hits, and all of them let go again."""
        seq = self.pick(number)
        if seq is None:
            return
        self.tell(f"{count} others hold what {seq.name} holds, and let go")
        others = [self.new_name() for _ in range(count)] if self.has("fork") else []
        for name in others:
            self.call("fork", seq.name, name)
        for name in others:
            self.call("free", name)
        self.settle()
        others = []
        for name in (self.new_name() for _ in range(count)):
            if self.call("add", name, [*seq.tokens], seq.key, 1) is None:
                break
            others.append(name)
        for name in others:
            self.call("free", name)
        self.settle()

    def beginnings(self, count: int) -> None:
        """So many different blocks become prefixes: none is taken for another, all are found."""
        self.tell(f"{count} sequences of one block each, one after the other")
        prompts = [[NEVER_SEEN + 1 + i, i % 251, 0] for i in range(count)]
        for i, prompt in enumerate(prompts):
            name = f"P{i}"
            hit = self.call("add", name, prompt, "", 2)
            self.require("nothing else is found", hit == 0, lambda p=prompt: f"{p} is found")
            self.call("commit", name, prompt, 2)
            self.call("free", name)
        if self.contract.prefix_cache and self.contract.blank_first and self.has("find"):
            for prompt in prompts:
                found = self.call("find", prompt, "") == 2
                self.require("hits are found", found, lambda p=prompt: f"{p} is not found")
        self.settle()

    def cancel(self, picks: tuple[int, ...], news: tuple[tuple[int, ...], ...], go: bool) -> None:
        """A step that is planned and half written, and then does not happen (``go``: they end)."""
        if not self.has("cancel"):
            return
        work = self._work(picks, news)
        if not work:
            return
        self.tell(
            f"cancelled step: {', '.join(f'{s.name} {brief(s.tokens[a:b])}' for s, a, b in work)}"
        )
        tables, num_free = self.tables, self.num_free
        if self._reserve(work) is not None:
            for seq, start, stop in work:
                shared = any(
                    set(self.tables[seq.name][start // self.size.block_size :]) & set(ids)
                    for name, ids in self.tables.items()
                    if name != seq.name
                )
                for position in range(start, start if shared else stop):
                    self.cells.cells[self.cells.slot(self.tables[seq.name], position)] = None
            for seq, _, _ in reversed(work):
                if not go:
                    self.call("cancel", seq.name)
        self._forget(work)
        if go:
            for seq, _, _ in work:
                self._free(seq, settle=False)
            self.settle()
            return
        self.settle()
        self.require(
            "a cancelled step leaves no trace",
            (self.tables, self.num_free) == (tables, num_free),
            lambda: f"tables were {tables}, {num_free} free; now {self.tables}, {self.num_free}",
        )

    def slide(self, number: int, window: int) -> None:
        """Nobody will look further back than the window."""
        seq = self.pick(number)
        if not self.has("slide") or seq is None or seq.name not in self.tables:
            return
        position = seq.computed - max(1, window) + 1
        if position <= seq.first:
            return
        self.windowed = True
        self.tell(f"window of {seq.name} from position {position}")
        seq.first = max(seq.first, position)
        self.call("slide", seq.name, position)
        self.call("slide", seq.name, max(0, position - self.size.block_size))  # it never goes back
        self.settle()
        passed = position // self.size.block_size
        table = self.tables[seq.name]
        self.require(
            "a window gives back",
            all(b < 0 for b in table[:passed]) and all(b >= 0 for b in table[passed:]),
            lambda: f"{passed} blocks are passed, the table of {seq.name} is {table}",
        )

    def reset(self) -> None:
        """All prefixes are forgotten; what runs goes on."""
        if not self.has("reset"):
            return
        self.tell("reset")
        if self.call("reset") is False:
            self.require("reset", self.live, "reset was refused, though nobody is running")
            return self.settle()
        self.cache.reset()
        for seq in self.live.values():
            seq.sure = False
        return self.settle()

    def swap(self, number: int, everybody: bool) -> None:
        """Out to the host or back, alone or with everybody who is at the same place."""
        if not (self.has("swap_out") and self.size.num_host_blocks and self.live):
            return
        seq = list(self.live.values())[number % len(self.live)]
        seqs = [s for s in self.live.values() if s.host == seq.host and s.computed]
        seqs = seqs if everybody else [seq]
        if not seq.computed:
            return
        method = "swap_in" if seq.host else "swap_out"
        self.tell(f"{method} {' '.join(s.name for s in seqs)}")
        sizes = self.size.num_blocks, self.size.num_host_blocks
        inner, outer = (self.host, self.cells) if seq.host else (self.cells, self.host)
        hosts = self._host_tables()
        source_tables = hosts if seq.host else self.tables
        moved = {b for s in seqs for b in source_tables[s.name] if b >= 0}
        room = self.num_free if seq.host else sizes[1] - len(self.held(hosts))
        told = self.call(method, [s.name for s in seqs])
        if told is None:
            self.require("refused for a reason", len(moved) > room, f"{method} would have fitted")
            same = self.look() == (self.tables, self.num_free) and self._host_tables() == hosts
            self.require("all or nothing", same, f"a refused {method} changed something")
            return self.settle()
        pairs = self.pairs(told, *(reversed(sizes) if seq.host else sizes))
        for s in seqs:
            s.host = not s.host
        read = [(b, inner.block(a)) for a, b in pairs]
        if seq.host:
            self._forget_place(seqs)
            self.tables, self.num_free = self.look()
        else:
            tables, before = self.look()[0], self.held(self.tables)
            self.hand_out({b for _, b in pairs}, before, self.held(tables), [])
            self.tables = tables
        for block_id, cells in read:
            outer.put(block_id, cells)
        placed = self._host_tables() if seq.host else self.tables
        for s in seqs:
            self.read(s, placed[s.name], s.computed, outer)
            s.published, s.sure = 0, True  # published here when it next commits
            if number % 2 == 0:
                self.call("commit", s.name, [*s.tokens], s.computed)
                self.tables, self.num_free = self.look()
                if not s.host:
                    self.publish(s, self.tables[s.name])
        return self.settle()

    def end(self) -> None:
        """Everybody goes; then the pool must be whole, and hold as many tokens as it has slots."""
        for seq in list(self.live.values()):
            self._free(seq)
        self.require(
            "everything comes back",
            self.num_free == self.capacity,
            lambda: f"nobody is left, {self.num_free} of {self.capacity} blocks are free",
        )
        if self.has("swap_out") and self.size.num_host_blocks:
            self.require("everything comes back", not self._host_tables(), "the host holds some")
        slots = min(self.capacity * self.size.block_size, 4096)  # many know a longest sequence
        if not self.contract.fills_pool:
            slots -= 1
        self.tell(f"at the end, one sequence of {slots} unknown tokens")
        self.add(((NEVER_SEEN,) * slots,), "" if self.contract.prefix_cache else None, 0)
        self.require("capacity", self.live, f"{slots} tokens found no room in an empty pool")
        for seq in list(self.live.values()):
            self._free(seq)
