"""The compiled loops of attention on a CPU; knows addresses and strides, not tensors.

An item of work is one kv head and up to `ROWS` query rows (tokens x query heads) of one sequence.
Its keys are read once, a tile at a time, for all its rows, and turned on the way, so that the keys
of a tile are the lanes of a vector whatever the number of rows:

    keys [t, dim]  ->  turned [dim, t]      scores [row, t] += query [row, dim] * turned [dim, t]
                                            sums [row, dim] += scores [row, t] * values [t, dim]

Tiles and splits begin at multiples of `TILE` and `SPLIT` of the position, and every sum runs in the
order of the positions. So a row depends on its query and the keys that it sees, to the last bit,
and not on the rest of the batch, how a prompt was chunked, where blocks lie, how large they are, or
how many threads there were.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import overload

from minipaged.attention import cpu_matrices, cpu_plan
from minipaged.attention.cpu_matrices import multiply_add, turn
from minipaged.attention.cpu_plan import (
    ITEM,
    OPTIONS,
    PROBLEM,
    SPLIT,
    TILE,
    compiled,
    keep_until_here,
    seen,
)
from minipaged.attention.cpu_primitives import (
    exp,
    largest,
    pointer,
    sum_of,
    take_number,
    tanh,
    version_of,
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

    Keys are turned in groups of 16. Those that a group lacks repeat the tile's first key and are
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
    key_at[first & ~15 : first] = key_at[first]
    key_at[last : (last + 15) & ~15] = key_at[first]


@compiled
def _list_lines(at, first, last, dim, line_at):
    """Where the second of every two cache lines of a tile begins; who sums asks for the first."""
    i = 0
    for row in range(first, last):
        for d in range(16, dim, 32):
            if i < len(line_at):
                line_at[i] = at[row] + d
                i += 1


@compiled
def _locate_first(p, item, key_at, value_at):
    """Find the first tile of an item, if it sees any key."""
    low = max(seen(p, item.seq, item.first_token)[0], item.first_split * SPLIT)
    high = seen(p, item.seq, item.first_token + item.num_tokens - 1)[1]
    start = low // TILE * TILE
    if low < high:
        _locate(p, item, start, low - start, min(high - start, TILE), key_at, value_at)


def _readable(stored, at, scratch, scratch_at, first, last, dim):
    """Where rows of `dim` numbers can be read: in `stored`, or widened copies in `scratch`."""


@overload(_readable)
def _compile_readable(stored, at, scratch, scratch_at, first, last, dim):
    def copies(stored, at, scratch, scratch_at, first, last, dim):
        for t in range(first, last):
            source, target = stored[at[t] : at[t] + dim], scratch[t * dim : (t + 1) * dim]
            for d in range(dim):
                target[d] = widen(source[d])
            scratch_at[t] = t * dim
        return scratch, scratch_at

    def in_place(stored, at, scratch, scratch_at, first, last, dim):
        return stored, at

    return in_place if stored.dtype == scratch.dtype else copies


@compiled
def _weigh(p, start, lower, upper, masked, rows, scores, bounds, bias, state, sums):
    """Turn the scores of a tile into weights: softcap, ALiBi, mask, exp below a new maximum.

    Maxima and totals are those of every 16th key first, and then of these 16.
    """
    cap = scores.dtype.type(p.softcap)
    for i in range(rows):
        x, here = scores[i * TILE + lower : i * TILE + upper], np.int32(start + lower)
        if p.softcap > 0:
            for j in range(len(x)):
                x[j] = cap * tanh(x[j] / cap)
        if p.alibi_slopes:
            slope, position = bias[i], np.int32(here - bounds[2, i])
            for j in range(len(x)):
                x[j] += slope * F(position + np.int32(j))
        if masked:
            first, last = np.int32(bounds[0, i] - here), np.int32(bounds[1, i] - here)
            for j in range(len(x)):
                x[j] = x[j] if first <= np.int32(j) and np.int32(j) < last else NEVER
        top = largest(x, state[0, i])
        finite = F(0) if top == NEVER else top  # -inf - -inf would be NaN
        _rescale(state, sums, i, exp(state[0, i] - finite))
        state[0, i] = top
        for j in range(len(x)):
            x[j] = exp(x[j] - finite)
        state[1, i] += sum_of(x, x.dtype.type(0))


# -- partial states: state[0] = m, state[1] = l, sums = acc, as in online_softmax.AttentionState ---


@compiled
def _row(sums, i, rows):
    dim = len(sums) // rows
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
    rows = state.shape[1]
    for i in range(rows):
        if other[0, i] != NEVER:
            m = max(state[0, i], other[0, i])
            factor = exp(other[0, i] - m)
            _rescale(state, sums, i, exp(state[0, i] - m))
            state[0, i] = m
            state[1, i] += factor * other[1, i]
            mine, its = _row(sums, i, rows), _row(its_sums, i, rows)
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
    """Prepare an item's queries, scaled, and what each row sees of the keys."""
    group, number, dim = p.num_heads // p.num_kv_heads, query.dtype.type, p.head_dim
    start = carray(pointer(p.query_start_loc), p.num_seqs + 1, np.int32)[item.seq]
    scale = number(p.scale)
    if p.k_scale:
        scale *= carray(pointer(p.k_scale), p.num_kv_heads, number)[item.kv_head]
    for i in range(item.num_tokens * group):
        token, head = item.first_token + i // group, item.kv_head * group + i % group
        at = p.query + ((start + token) * p.query_token + head * p.query_head) * query.itemsize
        source = carray(pointer(at), dim, number)
        for d in range(dim):
            query[i * dim + d] = source[d] * scale
        bounds[0, i], bounds[1, i], bounds[2, i] = seen(p, item.seq, token)
        if p.alibi_slopes:
            bias[i] = carray(pointer(p.alibi_slopes), p.num_heads, number)[head]


