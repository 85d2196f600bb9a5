"""Faults of reference counts, copies and room; knows no judge."""

from __future__ import annotations

from typing import Any

from ..specimen_pool import Entry, Pool
from .planting import OURS, pool_fault

# --- reference counts and frees ----------------------------------------------------------------


def _share_all_but_last(self: Pool, parent: Entry) -> None:
    for block in parent.table[:-1]:
        self.hold(block)


def _share_first_generation(self: Pool, parent: Entry) -> None:
    for block in parent.table:
        if self.refs[block] < 2:
            self.hold(block)


def _hold_at_most_15(self: Pool, block: int) -> None:
    Pool.hold(self, block)
    self.refs[block] = min(15, self.refs[block])


def _hold_in_eight_bits(self: Pool, block: int) -> None:
    Pool.hold(self, block)
    self.refs[block] &= 255


def _hold_without_leaving_queue(self: Pool, block: int) -> None:
    self.refs[block] += 1


def _drop_shared_too_early(self: Pool, block: int) -> None:
    self.refs[block] -= 1
    if self.refs[block] == 1 and block in self.key_of:
        self.refs[block] = 0
    self.put_back(block)


def _drop_late(self: Pool, block: int) -> None:
    self.refs[block] -= 1
    if self.refs[block] == 0 and block % 3 != 2:
        self.put_back(block)


def _free_keeps_tail(self: Pool, name: str) -> None:
    if name in self.entries:
        self.cancel(name)
        entry = self.entries.pop(name)
        self.drop_all(entry.table[: self.blocks_for(entry.computed) - (entry.computed % 7 == 5)])


def _free_forgets_reservation(self: Pool, name: str) -> None:
    if name in self.entries:
        self.drop_all(self.entries.pop(name).table)


def _free_twice(self: Pool, name: str) -> None:
    if name in self.entries:
        self.cancel(name)
        self.drop_all(self.entries[name].table)


