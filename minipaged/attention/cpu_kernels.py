"""The compiled loops of attention on a CPU; knows addresses and strides, not tensors.

An item of work is one kv head and up to `ROWS` query rows (tokens x query heads) of one sequence.
Its keys are read in place, a tile at a time, for all its rows: `scores[t, row]` has the rows side
by side, as lanes, so that the softmax works on whole vectors and never sums across one.

Tiles and splits begin at multiples of `TILE` and `SPLIT` of the position, and every sum runs in the
order of the positions. So a row depends on its query and the keys that it sees, to the last bit,
and not on the rest of the batch, how a prompt was chunked, where blocks lie, how large they are, or
how many threads there were.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import overload

from minipaged.attention import cpu_plan, cpu_primitives
from minipaged.attention.cpu_plan import ITEM, OPTIONS, PROBLEM, SPLIT, TILE, compiled, seen
from minipaged.attention.cpu_primitives import (
    exp,
    multiply_add_4x1,
    multiply_add_4x16,
    multiply_add_8x4,
    pointer,
    prefetch,
    take_number,
    tanh,
    widen,
)

F = np.float32
NEVER = F(-np.inf)  # the score of a key that a row does not see
EVERYTHING = 1 << 60  # more elements than any cache has; the block table says how far it goes

_inline = njit(inline="always", **OPTIONS)  # into its one caller, so that it is compiled once


# -- one tile of keys ------------------------------------------------------------------------------


@compiled
def _locate(p, item, start, first, last, key_at, value_at):
    """Find a tile's keys and values through the block table: where positions become addresses.

    Keys are scored in groups of eight. Those that a group lacks repeat the tile's first key and are
    masked, so that no slot is read that no query of the item sees.
    """
    table = carray(pointer(p.block_tables), (p.num_seqs, p.max_blocks_per_seq), np.int32)[item.seq]
    t = first
    while t < last:
        block, slot = np.int64(table[(start + t) // p.block_size]), (start + t) % p.block_size
        k = block * p.key_block + slot * p.key_slot + item.kv_head * p.key_head
        v = block * p.value_block + slot * p.value_slot + item.kv_head * p.value_head
        for i in range(t, min(t + p.block_size - slot, last)):
            key_at[i], value_at[i] = k, v
            k += p.key_slot
            v += p.value_slot
        t += p.block_size - slot
    key_at[first & ~7 : first] = key_at[first]
    key_at[last : (last + 7) & ~7] = key_at[first]


@compiled
def _prefetch_rows(stored, at, first, last, dim):
    for t in range(first, last):
        for d in range(0, dim, 64 // stored.itemsize):
            prefetch(stored, at[t] + d)


def _readable(stored, scratch, at, first, last, dim):
    """An array with rows of `dim` numbers at `at`: `stored`, or `scratch` with widened copies."""


@overload(_readable)
def _compile_readable(stored, scratch, at, first, last, dim):
    def copies(stored, scratch, at, first, last, dim):
        for t in range(first, last):
            source, target = stored[at[t] : at[t] + dim], scratch[t * dim : (t + 1) * dim]
            for d in range(dim):
                target[d] = widen(source[d])
            at[t] = t * dim
        return scratch

    def in_place(stored, scratch, at, first, last, dim):
        return stored

    return in_place if stored.dtype == scratch.dtype else copies


@compiled
def _score(scores, lanes, keys, key_at, query, query_at, t):
    """scores[t, row] = key[t] . query[row], for eight keys from t on."""
    dim = len(query_at)
    scores[t * lanes : (t + 8) * lanes] = F(0)
    for n in range(0, lanes & ~15, 16):
        multiply_add_4x16(scores, lanes, keys, key_at, 1, query, query_at, t, n, 0, dim)
        multiply_add_4x16(scores, lanes, keys, key_at, 1, query, query_at, t + 4, n, 0, dim)
    for n in range(lanes & ~15, lanes, 4):
        multiply_add_8x4(scores, lanes, keys, key_at, 1, query, query_at, t, n, 0, dim)


@compiled
def _weigh(p, start, lower, upper, masked, scores, bounds, bias, state, sums, work):
    """Turn the scores of a tile into weights: softcap, ALiBi, mask, exp below a new maximum.

    The loops run over four keys at a time, a row of `4 * lanes` numbers, and `bounds`, `bias` and
    `work` have such rows, too: so even the heads of a single token fill a vector.
    """
    lanes = p.lanes
    row, cap = 4 * lanes, scores.dtype.type(p.softcap)
    top, total, shift = work[0], work[1], work[2]
    top[:] = NEVER
    total[:] = F(0)
    for t in range(lower, upper, 4):
        x, here = scores[t * lanes : t * lanes + row], np.int32(start + t)
        if p.softcap > 0:
            for j in range(row):
                x[j] = cap * tanh(x[j] / cap)
        if p.alibi_slopes:
            for j in range(row):
                x[j] += bias[0, j] * (F(here) + bias[1, j])
        if masked:
            for j in range(row):
                x[j] = x[j] if bounds[0, j] <= here and here < bounds[1, j] else NEVER
        for j in range(row):
            top[j] = max(top[j], x[j])
    for i in range(lanes):
        new = max(max(top[i], top[i + lanes]), max(top[i + 2 * lanes], top[i + 3 * lanes]))
        new = max(new, state[0, i])
        finite = F(0) if new == NEVER else new  # -inf - -inf would be NaN
        for j in range(i, row, lanes):
            shift[j] = finite
        _rescale(state, sums, i, exp(state[0, i] - finite))
        state[0, i] = new
    for t in range(lower, upper, 4):
        x = scores[t * lanes : t * lanes + row]
        for j in range(row):
            x[j] = exp(x[j] - shift[j])
            total[j] += x[j]
    for i in range(lanes):
        state[1, i] += (total[i] + total[i + 2 * lanes]) + (total[i + lanes] + total[i + 3 * lanes])


@compiled
def _accumulate(sums, lanes, scores, lane_at, values, value_at, first, last):
    """sums[row] += weight[t, row] * value[t], for the keys from first to last."""
    dim = len(sums) // lanes
    for i in range(0, lanes, 4):
        for n in range(0, dim & ~15, 16):
            multiply_add_4x16(
                sums, dim, scores, lane_at, lanes, values, value_at, i, n, first, last
            )
        for n in range(dim & ~15, dim):
            multiply_add_4x1(sums, dim, scores, lane_at, lanes, values, value_at, i, n, first, last)


# -- partial states: state[0] = m, state[1] = l, sums = acc, as in online_softmax.AttentionState ---


@compiled
def _row(sums, i, lanes):
    dim = len(sums) // lanes
    return sums[i * dim : (i + 1) * dim]


@compiled
def _clear(state, sums):
    state[0] = NEVER
    state[1] = F(0)
    sums[:] = F(0)


@compiled
def _rescale(state, sums, i, factor):
    if factor != F(1):
        state[1, i] *= factor
        row = _row(sums, i, state.shape[1])
        for d in range(len(row)):
            row[d] *= factor


@compiled
def _merge(state, sums, other, its_sums):
    """Merge `other` into `state`; whatever it holds in rows that saw nothing is not looked at."""
    lanes = state.shape[1]
    for i in range(lanes):
        if other[0, i] != NEVER:
            m = max(state[0, i], other[0, i])
            factor = exp(other[0, i] - m)
            _rescale(state, sums, i, exp(state[0, i] - m))
            state[0, i] = m
            state[1, i] += factor * other[1, i]
            mine, its = _row(sums, i, lanes), _row(its_sums, i, lanes)
            for d in range(len(mine)):
                mine[d] += factor * its[d]


@compiled
def _finish(p, item, state, sums):
    """Count the sink, divide, and store the item's rows."""
    group, dim, number = p.num_heads // p.num_kv_heads, p.value_head_dim, sums.dtype.type
    starts = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32)
    out = carray(pointer(p.out), p.num_tokens * p.num_heads * dim, number)
    lse = carray(pointer(p.lse), p.num_tokens * p.num_heads, number)
    for i in range(item.num_tokens * group):
        head = item.kv_head * group + i % group
        at = (starts[item.seq] + item.first_token + i // group) * p.num_heads + head
        if p.sinks:
            sink = carray(pointer(p.sinks), p.num_heads, number)[head]
            m = max(state[0, i], sink)
            if m != NEVER:
                _rescale(state, sums, i, exp(state[0, i] - m))
                state[0, i] = m
                state[1, i] += exp(sink - m)
        factor = F(0) if state[1, i] == F(0) else F(1) / state[1, i]
        if p.v_scale:
            factor *= carray(pointer(p.v_scale), p.num_kv_heads, number)[item.kv_head]
        row, target = _row(sums, i, state.shape[1]), out[at * dim : (at + 1) * dim]
        for d in range(dim):
            target[d] = row[d] * factor
        lse[at] = state[0, i] + math.log(state[1, i])


# -- items and workers -----------------------------------------------------------------------------


@compiled
def _load(p, item, query, bounds, bias):
    """Prepare an item's queries, scaled and side by side, and what each row sees of the keys."""
    group, number, lanes = p.num_heads // p.num_kv_heads, query.dtype.type, p.lanes
    start = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32)[item.seq]
    scale = number(p.scale)
    if p.k_scale:
        scale *= carray(pointer(p.k_scale), p.num_kv_heads, number)[item.kv_head]
    query[:] = F(0)
    bounds[:] = 0  # lanes without a row see nothing
    for i in range(item.num_tokens * group):
        token, head = item.first_token + i // group, item.kv_head * group + i % group
        at = p.query + ((start + token) * p.query_token + head * p.query_head) * query.itemsize
        source = carray(pointer(at), p.head_dim, number)
        for d in range(p.head_dim):
            query[d * lanes + i] = source[d] * scale
        first, last, position = seen(p, item.seq, token)
        for key in range(4):  # of four keys in a row; a later key is the same as an earlier bound
            j = key * lanes + i
            bounds[0, j], bounds[1, j], bias[1, j] = first - key, last - key, key - position
            if p.alibi_slopes:
                bias[0, j] = carray(pointer(p.alibi_slopes), p.num_heads, number)[head]