@_inline
def _attend_tile(
    p, item, upcoming, key, value, s, rows, start, low, high, all_low, all_high, state, sums
):
    """Absorb the keys of one tile, and ask for those of the next while this one is computed.

    After an item's last tile comes the first of the `upcoming` item.
    """
    first, last = max(low - start, 0), min(high - start, TILE)
    lower, upper = first & ~15, (last + 15) & ~15
    parity = start // TILE % 2
    key_at, value_at = s.key_at[parity], s.value_at[parity]
    next_key_at, next_value_at = s.key_at[1 - parity], s.value_at[1 - parity]
    if start <= low:
        _locate(p, item, start, first, last, key_at, value_at)
    next_last = min(high - start - TILE, TILE)
    if next_last > 0:
        _locate(p, item, start + TILE, 0, next_last, next_key_at, next_value_at)
    else:
        _locate_first(p, upcoming, next_key_at, next_value_at)
    keys, from_at = _readable(key, key_at, s.keys, s.widened_at, lower, upper, p.head_dim)
    turn(keys, from_at, lower, upper, p.head_dim, s.turned, key, next_key_at)
    _list_lines(value_at, lower, upper, p.value_head_dim, s.line_at)
    for i in range(rows):
        s.scores[i * TILE + lower : i * TILE + upper] = F(0)
    multiply_add(
        s.scores[lower:], np.int64(TILE), s.query, s.query_at, s.turned[lower:], s.turned_at,
        value, s.line_at, rows, upper - lower, np.int64(0), p.head_dim,
    )  # fmt: skip
    masked = start + lower < all_low or start + upper > all_high or first > 0
    _weigh(p, start, lower, upper, masked, rows, s.scores, s.bounds, s.bias, state, sums)
    values, from_at = _readable(
        value, value_at, s.values, s.widened_at, first, last, p.value_head_dim
    )
    multiply_add(
        sums, p.value_head_dim, s.scores, s.score_at, values, from_at,
        value, next_value_at, rows, p.value_head_dim, first, last,
    )  # fmt: skip


@_inline
def _attend(p, item, upcoming, key, value, s, state, sums):
    """Leave in `state` and `sums` the attention of the item's rows over its splits."""
    _load(p, item, s.query, s.bounds, s.bias)
    rows = item.num_tokens * (p.num_heads // p.num_kv_heads)
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
                p, item, upcoming, key, value, s, rows,
                start, begin, high, all_low, all_high, into, into_sums,
            )  # fmt: skip
        if split > item.first_split:
            _merge(state, sums, into, into_sums)


