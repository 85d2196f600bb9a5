"""The parts of a pool's step: ask for slots, see what changed, write, read, commit."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .judge import Judge, Seq, brief
from .shadow import brief_key

Work = list[tuple[Seq, int, int]]
"""Who computes from which position to which."""


class PoolSteps(Judge):
    """What the acts of a program are made of."""

    def pick(self, number: int, *, host: bool = False) -> Seq | None:
        """One of the live sequences, whichever number was drawn."""
        here = [seq for seq in self.live.values() if seq.host == host]
        return here[number % len(here)] if here else None

    def _join(self, prompt: tuple[int, ...], copies: list) -> Work:
        """Somebody enters while the step of others is open."""
        opened = self._open(self._new_seq(list(prompt), ""), len(prompt))
        if opened is None:
            return []
        taken = set(self.tables[opened[0].name]) & {a for a, _ in copies}
        self.require(
            "a copy's source stays",
            not taken or not self.contract.pins_sources,
            lambda: f"blocks {sorted(taken)} are to be copied, but were handed out",
        )
        return [opened]

    def _here(self) -> list[str]:
        return [seq.name for seq in self.live.values() if not seq.host]

    def _host_tables(self) -> dict[str, list[int]]:
        return self.read_tables("host_tables", self.size.num_host_blocks)

    def _forget_place(self, seqs: list[Seq]) -> None:
        for seq in seqs:
            self.tables.pop(seq.name, None)

    def _new_seq(self, tokens: list[int], key: str | None) -> Seq:
        key = self.known_key(key)
        return Seq(self.new_name(), key, tokens, self.names.chain(key, tokens))

    def _shorten(self, seq: Seq, stop: int) -> None:
        del seq.tokens[stop:], seq.chain[stop:]

    def _forget(self, work: Work) -> None:
        """New tokens that were rejected, or found no room; the rest of a prompt stays known."""
        for seq, _, _ in work:
            if not seq.pending:
                self._shorten(seq, seq.computed)

    def _extend(self, seq: Seq, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            parent = seq.chain[-1] if seq.chain else self.names.after(-1, ("key", seq.key))
            seq.chain.append(self.names.after(parent, token))
            seq.tokens.append(token)

    def _work(self, picks: tuple, news: tuple) -> Work:
        """Different sequences, each with its pending tokens or with new ones."""
        work: dict[str, tuple[Seq, int, int]] = {}
        for i, number in enumerate(picks):
            seq, new = self.pick(number), news[i % len(news)] if news else ()
            if seq is None or seq.name in work or not new:
                continue
            seq.pending = bool(seq.left)
            if not seq.pending:
                self._extend(seq, new)
            work[seq.name] = seq, seq.computed, seq.computed + min(len(new), seq.left)
        return list(work.values())[: None if self.contract.whole_steps else 1]

    def _open(self, seq: Seq, num_new: int) -> tuple[Seq, int, int] | None:
        """Ask for one newcomer; check the hit and what it holds then."""
        key = f", {brief_key(seq.key)}" if seq.key != "" else ""
        some = f", {num_new} to compute" if num_new < len(seq.tokens) else ""
        self.tell(f"add {seq.name} {brief(seq.tokens)}{key}{some}")
        expected = self.cache.expect(seq.chain)
        tables, num_free = self.tables, self.num_free
        if self.has("find"):
            self.check_hit(seq, self.call("find", [*seq.tokens], seq.key), expected)
        self.live[seq.name] = seq
        hit = self.call("add", seq.name, [*seq.tokens], seq.key, num_new)
        after, num_free_after = self.look()
        if hit is None:
            del self.live[seq.name]
            self.story[-1] += ": no room"
            same = (after, num_free_after) == (tables, num_free)
            self.require("all or nothing", same, lambda: f"tables {tables} became {after}")
            self._check_refused_newcomer(seq, num_new, expected)
            return None
        self.story[-1] += f": {hit} known" if hit else ""
        self.check_hit(seq, hit, expected)
        stop = min(len(seq.tokens), hit + num_new)
        blocks, table = hit // self.size.block_size, after.get(seq.name, [])
        self._check_reserved(seq, stop, table)
        before, fresh = self.held(tables), set(table[blocks:])
        foreign = before & fresh
        self.require(
            "new blocks are nobody's",
            not foreign,
            lambda: f"{seq.name} got blocks {sorted(foreign)}, which others hold",
        )
        self.hand_out(fresh, before, self.held(after), [])
        self.tables, self.num_free = after, num_free_after
        seq.computed = hit
        seq.published = blocks
        return seq, hit, stop

    def _check_refused_newcomer(self, seq: Seq, num_new: int, expected: tuple[int, int]) -> None:
        must, may = expected if self.caches(seq) else (0, 0)
        ends = self.cache.ends(seq.chain)[:must]
        found = set().union(*(self.cache.blocks.get(n, set()) for n in ends))
        self.cache.touch(found)
        if must != may or not self.contract.exact_room:
            return
        stop = min(len(seq.tokens), must * self.size.block_size + num_new)
        stop = stop if self.contract.exact_tables else len(seq.tokens)
        revived = len(found - self.held(self.tables))
        needed = -(-stop // self.size.block_size) - must + revived
        self.require(
            "refused for a reason",
            needed > self.num_free,
            lambda: f"{seq.name} needs {needed} blocks, {self.num_free} are free, but was refused",
        )

    def _check_reserved(self, seq: Seq, stop: int, table: list[int]) -> None:
        size = self.size.block_size
        least, most = -(-stop // size), -(-(len(seq.tokens) + 1) // size)
        most = least if self.contract.exact_tables else max(least, most)
        self.require(
            "table length",
            least <= len(table) <= most,
            lambda: (
                f"{seq.name} has slots for {stop} tokens in {len(table)} blocks: {brief(table)}"
            ),
        )

    def _reserve(self, work: Work) -> list[tuple[int, int]] | None:
        """Ask for one step of running sequences; None: there was rightly no room."""
        tables, num_free = self.tables, self.num_free
        tails = self._tails(work)
        copying = sum(n - self._is_spared(block_id, n) for block_id, n in tails.items())
        size = self.size.block_size
        grown = sum(max(0, -(-b // size) - len(tables.get(s.name, ()))) for s, _, b in work)
        told = self.call("reserve", [(s.name, [*s.tokens], b - a) for s, a, b in work])
        after, num_free_after = self.look()
        if told is None:
            self.story[-1] += ": no room"
            same = (after, num_free_after) == (tables, num_free)
            self.require("all or nothing", same, lambda: f"tables {tables} became {after}")
            if self.contract.exact_room and not self._doubt(tails):
                self.require(
                    "refused for a reason",
                    copying + grown > num_free,
                    lambda: f"{copying + grown} blocks would fit in {num_free}, but were refused",
                )
            return None
        copies = self.pairs(told, self.size.num_blocks, self.size.num_blocks)
        self.story[-1] += f", copies {copies}" if copies else ""
        if self.contract.fewest_copies and not self._doubt(tails):
            self.require(
                "fewest copies",
                len(copies) == copying,
                lambda: f"{copying} copies are needed, {copies} were planned",
            )
        self._check_changes(work, tables, after, copies)
        self._check_pins(after, num_free_after, copies)
        before, held = self.held(tables), self.held(after)
        self.hand_out(held - before, before, held, copies)
        self.tables, self.num_free = after, num_free_after
        return copies

    def _check_pins(self, tables: dict, num_free: int, copies: list) -> None:
        """In an open step, too, every block is held, free, or about to be copied."""
        held = self.held(tables)
        pinned = {a for a, _ in copies} - held
        most = self.capacity - len(held)
        self.require(
            "no block is lost",
            num_free == most - len(pinned) or (not self.contract.pins_sources and num_free <= most),
            lambda: (
                f"in an open step {len(held)} blocks are held, {len(pinned)} are to be copied, "
                f"{num_free} are free, {self.capacity} exist"
            ),
        )

    def _check_changes(self, work: Work, tables: dict, after: dict, copies: list) -> None:
        """Only the writers' tables change: by new blocks at the end, and by copied tails."""
        stops = {seq.name: stop for seq, _, stop in work}
        taken: Counter[int] = Counter()
        for name, old in tables.items():
            self._check_kept(name, old, after.get(name, []), name in stops, copies)
        before = self.held(tables)
        for seq, _, stop in work:
            new, old = after.get(seq.name, []), tables.get(seq.name, [])
            self._check_reserved(seq, stop, new)
            taken.update(b for i, b in enumerate(new) if old[i : i + 1] != [b])
        wrong = {b for b, n in taken.items() if n > 1} | (set(taken) & before)
        self.require(
            "new blocks are nobody's",
            not wrong,
            lambda: f"blocks {sorted(wrong)} were handed out, but are held by others: {after}",
        )

    def _check_kept(
        self, name: str, old: list[int], new: list[int], writes: bool, copies: list
    ) -> None:
        """One table after a step was planned."""
        law, tail = "tables stay", self.live[name].computed // self.size.block_size
        if not writes:
            self.require(law, new == old, lambda: f"{name} went {old} -> {new}")
        fair = all(
            new[i : i + 1] == [b] or (i >= tail and (b, *new[i : i + 1]) in copies)
            for i, b in enumerate(old)
        )
        self.require(law, fair, lambda: f"{name} went {old} -> {new}, copies {copies}")

    def _tails(self, work: Work) -> Counter[int]:
        """Shared or published partial blocks that this step writes into, and by how many."""
        size, holders = self.size.block_size, Counter(b for t in self.tables.values() for b in t)
        tails = Counter(self.tables[s.name][a // size] for s, a, b in work if a % size and b > a)
        shared = {b for b in tails if holders[b] > 1 or b in self.cache.holder}
        return Counter({b: n for b, n in tails.items() if b in shared})

    def _is_spared(self, block_id: int, num_writers: int) -> bool:
        holders = sum(block_id in table for table in self.tables.values())
        return block_id not in self.cache.holder and num_writers == holders

    def _doubt(self, tails: Counter[int]) -> bool:
        """Whether a tail may be published or not: a twin has it, or a reset left it open."""
        twin = any(b in self.cache.holder and not self.cache.is_sure(b) for b in tails)
        return twin or (any(not s.sure for s in self.live.values()) and bool(tails))

    def _compute(self, work: Work, stops: dict[str, int], copies: Any) -> None:
        """Write, read, commit what is kept, look again."""
        self.write(work, self.tables)
        for seq, _, _ in work:
            seq.computed = stops[seq.name]
            self.call("commit", seq.name, [*seq.tokens], seq.computed)
        self.tables, self.num_free = self.look()
        for seq, _, _ in work:
            self.publish(seq, self.tables.get(seq.name, []))
        self.settle()
        self._probe(work)

    def _probe(self, work: Work) -> None:
        """A look for what was just computed finds it, whole blocks of it, and no more."""
        if not self.has("find"):
            return
        for seq, _, _ in work:
            for key in dict.fromkeys((seq.key, self.contract.keys[-1])):
                tokens = [*seq.tokens[: seq.computed], 0]
                probe = Seq("a look", key, tokens, self.names.chain(key, tokens))
                self.check_hit(
                    probe, self.call("find", tokens, key), self.cache.expect(probe.chain)
                )

    def _free(self, seq: Seq, *, settle: bool = True) -> None:
        self.tell(f"free {seq.name}")
        self.call("free", seq.name)
        if self.contract.free_twice:
            self.call("free", seq.name)
        del self.live[seq.name]
        if settle:
            self.settle()
