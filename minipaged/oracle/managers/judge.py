"""The books that both judges keep: who holds which block, and what every slot must hold.

A judge carries one program out on one adapter. Whatever breaks a law raises ``Broken`` with the
law's name; the story of what was done is kept beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .contract import ManagerContract, Size
from .promises import Promises
from .shadow import Cells, Names


class Broken(Exception):
    """A law was broken."""

    def __init__(self, law: str, message: str):
        super().__init__(message)
        self.law, self.message = law, message


def brief(tokens: Sequence[int]) -> str:
    """Tokens as a person reads them; of very many, the first."""
    more = f", ... {len(tokens)} in all" if len(tokens) > 24 else ""
    return f"[{', '.join(map(str, tokens[:24]))}{more}]"


@dataclass(eq=False)
class Seq:
    """One sequence as the judge knows it; ``chain`` numbers the prefix of every token."""

    name: str
    key: str | None
    tokens: list[int]
    chain: list[int]
    computed: int = 0  # positions whose K/V are written
    first: int = 0  # positions before it are passed by a window
    published: int = 0  # full blocks that were committed
    sure: bool = True  # False: it lived through a reset, so what it publishes may be found or not
    order: tuple[int, int] = (0, 0)
    born: bool = False  # forked, for schedulers: its parent has its first token
    num_prompt: int = 0
    max_tokens: int = 0
    num_samples: int = 1
    waits: int = 0  # steps in which a decode was passed by prompts
    overtaken: set[str] = field(default_factory=set)
    host: bool = False
    pending: bool = False  # in this step: the rest of a prompt, not new tokens
    preempted: bool = False
    unsure: bool = False  # its first step failed: whether it looks up its prefix again is open

    @property
    def left(self) -> int:
        """Tokens that are known but not computed."""
        return len(self.tokens) - self.computed


class Judge:
    """What pools and schedulers have in common."""

    def __init__(self, adapter: Any, size: Size, contract: ManagerContract, judged: Counter[str]):
        self.adapter, self.size, self.contract, self.judged = adapter, size, contract, judged
        self.names, self.cells = Names(), Cells(size.num_blocks, size.block_size)
        self.host = Cells(size.num_host_blocks, size.block_size)
        self.cache = Promises(size.block_size)
        self.live: dict[str, Seq] = {}
        self.tables: dict[str, list[int]] = {}
        self.capacity = size.num_blocks - contract.reserved_blocks
        self.num_free = self.capacity
        self.story: list[str] = []
        self.calls = self.num_born = self.now = self.num_idle = 0
        self.windowed = False
        self.before_call: Callable[[], None] = lambda: None
        self.after_call: Callable[[], None] = lambda: None

    # --- talking to the manager ----------------------------------------------------------------

    def call(self, method: str, *args: Any) -> Any:
        """One call of the adapter; what it raises breaks the law "does not crash"."""
        self.calls += 1
        self.before_call()
        try:
            return getattr(self.adapter, method)(*args)
        except Broken:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}".strip().rstrip(":")
            raise Broken("does not crash", f"{method} raised {told}") from error
        finally:
            self.after_call()

    def has(self, method: str) -> bool:
        """Whether the manager has an optional method."""
        return callable(getattr(self.adapter, method, None))

    def require(self, law: str, holds: object, message: Callable[[], str] | str) -> None:
        """Count the law; raise if it does not hold."""
        self.judged[law] += 1
        if not holds:
            raise Broken(law, message if isinstance(message, str) else message())

    def tell(self, line: str) -> None:
        """One line of the story."""
        self.story.append(line)

    def known_key(self, key: str | None) -> str | None:
        """The drawn key, or the next best that this contract knows."""
        if key is None:
            return None if self.contract.opt_out else ""
        return key if key in self.contract.keys else self.contract.keys[-1 if key else 0]

    def new_name(self) -> str:
        """A, B, ... Z, A1, ..."""
        self.num_born += 1
        number, letter = divmod(self.num_born - 1, 26)
        return chr(65 + letter) + (str(number) if number else "")

    # --- looking at the manager ----------------------------------------------------------------

    def look(self) -> tuple[dict[str, list[int]], int]:
        """Tables and free blocks as the manager tells them; what cannot be is a failure."""
        tables = self.read_tables("tables", self.size.num_blocks)
        num_free = self.call("num_free")
        sane = isinstance(num_free, int) and 0 <= num_free <= self.capacity
        self.require("block ids", sane, lambda: f"num_free is {num_free!r} of {self.capacity}")
        return tables, num_free

    def read_tables(self, method: str, num_blocks: int) -> dict[str, list[int]]:
        """Everybody's blocks: known names, ids of the pool, none twice in one table."""
        told = self.call(method)
        self.require("block ids", isinstance(told, Mapping), lambda: f"{method} gave {told!r}")
        tables = {str(name): self._ids(name, ids, num_blocks) for name, ids in told.items()}
        return {name: ids for name, ids in tables.items() if ids}

    def _ids(self, name: Any, block_ids: Any, num_blocks: int) -> list[int]:
        """One table, if it can be one."""
        try:
            ids = [int(b) for b in block_ids]
        except (TypeError, ValueError):
            raise Broken("block ids", f"the table of {name} is {block_ids!r}") from None
        if not ids:
            return ids
        law = "block ids"
        self.require(law, name in self.live, lambda: f"{name} has ended, but holds {ids}")
        passed = self.live[name].first // self.size.block_size
        held = [b for b in ids if b >= 0]
        sane = all(-1 <= b < num_blocks for b in ids)
        self.require(law, sane, lambda: f"the table of {name} is {brief(ids)}, {num_blocks} exist")
        seen = "the window still sees" if passed or self.size.window else "are still read"
        whole = -1 not in ids[passed:]
        self.require(law, whole, lambda: f"blocks that {seen} are missing: {name} has {brief(ids)}")
        once = len(set(held)) == len(held)
        self.require(law, once, lambda: f"a block is twice in the table of {name}: {ids}")
        return ids

    @staticmethod
    def held(tables: Mapping[str, Sequence[int]]) -> set[int]:
        """All blocks that somebody holds."""
        return {b for ids in tables.values() for b in ids if b >= 0}

    def pairs(self, copies: Iterable[tuple[int, int]] | None, sources: int, targets: int) -> list:
        """Block copies, if they are such."""
        try:
            pairs = [(int(a), int(b)) for a, b in copies or ()]
        except (TypeError, ValueError):
            raise Broken("copies", f"{copies!r} are no pairs of blocks") from None
        for a, b in pairs:
            sane = 0 <= a < sources and 0 <= b < targets
            self.require(
                "copies", sane, lambda a=a, b=b: f"a copy goes from block {a} to block {b}"
            )
        into = [b for _, b in pairs]
        self.require("copies", len(set(into)) == len(into), lambda: f"two copies into one: {pairs}")
        return pairs

    # --- blocks change hands -------------------------------------------------------------------

    def hand_out(self, fresh: set[int], before: set[int], held: set[int], copies: list) -> None:
        """New blocks: those evicted must be the right ones; all are blank, then copies arrive."""
        chained = {a for a, _ in copies} & {b for _, b in copies}
        self.require("copies", not chained, lambda: f"copies chain: {copies}")
        cached = self.cache.cached(before)
        evicted, left = cached & fresh, cached - fresh - held
        blank = set(range(self.size.num_blocks)) - before - held - set(self.cache.holder)
        if self.contract.blank_first and evicted:
            self.require(
                "blank blocks first",
                len(blank) <= self.contract.reserved_blocks,
                lambda: f"prefixes in {sorted(evicted)} were evicted, {sorted(blank)} are blank",
            )
        if self.contract.eviction == "lru" and evicted:
            wrong = self.cache.wrong_victim(evicted, left)
            self.require(
                "eviction order",
                wrong is None,
                lambda: f"block {wrong[0]} was evicted, {wrong[1]} has been unused for longer",  # type: ignore[index]
            )
        if self.contract.tail_first and evicted and not self.windowed:
            wrong = self.cache.orphan(evicted, left)
            self.require(
                "eviction order",
                wrong is None,
                lambda: f"block {wrong[0]} was evicted, its continuation in {wrong[1]} was not",  # type: ignore[index]
            )
        read = [(b, self.cells.block(a)) for a, b in copies]
        for block_id in fresh:
            self.cache.lose(block_id)
        self.cells.blank(fresh)
        for block_id, cells in read:
            self.cells.put(block_id, cells)

    def write(self, work: list[tuple[Seq, int, int]], tables: Mapping[str, list[int]]) -> None:
        """The step computes: everybody writes what is new, then everybody reads everything."""
        for seq, start, stop in work:
            self.check_slots(seq, start, stop, tables[seq.name])
            for position in range(start, stop):
                self._write_one(seq, position, tables)
        for seq, _, stop in work:
            self.read(seq, tables[seq.name], stop)
        busy = {id(seq) for seq, _, _ in work}
        for seq in self.live.values():
            if seq.name in tables and id(seq) not in busy:
                self.read(seq, tables[seq.name], seq.computed)

    def _write_one(self, seq: Seq, position: int, tables: Mapping[str, list[int]]) -> None:
        table = tables[seq.name]
        slot, number = self.cells.slot(table, position), seq.chain[position]
        block_id = table[position // self.size.block_size]
        if block_id in self.cache.holder and not self.cache.is_sure(block_id):
            self.cache.lose(block_id)  # the twin that was never entered
        if block_id in self.cache.holder:
            same = self.contract.rewrites and self.cells.cells[slot] == number
            self.require(
                "shared blocks are not written",
                same,
                lambda: (
                    f"{seq.name} writes position {position} into block {block_id}, published "
                    f"as {self.names.text(self.cache.holder[block_id][-1])}"
                ),
            )
        self.cells.cells[slot] = number

    def check_slots(self, seq: Seq, start: int, stop: int, table: list[int]) -> None:
        """Slots that the manager names itself lie where the table says."""
        if self.has("slots"):
            slots = [self.cells.slot(table, p) for p in range(start, stop)]
            told = self.call("slots", seq.name, start, stop)
            self.require(
                "slots",
                list(told) == slots,
                lambda: f"slots of {seq.name}[{start}:{stop}] are {told}, the table is {table}",
            )

    def read(self, seq: Seq, table: list[int], stop: int, cells: Cells | None = None) -> None:
        """The law of laws: every position reads its own prefix."""
        cells = cells or self.cells
        short = len(table) * self.size.block_size < stop
        self.require(
            "table length", not short, lambda: f"{seq.name} has {stop} tokens in {brief(table)}"
        )
        wrong = cells.first_wrong(table, seq.chain[:stop], seq.first)
        if wrong is None:
            self.judged["content"] += 1
            return
        slot = cells.slot(table, wrong)
        where = f"slot {slot} (block {slot // self.size.block_size} of {brief(table)})"
        self.require(
            "content",
            False,
            f"{seq.name} reads position {wrong} in {where}: it holds "
            f"{self.names.text(cells.cells[slot])}, should be {self.names.text(seq.chain[wrong])}",
        )

    def publish(self, seq: Seq, table: Sequence[int]) -> None:
        """What is full and committed must be findable from now on."""
        if not self.caches(seq):
            return
        ends = self.cache.ends(seq.chain, seq.computed)
        for i in range(seq.published, len(ends)):
            if table[i] >= 0:
                known = self.cache.blocks.get(ends[i], set())
                if self.contract.deduplicates and seq.sure and ends[i] not in self.cache.doubtful:
                    self.require(
                        "no prefix twice",
                        not known or table[i] in known,
                        lambda i=i, known=known: (
                            f"{self.names.text(ends[i])} is in block "
                            f"{min(known)}, and {seq.name} keeps another in block {table[i]}"
                        ),
                    )
                self.cache.publish(table[i], ends[: i + 1], sure=seq.sure)
                self.cache.use([table[i]])
        seq.published = max(seq.published, len(ends))

    def caches(self, seq: Seq) -> bool:
        """Whether this sequence takes part in the prefix cache."""
        return self.size.cache and self.contract.prefix_cache and seq.key is not None

    def settle(self, *, open_step: bool = False) -> None:
        """After every act: nothing lost, nothing twice, everybody still reads his own."""
        self.now += 1
        self.tables, self.num_free = self.look()
        held = self.held(self.tables)
        if not open_step:
            self.require(
                "no block is lost",
                self.num_free + len(held) == self.capacity,
                lambda: (
                    f"{len(held)} blocks are held, {self.num_free} are free, {self.capacity} exist"
                ),
            )
            for name, table in self.tables.items():
                self._check_length(self.live[name], table)
            if self.has("check"):
                self.call("check")
        for name, table in self.tables.items():
            self.read(self.live[name], table, self.live[name].computed)
        self._settle_host()
        self.cache.tick(self.now, held)
        readable = set()
        for name, table in self.tables.items():
            seq = self.live[name]
            start = seq.first // self.size.block_size * self.size.block_size
            readable |= {self.cells.slot(table, p) for p in range(start, seq.computed)}
        for block_id in self.cache.holder:
            start = block_id * self.size.block_size
            readable |= set(range(start, start + self.size.block_size))
        self.cells.poison_all_but(readable)

    def _settle_host(self) -> None:
        """Who is swapped out still reads his own there, and nothing is lost there either."""
        hosts = [seq for seq in self.live.values() if seq.host]
        is_counted = self.size.num_host_blocks and self.has("num_host_free")
        if not hosts and not is_counted:
            return
        exist = self.size.num_host_blocks
        tables = self.read_tables("host_tables", exist)
        for seq in hosts:
            self.read(seq, tables.get(seq.name, []), seq.computed, self.host)
        if is_counted:
            free, held = self.call("num_host_free"), len(self.held(tables))
            self.require(
                "no block is lost",
                free + held == exist,
                lambda: f"on the host {held} blocks are held, {free} are free, {exist} exist",
            )

    def _check_length(self, seq: Seq, table: list[int]) -> None:
        least = -(-seq.computed // self.size.block_size)
        most = (
            least
            if self.contract.exact_tables
            else -(-(len(seq.tokens) + 1) // self.size.block_size)
        )
        self.require(
            "table length",
            least <= len(table) <= most,
            lambda: f"{seq.name} has {seq.computed} tokens in {len(table)} blocks: {brief(table)}",
        )

    def check_hit(self, seq: Seq, hit: Any, expected: tuple[int, int]) -> None:
        """A hit is whole blocks, leaves a token, finds all it must, and nothing it cannot."""
        size = self.size.block_size
        sane = isinstance(hit, int) and 0 <= hit < len(seq.tokens) and hit % size == 0
        self.require(
            "length of a hit",
            sane,
            lambda: (
                f"{seq.name} has {len(seq.tokens)} tokens, {hit!r} were found (blocks of {size})"
            ),
        )
        must, may = (n * size for n in expected) if self.caches(seq) else (0, 0)
        self.require(
            "hits are found",
            hit >= must,
            lambda: f"of {seq.name} {brief(seq.tokens)} {hit} tokens were found, {must} are cached",
        )
        self.require(
            "nothing else is found",
            hit <= may or self._in_step(seq, hit),
            lambda: (
                f"of {seq.name} {brief(seq.tokens)} {hit} tokens were found, {may} can be cached"
            ),
        )

    def _in_step(self, seq: Seq, hit: int) -> bool:
        """Whether others compute this very prefix in this step, and that may be shared."""
        if not self.contract.shares_in_step or not self.caches(seq):
            return False
        return any(
            other is not seq
            and self.caches(other)
            and other.chain[hit - 1 : hit] == seq.chain[hit - 1 : hit]
            for other in self.live.values()
        )