@_inline
def _attend_tile(p, item, key, value, s, start, low, high, all_low, all_high, state, sums):
    """Absorb the keys of one tile, and ask for those of the next while this one is computed."""
    first, last = max(low - start, 0), min(high - start, TILE)
    lower, upper = first & ~7, (last + 7) & ~7
    turn = start // TILE % 2
    key_at, value_at = s.key_at[turn], s.value_at[turn]
    if start <= low:
        _locate(p, item, start, first, last, key_at, value_at)
    next_last = min(high - start - TILE, TILE)
    if next_last > 0:
        _locate(p, item, start + TILE, 0, next_last, s.key_at[1 - turn], s.value_at[1 - turn])
    keys = _readable(key, s.keys, key_at, lower, upper, p.head_dim)
    for t in range(lower, upper, 8):
        _prefetch_rows(key, s.key_at[1 - turn], t, min(t + 8, next_last), p.head_dim)
        _prefetch_rows(value, s.value_at[1 - turn], t, min(t + 8, next_last), p.value_head_dim)
        _score(s.scores, p.lanes, keys, key_at, s.query, s.query_at, t)
    masked = start + lower < all_low or start + upper > all_high or first > 0
    _weigh(p, start, lower, upper, masked, s.scores, s.bounds, s.bias, state, sums, s.work)
    values = _readable(value, s.values, value_at, first, last, p.value_head_dim)
    _accumulate(sums, p.lanes, s.scores, s.lane_at, values, value_at, first, last)