class _Scratch(NamedTuple):
    """The memory of one worker."""

    query: np.ndarray  # [rows, head_dim], flat
    query_at: np.ndarray  # [rows] where its rows begin
    scores: np.ndarray  # [rows, TILE], flat; then the weights
    score_at: np.ndarray  # [rows]
    turned: np.ndarray  # [head_dim, TILE], flat
    turned_at: np.ndarray  # [head_dim]
    line_at: np.ndarray  # [head_dim]
    keys: np.ndarray  # [TILE, head_dim], flat; where stored numbers must be widened
    values: np.ndarray  # [TILE, value_head_dim], flat
    widened_at: np.ndarray  # [TILE] where the rows of either begin
    key_at: np.ndarray  # [2, TILE] where the keys of this tile and the next begin
    value_at: np.ndarray  # [2, TILE]
    bounds: np.ndarray  # [3, rows] first and last (exclusive) position seen, and the row's own
    bias: np.ndarray  # [rows] ALiBi slope
    state: np.ndarray  # [2, rows]
    sums: np.ndarray  # [rows, value_head_dim], flat


@compiled
def _cut(at, count, number):
    """An array of so many numbers at an address, and the address of what may follow it."""
    array = carray(pointer(at), count, number)
    return array, (at + count * array.itemsize + 63) & ~63


@_inline
def _work(p, items, key, value, states, sums):
    """Take items while there are any: attend, and store the rows or, of a split item, its state.

    All scratch is cut from one allocation: if each array were one, Numba would count references to
    it in every loop, and that took a tenth of the time. `count` must cover every cut below.
    """
    number, rows, dim, value_dim = sums.dtype, p.rows, p.head_dim, p.value_head_dim
    count = rows * (dim + TILE + 2 * value_dim + 12) + dim * (TILE + 2)
    count += TILE * (dim + value_dim + 5)
    memory = np.empty(count * 8 + 20 * 64, np.uint8)
    at = (memory.ctypes.data + 63) & ~63
    query, at = _cut(at, rows * dim, number)
    query_at, at = _cut(at, rows, np.int64)
    scores, at = _cut(at, rows * TILE, number)
    score_at, at = _cut(at, rows, np.int64)
    turned, at = _cut(at, dim * TILE, number)
    turned_at, at = _cut(at, dim, np.int64)
    line_at, at = _cut(at, dim, np.int64)
    keys, at = _cut(at, TILE * dim, number)
    values, at = _cut(at, TILE * value_dim, number)
    widened_at, at = _cut(at, TILE, np.int64)
    key_at, at = _cut(at, 2 * TILE, np.int64)
    value_at, at = _cut(at, 2 * TILE, np.int64)
    bounds, at = _cut(at, 3 * rows, np.int32)
    bias, at = _cut(at, rows, number)
    other, at = _cut(at, 2 * rows, number)
    other_sums, at = _cut(at, rows * value_dim, number)
    state, at = _cut(at, 2 * rows, number)
    total, at = _cut(at, rows * value_dim, number)
    for i in range(rows):
        query_at[i], score_at[i] = i * dim, i * TILE
    for d in range(dim):
        turned_at[d] = d * TILE
    line_at[:], key_at[:], value_at[:] = 0, 0, 0
    scratch = _Scratch(
        query, query_at, scores, score_at, turned, turned_at, line_at, keys, values, widened_at,
        key_at.reshape((2, TILE)), value_at.reshape((2, TILE)), bounds.reshape((3, rows)), bias,
        other.reshape((2, rows)), other_sums,
    )  # fmt: skip
    state = state.reshape((2, rows))
    i = take_number(p.next_item)
    while i < p.num_items:
        following = take_number(p.next_item)
        upcoming = items[min(following, p.num_items - 1)]
        if p.split_up:
            _attend(p, items[i], upcoming, key, value, scratch, states[i], sums[i])
        else:
            _attend(p, items[i], upcoming, key, value, scratch, state, total)
            _finish(p, items[i], state, total)
        i = following
    keep_until_here(memory)


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

    Its `address` is what `cpu_plan.attend` calls.
    """
    stored_type, number_type = np.dtype(stored).type, np.dtype(number).type
    version = version_of(__file__, cpu_matrices.__file__, cpu_plan.__file__)

    def work(problem, joining):
        p = carray(pointer(problem), 1, PROBLEM)[0]
        items = carray(pointer(p.items), p.num_items, ITEM)
        states = carray(pointer(p.states), (p.num_items, 2, p.rows), number_type)
        sums = carray(pointer(p.sums), (p.num_items, p.rows * p.value_head_dim), number_type)
        if joining:
            _join(p, items, states, sums)
        elif version:
            key = carray(pointer(p.key), EVERYTHING, stored_type)
            value = carray(pointer(p.value), EVERYTHING, stored_type)
            _work(p, items, key, value, states, sums)

    return cfunc(types.void(types.int64, types.int64), cache=True, error_model="numpy")(work)