def _cancel_keeps_target(self: Pool, name: str) -> None:
    entry = self.entries[name]
    if entry.copy is not None:
        self.hold(entry.copy[0])
        entry.table[entry.computed // self.block_size] = entry.copy[0]
        self.unpin(entry)
    self.cut(entry, entry.computed)


def _cancel_forgets_source(self: Pool, name: str) -> None:
    entry = self.entries[name]
    self.unpin(entry)
    self.cut(entry, entry.computed)


COUNTS, FREES = "reference counts", "double free, leak"
pool_fault("a fork does not count its last block", COUNTS, "vLLM #1556", share=_share_all_but_last)
pool_fault("only the first fork counts", COUNTS, "vLLM #1556", share=_share_first_generation)
pool_fault("counts end at fifteen holders", COUNTS, OURS, hold=_hold_at_most_15)
pool_fault("counts have eight bits", COUNTS, OURS, hold=_hold_in_eight_bits)
pool_fault(
    "a revived block stays in the free queue",
    FREES,
    "vLLM #11562",
    hold=_hold_without_leaving_queue,
)
pool_fault(
    "a shared prefix is free when one holder is left",
    COUNTS,
    "mini-sglang #46",
    drop=_drop_shared_too_early,
)
pool_fault("some blocks never come back", FREES, "LMCache #1034", drop=_drop_late)
pool_fault("an end at some lengths keeps the last block", FREES, OURS, free=_free_keeps_tail)
pool_fault(
    "an end in the middle of a step forgets the copy's source",
    FREES,
    "mini-sglang #16",
    free=_free_forgets_reservation,
)
pool_fault("what has ended is freed a second time", FREES, "vLLM #42571", free=_free_twice)
pool_fault("a cancelled copy keeps its target", FREES, OURS, cancel=_cancel_keeps_target)
pool_fault("a cancelled copy loses its source", FREES, OURS, cancel=_cancel_forgets_source)
pool_fault(
    "a copied tail is never unpinned", FREES, "LMCache #1034", unpin=lambda self, entry: None
)

# --- copy-on-write -----------------------------------------------------------------------------


def _copy_without_pin(self: Pool, entry: Entry, tail: int) -> None:
    entry.copy = tail, self.take()
    entry.table[-1] = entry.copy[1]
    self.drop(tail)


def _unpin_nothing(self: Pool, entry: Entry) -> None:
    entry.copy = None


def _forget_copies(self: Pool, work: list) -> Any:
    copies = Pool.reserve(self, work)
    return copies[:1] if copies else copies


def _cut_gives_back_partial(self: Pool, entry: Entry, num_tokens: int) -> None:
    self.drop_all(entry.table[num_tokens // self.block_size :])
    del entry.table[num_tokens // self.block_size :]
    del entry.keys[num_tokens // self.block_size :]
    entry.computed = entry.reserved = num_tokens


def _cut_at_edge_keeps_block(self: Pool, entry: Entry, num_tokens: int) -> None:
    keep = num_tokens // self.block_size + 1
    self.drop_all(entry.table[keep:])
    del entry.table[keep:], entry.keys[num_tokens // self.block_size :]
    entry.computed = entry.reserved = num_tokens


def _cut_keeps_keys(self: Pool, entry: Entry, num_tokens: int) -> None:
    keys = list(entry.keys)
    Pool.cut(self, entry, num_tokens)
    entry.keys = keys


COPIES = "copy-on-write"
pool_fault(
    "shared tails are written in place",
    COPIES,
    "vLLM #417",
    may_write=lambda self, block: block not in self.key_of,
)
pool_fault(
    "a published tail of one holder is written",
    COPIES,
    "openvino.genai #800",
    may_write=lambda self, block: self.refs[block] == 1,
)
pool_fault(
    "two holders may both write", COPIES, "vLLM #417", may_write=lambda self, b: self.refs[b] <= 2
)
pool_fault("every tail is copied", COPIES, "vLLM #417", may_write=lambda self, block: False)
pool_fault(
    "a copy's source may be handed out before the copy has run",
    COPIES,
    "vLLM #45357",
    copy_tail=_copy_without_pin,
    unpin=_unpin_nothing,
)
pool_fault("only the first copy of a step is told", COPIES, OURS, reserve=_forget_copies)
pool_fault("truncation gives back the partial block", COPIES, OURS, cut=_cut_gives_back_partial)
pool_fault(
    "truncation at a block's edge keeps the block", FREES, OURS, cut=_cut_at_edge_keeps_block
)
pool_fault("a refilled block keeps its old key", COPIES, "openvino.genai #800", cut=_cut_keeps_keys)

# --- all or nothing ----------------------------------------------------------------------------


def _reserve_without_asking(self: Pool, work: list) -> Any:
    copies = []
    for name, _, num_new in work:
        entry = self.entries[name]
        if self.blocks_for(entry.computed + num_new) - len(entry.table) > self.num_free():
            return None
        self.grow(entry, entry.computed + num_new)
        copies += [entry.copy] if entry.copy else []
    return copies


def _room_forgets_revived(self: Pool, num_blocks: int, known: list[int]) -> bool:
    return num_blocks - len(known) <= self.num_free()


def _add_touches_first(self: Pool, name: str, tokens: list, key: str, num_new: int) -> Any:
    entry = Entry(self.root(key))
    blocks = self.known(tokens, entry.root)
    self.adopt(entry, blocks, tokens)
    stop = min(len(tokens), entry.computed + num_new)
    if self.blocks_for(stop) - len(blocks) > self.num_free():
        return None
    hit = entry.computed
    self.grow(entry, stop)
    self.entries[name] = entry
    return hit


ROOM = "all or nothing"
pool_fault("a step begins before all fits", ROOM, "lightllm #901", reserve=_reserve_without_asking)
pool_fault(
    "copies do not count as needed blocks",
    ROOM,
    "vLLM #11565",
    copies_of=lambda self, tail, num_writers: 0,
)
pool_fault(
    "the last writer is counted as if it copied",
    ROOM,
    "vLLM #3402",
    copies_of=lambda self, tail, num_writers: num_writers,
)
pool_fault("free hits count as room", ROOM, "vLLM #11565", has_room=_room_forgets_revived)
pool_fault("hits are held before room is asked", ROOM, "vLLM #11562", add=_add_touches_first)
pool_fault(
    "hits do not count as room",
    ROOM,
    "vLLM #3402",
    has_room=lambda self, num_blocks, known: num_blocks <= self.num_free(),
)
pool_fault(
    "the last free block is never handed out",
    ROOM,
    OURS,
    has_room=lambda self, n, known: Pool.has_room(self, n + 1, known),
)