@_inline
def _attend(p, item, key, value, s, state, sums):
    """Leave in `state` and `sums` the attention of the item's rows over its splits."""
    _load(p, item, s.query, s.bounds, s.bias)
    low, all_high, _ = seen(p, item.seq, item.first_token)
    all_low, high, _ = seen(p, item.seq, item.first_token + item.num_tokens - 1)
    high = min(high, item.last_split * SPLIT)
    for split in range(item.first_split, item.last_split):
        into, into_sums = state, sums
        if split > item.first_split:
            into, into_sums = s.state, s.sums
        _clear(into, into_sums)
        begin = max(low, split * SPLIT)
        for start in range(begin // TILE * TILE, min(high, (split + 1) * SPLIT), TILE):
            _attend_tile(
                p, item, key, value, s, start, begin, high, all_low, all_high, into, into_sums
            )
        if split > item.first_split:
            _merge(state, sums, into, into_sums)


class _Scratch(NamedTuple):
    """The memory of one worker."""

    query: np.ndarray  # [head_dim, lanes], flat
    query_at: np.ndarray  # [head_dim] where its rows begin
    lane_at: np.ndarray  # [lanes]
    scores: np.ndarray  # [TILE, lanes], flat; then the weights
    keys: np.ndarray  # [TILE, head_dim], flat; where stored numbers must be widened
    values: np.ndarray  # [TILE, value_head_dim], flat
    key_at: np.ndarray  # [2, TILE] where the keys of this tile and the next begin
    value_at: np.ndarray  # [2, TILE]
    bounds: np.ndarray  # [2, 4 * lanes] first and last (exclusive) position seen
    bias: np.ndarray  # [2, 4 * lanes] ALiBi slope, and what to add to a position
    work: np.ndarray  # [3, 4 * lanes]
    state: np.ndarray  # [2, lanes]
    sums: np.ndarray  # [lanes, value_head_dim], flat


@_inline
def _work(p, items, key, value, states, sums):
    """Take items while there are any: attend, and store the rows or, of a split item, its state."""
    number, lanes = sums.dtype, p.lanes
    scratch = _Scratch(
        np.empty(p.head_dim * lanes, number),
        np.arange(p.head_dim) * lanes,
        np.arange(lanes),
        np.empty(TILE * lanes, number),
        np.empty(TILE * p.head_dim, number),
        np.empty(TILE * p.value_head_dim, number),
        np.empty((2, TILE), np.int64),
        np.empty((2, TILE), np.int64),
        np.empty((2, 4 * lanes), np.int32),
        np.empty((2, 4 * lanes), number),
        np.empty((3, 4 * lanes), number),
        np.empty((2, lanes), number),
        np.empty(lanes * p.value_head_dim, number),
    )
    state, total = np.empty((2, lanes), number), np.empty(lanes * p.value_head_dim, number)
    i = take_number(p.next_item)
    while i < p.num_items:
        if p.split_up:
            _attend(p, items[i], key, value, scratch, states[i], sums[i])
        else:
            _attend(p, items[i], key, value, scratch, state, total)
            _finish(p, items[i], state, total)
        i = take_number(p.next_item)


@compiled
def _join(p, items, states, sums):
    """Merge the splits of each item, in their order, and store its rows."""
    first = 0
    for i in range(p.num_items):
        if items[i].first_split == items[i].begin:
            first = i
        else:
            _merge(states[first], sums[first], states[i], sums[i])
        if items[i].last_split == items[i].end:
            _finish(p, items[i], states[first], sums[first])


@cache
def worker(stored: str, number: str):
    """The compiled worker for stored numbers of one type and sums of another, in NumPy's names.

    Its `address` is what `cpu_plan.attend` calls. Numba looks for changes only in the file of a
    function that it caches; the modules' times are a part of `work` so that all of them count.
    """
    stored_type, number_type = np.dtype(stored).type, np.dtype(number).type
    files = (__file__, cpu_plan.__file__, cpu_primitives.__file__)
    version = max(Path(file).stat().st_mtime_ns for file in files)

    def work(problem, joining):
        p = carray(pointer(problem), 1, PROBLEM)[0]
        items = carray(pointer(p.items), p.num_items, ITEM)
        states = carray(pointer(p.states), (p.num_items, 2, p.lanes), number_type)
        sums = carray(pointer(p.sums), (p.num_items, p.lanes * p.value_head_dim), number_type)
        if joining:
            _join(p, items, states, sums)
        elif version:
            key = carray(pointer(p.key), EVERYTHING, stored_type)
            value = carray(pointer(p.value), EVERYTHING, stored_type)
            _work(p, items, key, value, states, sums)

    return cfunc(types.void(types.int64, types.int64), cache=True, error_model="numpy")(work)


# -- writing ---------------------------------------------------------------------------------------


@njit(cache=True, **OPTIONS)
def write_rows(source, token, head, target, block, slot, target_head, slots, shape):
    """Copy rows of bytes into their slots, skipping -1; addresses and strides count bytes.

    Returns the first slot that the cache does not have, with nothing written, or -1 if all is well.
    """
    num_tokens, num_heads, num_bytes, block_size, num_slots = shape
    slots = carray(pointer(slots), num_tokens, np.int64)
    for i in range(num_tokens):
        if slots[i] >= num_slots or slots[i] < -1:
            return slots[i]
    for i in range(num_tokens):
        if slots[i] >= 0:
            at = target + slots[i] // block_size * block + slots[i] % block_size * slot
            for h in range(num_heads):
                row = carray(pointer(source + i * token + h * head), num_bytes, np.uint8)
                copy = carray(pointer(at + h * target_head), num_bytes, np.uint8)
                for b in range(num_bytes):
                    copy[b] = row[b]
    return -1
