"""How a call is cut into items of work for CPU threads; knows lengths and blocks, not numbers."""

from __future__ import annotations

import numpy as np
from numba import carray, njit, prange

from minipaged.attention.cpu_primitives import call, pointer

TILE = 32  # keys scored at once; while they are, the next are asked for, which is far enough
SPLIT = 256  # keys in one partial state; a long sequence is the merge of its splits
ROWS = 64  # query rows (tokens x query heads) that share one reading of the keys
SERIAL = 1 << 18  # multiply-adds below which waking threads costs more than it gains

OPTIONS = {"nogil": True, "error_model": "numpy"}
compiled = njit(fastmath={"contract"}, **OPTIONS)

# All that a call reads and writes, as integers. An address of 0 says that there is none, strides
# count elements, a window of 0 is none; the last line is filled in by `attend`.
_fields = """
    query key value out lse block_tables seq_lens query_start_loc alibi_slopes sinks k_scale v_scale
    query_token query_head key_block key_slot key_head value_block value_slot value_head
    num_tokens num_heads head_dim value_head_dim num_blocks block_size num_kv_heads num_seqs
    max_blocks_per_seq causal window
    items num_items rows split_up states sums next_item
"""
PROBLEM = np.dtype(
    [(name, "i8") for name in _fields.split()] + [("scale", "f8"), ("softcap", "f8")]
)

# Some tokens of a sequence, a kv head, and splits `first_split` to `last_split` of the keys, out of
# those from `begin` to `end`: all of them, unless splits are shared out among workers.
_fields = "seq kv_head first_token num_tokens first_split last_split begin end"
ITEM = np.dtype([(name, "i8") for name in _fields.split()])


@compiled
def seen(p, seq, token):
    """First and last (exclusive) position that a query token sees, and its own."""
    starts = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32)
    seq_len = np.int64(carray(pointer(p.seq_lens), p.num_seqs, np.int32)[seq])
    position = seq_len - np.int64(starts[seq + 1] - starts[seq]) + token
    first = max(position - p.window + 1, 0) if p.window else 0
    return first, (max(position + 1, 0) if p.causal else seq_len), position


@compiled
def _sound(p):
    """Whether every row and block that the call would touch exists."""
    starts = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32)
    lengths = carray(pointer(p.seq_lens), p.num_seqs, np.int32)
    tables = carray(pointer(p.block_tables), (p.num_seqs, p.max_blocks_per_seq), np.int32)
    for seq in range(p.num_seqs):
        if starts[seq] > starts[seq + 1]:
            return False
        if starts[seq] < starts[seq + 1]:
            if not 0 <= lengths[seq] <= p.max_blocks_per_seq * p.block_size:
                return False
            first, last = seen(p, seq, 0)[0], -(-lengths[seq] // p.block_size)
            for logical in range(first // p.block_size, last):
                if not 0 <= tables[seq, logical] < p.num_blocks:
                    return False
    return starts[0] == 0 and starts[p.num_seqs] <= p.num_tokens


@compiled
def _list_items(p, items, tokens_per_item, split_up):
    """Fill `items` as far as it reaches; returns how many there are, and their multiply-adds."""
    starts = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32)
    count, cost = 0, 0
    for seq in range(p.num_seqs):
        query_len = np.int64(starts[seq + 1] - starts[seq])
        num_pieces = -(-query_len // tokens_per_item)
        for piece in range(num_pieces):
            first_token = (num_pieces - 1 - piece) * tokens_per_item  # the longest rows first
            num_tokens = min(tokens_per_item, query_len - first_token)
            low = seen(p, seq, first_token)[0]
            high = seen(p, seq, first_token + num_tokens - 1)[1]
            cost += num_tokens * p.num_heads * (high - low) * (p.head_dim + p.value_head_dim)
            begin, end = low // SPLIT, max(-(-high // SPLIT), low // SPLIT + 1)
            step = 1 if split_up else end - begin
            for kv_head in range(p.num_kv_heads):
                for split in range(begin, end, step):
                    if count < len(items):
                        item = items[count]
                        item.seq, item.kv_head = seq, kv_head
                        item.first_token, item.num_tokens = first_token, num_tokens
                        item.first_split, item.last_split = split, split + step
                        item.begin, item.end = begin, end
                    count += 1
    return count, cost


@njit(parallel=True, **OPTIONS)
def _run_workers(work, problem, num_workers):
    for _ in prange(num_workers):
        call(work, problem, 0)


@compiled
def keep_until_here(*arrays):
    """Who holds an address does not hold the array: say that it is still needed."""


@njit(cache=True, **OPTIONS)
def attend(problem, work, num_threads):
    """Run the compiled function `work` on a problem; False if its numbers contradict each other.

    It is called by every worker with 0, to take items until there are none, and once with 1, to
    join split items. There are splits to join only if there is too little work without them.
    """
    p = problem[0]
    if not _sound(p):
        return False
    starts, longest = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32), 1
    for seq in range(p.num_seqs):
        longest = max(longest, np.int64(starts[seq + 1] - starts[seq]))
    group = p.num_heads // p.num_kv_heads
    tokens_per_item = min(max(ROWS // group, 1), longest)
    p.rows = tokens_per_item * group

    nothing, split_up = np.empty(0, ITEM), num_threads < 1
    count, cost = _list_items(p, nothing, tokens_per_item, split_up)
    split_up = num_threads > 1 and cost >= SERIAL and count < 4 * num_threads
    if split_up:
        count, cost = _list_items(p, nothing, tokens_per_item, split_up)
    items, next_item = np.empty(count, ITEM), np.zeros(1, np.int64)
    _list_items(p, items, tokens_per_item, split_up)
    num_states = count * p.rows if split_up else 0
    states, sums = np.empty(num_states * 2), np.empty(num_states * p.value_head_dim)
    p.items, p.num_items, p.split_up = items.ctypes.data, count, split_up
    p.states, p.sums, p.next_item = states.ctypes.data, sums.ctypes.data, next_item.ctypes.data

    if num_threads == 1 or cost < SERIAL:
        call(work, problem.ctypes.data, 0)
    else:
        _run_workers(work, problem.ctypes.data, num_threads)
    if split_up:
        call(work, problem.ctypes.data, 1)
    keep_until_here(items, next_item, states, sums)
    return True
