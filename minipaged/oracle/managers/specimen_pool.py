"""A block pool to plant faults in: small, complete, and written apart from minipaged's own.

Reference counts, prefix cache, copy-on-write. It differs on purpose: prefixes are numbered, not
hashed; twins may both stay; one queue holds all free blocks (blank ones are put to its head). Every
method is a place where the museum can plant a fault.
"""

# ruff: noqa: D102 - what each method means is said in ``protocol``

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace

from .contract import ALIKE, ManagerContract, Size

POOL = ManagerContract(deduplicates=False, cache_off=True, keys=("", *ALIKE))
"""What the specimen promises: all but that a prefix never lies in two blocks."""


@dataclass
class Entry:
    """One sequence in the pool."""

    root: object
    table: list[int] = field(default_factory=list)
    computed: int = 0
    reserved: int = 0
    keys: list = field(default_factory=list)  # of its full, written blocks
    copy: tuple[int, int] | None = None  # of the open step


class Pool:
    """Blocks, tables and the prefix index; speaks the protocol of ``PoolAdapter``."""

    def __init__(self, size: Size):
        self.block_size, self.caching, num_blocks = size.block_size, size.cache, size.num_blocks
        self.refs = [0] * num_blocks
        self.free_queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.key_of: dict[int, object] = {}
        self.index: dict[object, int] = {}
        self.numbers: dict[object, int] = {}  # of prefixes
        self.pins: Counter[int] = Counter()
        self.entries: dict[str, Entry] = {}

    # --- blocks --------------------------------------------------------------------------------

    def num_free(self) -> int:
        return len(self.free_queue)

    def take(self) -> int:
        block = self.next_victim()
        self.evict(block)
        self.refs[block] = 1
        return block

    def next_victim(self) -> int:
        return self.free_queue.popitem(last=False)[0]

    def evict(self, block: int) -> None:
        key = self.key_of.pop(block, None)
        if self.index.get(key) == block:
            del self.index[key]

    def hold(self, block: int) -> None:
        if self.refs[block] == 0 and not self.pins[block]:
            del self.free_queue[block]
        self.refs[block] += 1

    def drop(self, block: int) -> None:
        self.refs[block] -= 1
        self.put_back(block)

    def put_back(self, block: int) -> None:
        if self.refs[block] == 0 and not self.pins[block]:
            self.free_queue[block] = None
            self.free_queue.move_to_end(block, last=self.is_worth_keeping(block))

    def is_worth_keeping(self, block: int) -> bool:
        return block in self.key_of

    def drop_all(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.drop(block)

    # --- prefixes ------------------------------------------------------------------------------

    def root(self, key: str | None) -> object:
        return ("root", key)

    def key(self, parent: object, tokens: list[int]) -> object:
        return self.numbers.setdefault((parent, tuple(tokens)), len(self.numbers))

    def keys(self, tokens: list[int], root: object) -> list[object]:
        keys, parent, size = [], root, self.block_size
        for end in range(size, len(tokens) + 1, size):
            parent = self.key(parent, tokens[end - size : end])
            keys.append(parent)
        return keys

    def usable(self, tokens: list[int]) -> list[int]:
        return tokens[:-1]

    def known(self, tokens: list[int], root: object) -> list[int]:
        blocks = []
        for key in self.keys(self.usable(tokens), root):
            if key not in self.index:
                break
            blocks.append(self.index[key])
        return blocks if self.caching else []

    def find(self, tokens: list[int], key: str | None) -> int:
        return len(self.known(tokens, self.root(key))) * self.block_size

    def publish(self, block: int, key: object) -> None:
        if self.caching and self.index.setdefault(key, block) == block:
            self.key_of[block] = key

    def reset(self) -> None:
        self.index.clear()
        self.key_of.clear()

    # --- sequences -----------------------------------------------------------------------------

    def add(self, name: str, tokens: list[int], key: str | None, num_new: int) -> int | None:
        entry = Entry(self.root(key))
        blocks = self.known(tokens, entry.root)
        hit = len(blocks) * self.block_size
        stop = min(len(tokens), hit + num_new)
        if not self.has_room(-(-stop // self.block_size), blocks):
            return None
        self.adopt(entry, blocks, tokens)
        self.grow(entry, stop)
        self.entries[name] = entry
        return hit

    def has_room(self, num_blocks: int, known: list[int]) -> bool:
        revived = sum(self.refs[b] == 0 and not self.pins[b] for b in known)
        return num_blocks - len(known) + revived <= self.num_free()

    def adopt(self, entry: Entry, blocks: list[int], tokens: list[int]) -> None:
        for block in blocks:
            self.hold(block)
        entry.table = list(blocks)
        entry.computed = entry.reserved = len(blocks) * self.block_size
        entry.keys = self.keys(tokens[: entry.computed], entry.root)

    def grow(self, entry: Entry, stop: int) -> None:
        if entry.computed < stop and entry.computed % self.block_size:
            tail = entry.table[-1]
            if not self.may_write(tail):
                self.copy_tail(entry, tail)
        while len(entry.table) < self.blocks_for(stop):
            entry.table.append(self.take())
        entry.reserved = stop

    def blocks_for(self, stop: int) -> int:
        return -(-stop // self.block_size)

    def may_write(self, block: int) -> bool:
        return self.refs[block] == 1 and block not in self.key_of

    def copy_tail(self, entry: Entry, tail: int) -> None:
        entry.copy = tail, self.take()
        self.pins[tail] += 1
        entry.table[-1] = entry.copy[1]
        self.drop(tail)

    def needed(self, work: list[tuple[str, list[int], int]]) -> int:
        total, tails = 0, Counter()
        for name, _, num_new in work:
            entry = self.entries[name]
            total += self.blocks_for(entry.computed + num_new) - len(entry.table)
            if num_new and entry.computed % self.block_size:
                tails[entry.table[-1]] += 1
        return total + sum(self.copies_of(tail, count) for tail, count in tails.items())

    def copies_of(self, tail: int, num_writers: int) -> int:
        if tail in self.key_of:
            return num_writers
        return min(num_writers, self.refs[tail] - 1)

    def reserve(self, work: list[tuple[str, list[int], int]]) -> list[tuple[int, int]] | None:
        if self.needed(work) > self.num_free():
            return None
        for name, _, num_new in work:
            self.grow(self.entries[name], self.entries[name].computed + num_new)
        copies = [self.entries[name].copy for name, _, _ in work]
        return [copy for copy in copies if copy is not None]

    def unpin(self, entry: Entry) -> None:
        if entry.copy is not None:
            source, entry.copy = entry.copy[0], None
            self.pins[source] -= 1
            self.put_back(source)

    def commit(self, name: str, tokens: list[int], num_computed: int) -> None:
        entry = self.entries[name]
        self.unpin(entry)
        self.advance(entry, num_computed)
        keys = self.keys(self.publishable(entry, tokens), entry.root)
        for i in range(len(entry.keys), len(keys)):
            self.publish(entry.table[i], keys[i])
        entry.keys = keys

    def advance(self, entry: Entry, num_computed: int) -> None:
        self.cut(entry, num_computed)

    def publishable(self, entry: Entry, tokens: list[int]) -> list[int]:
        return tokens[: entry.computed]

    def cut(self, entry: Entry, num_tokens: int) -> None:
        keep = self.blocks_for(num_tokens)
        self.drop_all(entry.table[keep:])
        del entry.table[keep:], entry.keys[num_tokens // self.block_size :]
        entry.computed = entry.reserved = num_tokens

    def cancel(self, name: str) -> None:
        self.undo(self.entries[name])

    def undo(self, entry: Entry) -> None:
        if entry.copy is not None:
            source, target = entry.copy
            self.hold(source)
            entry.table[entry.computed // self.block_size] = source
            self.unpin(entry)
            self.drop(target)
        self.cut(entry, entry.computed)

    def truncate(self, name: str, num_tokens: int) -> None:
        self.cut(self.entries[name], num_tokens)

    def fork(self, name: str, child: str) -> None:
        parent = self.entries[name]
        self.share(parent)
        self.entries[child] = replace(parent, table=[*parent.table], keys=[*parent.keys])

    def share(self, parent: Entry) -> None:
        for block in parent.table:
            self.hold(block)

    def free(self, name: str) -> None:
        if name in self.entries:
            self.undo(self.entries[name])
            self.drop_all(self.entries.pop(name).table)

    def tables(self) -> dict[str, list[int]]:
        return {name: entry.table for name, entry in self.entries.items()}
