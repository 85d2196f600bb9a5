"""Sequences, pools and a shadow cache, and everything one can do to them; each act checks its law.

The exhaustive programs, the random machine and the planted faults all drive this one world. It
knows every sequence's tokens, so it knows what each slot must hold; it computes no attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from minipaged.core import (
    BlockPool,
    BlockTable,
    OutOfBlocks,
    prefix_hashes,
    relocate,
    reserve,
    root_hash,
)

from . import books
from .events import count
from .fingerprint import ListCache, Prefix, TensorCache


@dataclass(eq=False)
class Place:
    """A pool and the cache its block ids point into: the device, or the host."""

    pool: BlockPool
    cache: ListCache | TensorCache


@dataclass(eq=False)
class Seq:
    """One sequence; the first ``table.num_tokens`` of its tokens are computed."""

    name: str
    tokens: list[int]
    salt: str | None
    weights: int
    table: BlockTable

    @property
    def num_pending(self) -> int:
        """Tokens that are known but not computed: the rest of a prompt."""
        return len(self.tokens) - self.table.num_tokens


Work = list[tuple[Seq, int, int]]
"""Who computes how many of its next tokens in a step, and how many of those are kept."""


class Exploded(Exception):
    """Raised by a sabotaged allocator; stands for whatever may go wrong half-way."""


class World:
    """All sequences, on a device and, if ``num_host_blocks`` is given, on a host."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        num_host_blocks: int = 0,
        make_cache: Callable[[int, int], ListCache | TensorCache] = ListCache,
    ):
        self.block_size = block_size
        self.places = [
            Place(BlockPool(n), make_cache(n, block_size))
            for n in (num_blocks, num_host_blocks)
            if n
        ]
        self.live: list[Seq] = []
        self.names: dict[bytes, Prefix] = {}  # what every hash ever committed stands for
        self.num_born = 0
        self.weights = 0
        self.window_used = False  # only a sliding window may orphan a prefix

    @property
    def device(self) -> Place:
        return self.places[0]

    def at(self, place: Place) -> list[Seq]:
        return [seq for seq in self.live if seq.table.pool is place.pool]

    def on_device(self) -> list[Seq]:
        return self.at(self.device)

    def prefix(self, seq: Seq, position: int) -> Prefix:
        return Prefix(tuple(seq.tokens[: position + 1]), seq.salt, seq.weights)

    # --- acts ----------------------------------------------------------------------------------

    def admit(self, tokens: Sequence[int], salt: str | None = "") -> Seq:
        """A new sequence with what the cache knows of its prompt; nothing is computed yet."""
        root = None if salt is None else root_hash({"salt": salt, "weights": str(self.weights)})
        table = BlockTable(self.device.pool, self.block_size, root)
        seq = Seq(self._next_name(), list(tokens), salt, self.weights, table)
        whole = self.prefix(seq, len(tokens) - 1)
        expected = books.longest_known(self, self.device, whole)
        before = self.frozen()
        assert table.find_prefix(tokens) == expected, f"a lookup of {tokens} must find {expected}"
        assert self.frozen() == before, "looking changed something"
        self.live.append(seq)
        assert table.match_prefix(tokens) == len(expected) * self.block_size
        assert table.block_ids == expected
        assert seq.num_pending >= 1, "a request must have a token to compute"
        count("prefix hit", bool(expected))
        return seq

    def step(self, work: Work) -> bool:
        """Reserve for all, copy, write, let everybody read everything, commit; False: no room."""
        if not self._reserve(work):
            return False
        for seq, num_new, _ in work:
            end = seq.table.num_tokens + num_new
            self._read_all(seq, end)
        for seq, num_new, num_kept in work:
            self._commit(seq, num_new, num_kept)
        for seq, _, _ in work:
            self._check_findable(seq)
        return True

    def fork(self, seq: Seq) -> Seq:
        free = self.device.pool.num_free
        child = replace(seq, name=self._next_name(), table=seq.table.fork(), tokens=[*seq.tokens])
        self.live.append(child)
        assert self.device.pool.num_free == free, "a fork must not allocate"
        return child

    def truncate(self, seq: Seq, num_tokens: int) -> None:
        seq.table.truncate(num_tokens)
        del seq.tokens[num_tokens:]
        if num_tokens % self.block_size:
            published = seq.table.pool.prefix_hash[seq.table.block_ids[-1]] is not None
            count("truncation into a published block", published)

    def drop_before(self, seq: Seq, position: int) -> None:
        dropped = seq.table.num_dropped
        seq.table.drop_before(position)
        position = min(position, seq.table.num_tokens)
        assert seq.table.num_dropped == max(dropped, position // self.block_size)
        self.window_used |= seq.table.num_dropped > dropped
        count("window passed a block", seq.table.num_dropped > dropped)

    def release(self, seq: Seq) -> None:
        """Releasing twice is releasing once."""
        seq.table.release()
        once = self.frozen()
        seq.table.release()
        assert self.frozen() == once, "the second release did something"
        self.live.remove(seq)

    def cancel(self, work: Work) -> bool:
        """Reserve, copy and half write a step that then does not happen."""
        before = self.promises()
        if not self._reserve(work):
            return False
        for seq, _, _ in reversed(work):
            seq.table.cancel()
        self._check_undone(before)
        count("cancelled step")
        return True

    def abort(self, work: Work) -> bool:
        """The sequences go in the middle of a step."""
        if not self._reserve(work):
            return False
        for seq, _, _ in work:
            self.release(seq)
        count("aborted step")
        return True

    def explode(self, work: Work, at_call: int) -> None:
        """The allocator fails in the middle of ``reserve``; cancelling everybody undoes it."""
        pool, calls = self.device.pool, 0
        sound = pool.allocate

        def sabotaged(num_blocks: int = 1) -> list[int]:
            nonlocal calls
            calls += 1
            if calls == at_call:
                raise Exploded
            return sound(num_blocks)

        before = self.promises()
        pool.allocate = sabotaged  # type: ignore[method-assign]
        try:
            reserve([seq.table for seq, _, _ in work], [n for _, n, _ in work])
        except OutOfBlocks:
            assert calls == 0, "a step without room must not begin to allocate"
        except Exploded:
            count("explosion")
        finally:
            del pool.allocate
        for seq, _, _ in work:
            seq.table.cancel()
        self._check_undone(before)

    def swap(self, seqs: list[Seq], *, publish: bool) -> bool:
        """Move sequences to the other place; ``publish``: make their blocks findable there."""
        old = self.device if seqs[0].table.pool is self.device.pool else self.places[1]
        new = self.places[1] if old is self.device else self.device
        before, free, size = self.frozen(), new.pool.num_free, self.block_size
        held = {b for s in seqs for b in s.table.block_ids if b >= 0}
        try:
            copies = relocate([seq.table for seq in seqs], new.pool)
        except OutOfBlocks:
            assert self.frozen() == before, "a refused move changed something"
            assert len(held) > free, "refused although all blocks would fit"
            count("refused move")
            return False
        placed = {b for s in seqs for b in s.table.block_ids if b >= 0}
        assert len(placed) == len(held) or self.window_used, "what was shared is shared no longer"
        count("adoption without a copy", len(held) - len(copies))
        old.cache.swap(new.cache, copies)
        count("swap out" if old is self.device else "swap in")
        for seq in seqs:
            self._read_all(seq, seq.table.num_tokens)
            if publish:
                seq.table.commit(seq.tokens)
                whole = self.prefix(seq, seq.table.num_tokens // size * size - 1)
                known = books.longest_known(self, new, whole._replace(tokens=(*whole.tokens, 0)))
                complete = len(known) == len(whole.tokens) // size
                assert complete or seq.salt is None or self.window_used, "moved, but not findable"
        return True

    def forget_prefixes(self, *, new_weights: bool) -> None:
        """Unpublish everything. Under new weights, old K/V may not live on in running sequences."""
        for seq in list(self.live) if new_weights else []:
            self.release(seq)
        self.weights += new_weights
        for place in self.places:
            place.pool.forget_prefixes()
            assert not books.published_prefixes(self, place)
        self.window_used |= bool(self.live)  # what they publish next has no parent in the index

    # --- laws ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything that must hold between two acts; then poison what nobody may read."""
        for place in self.places:
            books.check_books(self, place)
            claimed = books.claims(self, place)
            if bad := place.cache.wrong(claimed):
                raise AssertionError(f"slot {bad[0]} does not hold {claimed[bad[0]]}")
            count("orphan", books.check_ledger(self, place)["orphaned"])
            books.check_snapshot(self, place)
            num_held = sum(n > 0 for n in place.pool.ref_count)
            assert num_held + place.pool.num_free == place.pool.num_blocks, "a block is lost"
            slots = range(place.pool.num_blocks * self.block_size)
            place.cache.poison([s for s in slots if s not in claimed])

    def check_pool_is_whole(self) -> None:
        """When everybody has gone, every block is free."""
        for seq in list(self.live):
            self.release(seq)
            self.check()
        for place in self.places:
            assert place.pool.num_free == place.pool.num_blocks, "blocks have leaked"

    def frozen(self, *ignored: str) -> tuple:
        pools = [books.frozen(place.pool, *ignored) for place in self.places]
        return (*pools, *(books.frozen(seq.table) for seq in self.live))

    def promises(self) -> tuple:
        """What a cancelled step must leave as it was; the order of free blocks is not among it."""
        free = [{b for b in range(p.pool.num_blocks) if p.pool.is_free(b)} for p in self.places]
        counts = [list(place.pool.ref_count) for place in self.places]
        return free, counts, [books.frozen(seq.table) for seq in self.live]

    def key(self) -> tuple:
        """Equal for two worlds that no later act can tell apart."""
        where = {id(place.pool): i for i, place in enumerate(self.places)}
        seqs = Counter(
            (tuple(s.tokens), s.salt, where[id(s.table.pool)], books.frozen(s.table))
            for s in self.live
        )
        pools = tuple(books.frozen(place.pool, "num_evictions") for place in self.places)
        return pools, frozenset(seqs.items()), self.window_used

    def clone(self) -> World:
        twin = object.__new__(World)
        vars(twin).update(vars(self))
        known: dict[int, object] = {}
        twin.places = [Place(books.cloned(p.pool, known), p.cache.clone()) for p in self.places]
        pools = {id(old.pool): new.pool for old, new in zip(self.places, twin.places)}
        twin.live = [
            replace(
                s,
                tokens=[*s.tokens],
                table=books.cloned(s.table, known, pool=pools[id(s.table.pool)]),
            )
            for s in self.live
        ]
        twin.names = self.names.copy()
        return twin

    # --- the parts of a step -------------------------------------------------------------------

    def _reserve(self, work: Work) -> bool:
        pool, tables = self.device.pool, [seq.table for seq, _, _ in work]
        counts, before, free = [n for _, n, _ in work], self.frozen(), self.device.pool.num_free
        tails = self._tails_to_write(work)
        num_copies = sum(n - self._is_spared(tail, n) for tail, n in tails.items())
        ends = [t.num_tokens + n for t, n in zip(tables, counts)]
        grown = sum(-(-end // self.block_size) - len(t.block_ids) for t, end in zip(tables, ends))
        published = {tail for tail in tails if pool.prefix_hash[tail] is not None}
        num_evictions, num_blank = pool.num_evictions, free - pool.num_cached
        try:
            copies = reserve(tables, counts)
        except OutOfBlocks:
            assert self.frozen() == before, "a refused step changed something"
            assert num_copies + grown > free, (
                f"{num_copies + grown} blocks would have fitted {free}"
            )
            count("refused step")
            return False
        sources, destinations = {c.source for c in copies}, {c.destination for c in copies}
        assert free - pool.num_free == num_copies + grown, "more or fewer blocks taken than needed"
        evicted = pool.num_evictions - num_evictions
        assert evicted == max(0, num_copies + grown - num_blank), "blank blocks go before prefixes"
        assert len(copies) == num_copies, f"{num_copies} copies are needed, {copies} were planned"
        assert not sources & destinations, f"copies chain: {copies}"
        assert len(destinations) == len(copies), f"two copies have one destination: {copies}"
        books.check_books(self, self.device)
        books.check_ledger(self, self.device)
        count("copy-on-write", len(copies))
        count("copy of a published block", len(published))
        count("last sibling writes in place", sum(tails.values()) - len(copies))
        count("eviction", evicted)
        self.device.cache.copy(copies)
        self.device.cache.write(
            tables,
            [self.prefix(s, p) for (s, n, _), end in zip(work, ends) for p in range(end - n, end)],
        )
        return True

    def _tails_to_write(self, work: Work) -> Counter[int]:
        """Shared or published partial blocks -> how many sequences of this step write into them."""
        pool = self.device.pool
        partial = [s.table for s, n, _ in work if n and s.table.num_tokens % self.block_size]
        tails = Counter(table.block_ids[-1] for table in partial)
        shared = {b for b in tails if pool.ref_count[b] > 1 or pool.prefix_hash[b] is not None}
        return Counter({b: n for b, n in tails.items() if b in shared})

    def _is_spared(self, tail: int, num_writers: int) -> bool:
        """The last of all holders writes in place, unless the index has promised the block."""
        pool = self.device.pool
        return num_writers == pool.ref_count[tail] and pool.prefix_hash[tail] is None

    def _read_all(self, seq: Seq, end: int) -> None:
        place = next(p for p in self.places if p.pool is seq.table.pool)
        expected = [self.prefix(seq, p) for p in range(end)]
        bad = place.cache.first_misread(seq.table, expected)
        assert bad is None, f"{seq.name} reads something else at position {bad} of {seq.tokens}"

    def _commit(self, seq: Seq, num_new: int, num_kept: int) -> None:
        table, before = seq.table, list(seq.table.block_ids)
        end = table.num_tokens + num_kept
        table.commit(seq.tokens, *([end] if num_kept < num_new else []))
        if num_kept < num_new:
            del seq.tokens[end:]
            count("rejected draft")
        assert table.num_tokens == table.num_reserved == end
        adopted = sum(old != new for old, new in zip(before, table.block_ids))
        count("adoption of a twin", adopted)

    def _check_findable(self, seq: Seq) -> None:
        """What is full and written can be found from now on, in this very block."""
        table, size = seq.table, self.block_size
        if table.root is None:
            return
        computed = tuple(seq.tokens[: table.num_tokens])
        for i, prefix_hash in enumerate(prefix_hashes(computed, size, table.root)):
            name = Prefix(computed[: (i + 1) * size], seq.salt, seq.weights)
            other = self.names.setdefault(prefix_hash, name)
            assert other == name, f"{name} and {other} have one hash"
        if not self.window_used:
            found = table.find_prefix([*computed, 0])
            full = table.block_ids[: len(computed) // size]
            assert found == full, f"{seq.name} holds {full}, a lookup of its tokens finds {found}"

    def _check_undone(self, before: tuple) -> None:
        for old, new, what in zip(before, self.promises(), ("free", "ref_count", "tables")):
            assert old == new, f"{what} was {old}, is {new} after the step was undone"

    def _next_name(self) -> str:
        self.num_born += 1
        letter, round_ = chr(ord("A") + (self.num_born - 1) % 26), (self.num_born - 1) // 26
        return f"{letter}{round_ or ''}"
