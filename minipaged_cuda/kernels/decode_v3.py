"""Rung 3: split-KV. Many CTAs share one row's keys, and all query heads of a kv head share a load.

The grid is (num_tokens, num_heads // HEADS, num_splits), the number of threads 32 * NUM_WARPS; with
SPLIT = 0 there is one split. Rung 2 keeps one warp busy per head, so a batch of one leaves most of
the card idle, and it reads K and V once for every query head. Here the tiles that a row sees are
cut into ``num_splits`` runs, the warps of a CTA take turns at the keys of one, and each key meets
HEADS query heads (a divisor of G) in registers. With SPLIT ``merge`` puts the runs together.

::

    keys       |.. split 0 ..|.. split 1 ..|.. split 2 ..|     a CTA each
    warp        0 1 2 3 0 1 2 3 0 ...                          32 // LANES keys a step
    lane        00000000 11111111 22222222 33333333            LANES lanes a key

Each group of lanes has its own online softmax, and only the end brings them together. ``parts``
says what a lane holds of a key; with WIDE = 1 caches are ``Pointer[u32]`` and their strides words.
"""

from minipaged_cuda.kernels.common import (
    LOG2E,
    NEG,
    base_2_score,
    meet,
    natural_lse,
    share,
    visible_keys,
)
from minipaged_cuda.kernels.parts import (
    dot,
    load_part,
    load_words,
    no_words,
    numbers,
    sum_over_lanes,
    weighted,
    zeros,
)
from minipaged_cuda.primitives import (
    Pointer,
    cuda,
    ex2,
    f32,
    i32,
    i64,
    lg2,
    registers,
    static,
)
from minipaged_cuda.primitives import store_float32 as store_out

# Put in by the specialisation, as are the types; `layout` gives the second line.
D = G = BS = HEADS = WINDOW = SOFTCAP = ALIBI = SINKS = SCALES = SPLIT = 0
NUM_WARPS = WIDE = WIDTH = PER_WORD = ELEMENTS = LANES = CHUNKS = 0
OUT = QUERY = KV = f32


def layout(head_dim: int, element_bytes: int, *, wide: bool) -> dict[str, int]:
    """How the lanes of a warp share a key: the constants that follow from its size.

    Args:
        head_dim: D; wide loads need a row of a multiple of 16 bytes.
        element_bytes: Of K and V.
        wide: Whether rows begin at multiples of 16 bytes, and are loaded so.
    """
    elements = 16 // element_bytes if wide else 1
    lanes = 1
    while lanes < 32 and lanes * elements < head_dim:
        lanes *= 2
    return {
        "NUM_WARPS": 4,
        "WIDE": int(wide),
        "WIDTH": 4 if wide else 1,  # offsets from one load to the next
        "PER_WORD": 4 // element_bytes,
        "ELEMENTS": elements,  # that a lane loads at once
        "LANES": lanes,  # that load one key
        "CHUNKS": -(-head_dim // (lanes * elements)),  # loads that a lane needs for it
    }


def decode_v3(
    out: Pointer["OUT"],  # [num_tokens, num_heads, D]
    lse: Pointer[f32],  # [num_tokens, num_heads]
    query: Pointer["QUERY"],  # [num_tokens, num_heads, D]
    key_cache: Pointer["KV"],  # [num_blocks, BS, num_kv_heads, D]
    value_cache: Pointer["KV"],
    block_tables: Pointer[i32],  # [num_seqs, table_stride]
    seq_lens: Pointer[i32],  # [num_seqs]
    query_start_loc: Pointer[i32],  # [num_seqs + 1]
    scale: f32,
    num_tokens: i32,
    num_seqs: i32,
    num_kv_heads: i32,
    table_stride: i64,
    query_token_stride: i64,
    query_head_stride: i64,
    key_block_stride: i64,
    key_token_stride: i64,
    key_head_stride: i64,
    value_block_stride: i64,
    value_token_stride: i64,
    value_head_stride: i64,
    window: i32,
    softcap: f32,
    alibi_slopes: Pointer[f32],  # [num_heads]
    sinks: Pointer[f32],  # [num_heads]
    k_scale: Pointer[f32],  # [num_kv_heads]
    v_scale: Pointer[f32],  # [num_kv_heads]
):
    """Attention of each row and its lse, or of each split with the lse in base 2."""
    token, head, split = i64(cuda.blockIdx.x), i64(cuda.blockIdx.y) * HEADS, i64(cuda.blockIdx.z)
    thread = i64(cuda.threadIdx.x)
    kv_head, lane, group = head // G, thread % LANES, thread // LANES
    sequence, position, first, end = visible_keys(
        token, num_seqs, seq_lens, query_start_loc, window
    )
    if SPLIT:
        first, end = share(first, end, split, i64(cuda.gridDim.z))
    factor = scale
    if SCALES:
        factor *= k_scale[kv_head]
    slope = registers(HEADS, f32(0))
    mine = registers(HEADS * CHUNKS, zeros())
    for h in static(HEADS):
        if ALIBI:
            slope[h] = alibi_slopes[head + h]
        row = token * query_token_stride + (head + h) * query_head_stride
        for c in static(CHUNKS):
            d = (c * LANES + lane) * ELEMENTS
            if CHUNKS * LANES * ELEMENTS == D or d < D:
                mine[h * CHUNKS + c] = load_part(query, row + d, factor)
    largest = registers(HEADS, NEG)
    total = registers(HEADS, f32(0))
    accumulator = registers(HEADS * CHUNKS, zeros())
    start = first + thread // 32 * (32 // LANES)  # of the keys that are this warp's in turn
    while start < end:
        is_mine = start + group % (32 // LANES) < end
        here = min(start + group % (32 // LANES), end - 1)  # a lane without a key repeats the last
        block, slot = i64(block_tables[sequence * table_stride + here // BS]), here % BS
        key = block * key_block_stride + slot * key_token_stride + kv_head * key_head_stride
        value = block * value_block_stride + slot * value_token_stride + kv_head * value_head_stride
        k = registers(CHUNKS, no_words())
        v = registers(CHUNKS, no_words())
        for c in static(CHUNKS):
            if CHUNKS * LANES * ELEMENTS == D or (c * LANES + lane) * ELEMENTS < D:
                k[c] = load_words(key_cache, key + (c * LANES + lane) * WIDTH)
                v[c] = load_words(value_cache, value + (c * LANES + lane) * WIDTH)
        score = registers(HEADS, f32(0))
        for c in static(CHUNKS):
            x = numbers(k[c])
            for h in static(HEADS):
                score[h] += dot(mine[h * CHUNKS + c], x)
        rescale = registers(HEADS, f32(0))
        weight = registers(HEADS, f32(0))
        for h in static(HEADS):
            found = sum_over_lanes(score[h])
            found = base_2_score(found, softcap, slope[h], here - position)
            largest[h], total[h], rescale[h], weight[h] = meet(
                largest[h], total[h], found if is_mine else NEG
            )
        for c in static(CHUNKS):
            x = numbers(v[c])
            for h in static(HEADS):
                accumulator[h * CHUNKS + c] = weighted(
                    accumulator[h * CHUNKS + c], rescale[h], x, weight[h]
                )
        start += NUM_WARPS * 32 // LANES
    largest_of = cuda.shared.array(NUM_WARPS * 32 // LANES, f32)
    total_of = cuda.shared.array(NUM_WARPS * 32 // LANES, f32)
    sum_of = cuda.shared.array(NUM_WARPS * 32 // LANES * D, f32)
    for h in static(HEADS):
        cuda.syncthreads()  # the head before this one has been merged
        if lane == 0:
            largest_of[group] = largest[h]
            total_of[group] = total[h]
        for c in static(CHUNKS):
            d = (c * LANES + lane) * ELEMENTS
            if CHUNKS * LANES * ELEMENTS == D or d < D:
                for e in static(ELEMENTS):
                    sum_of[group * D + d + e] = accumulator[h * CHUNKS + c][e]
        cuda.syncthreads()
        sink, factor = NEG, f32(1)
        if SINKS and not SPLIT and sequence >= 0:
            sink = sinks[head + h] * LOG2E
        if SCALES:
            factor = v_scale[kv_head]
        row = token * num_kv_heads * G + head + h
        if SPLIT:
            row = row * cuda.gridDim.z + split
        write_merged(out, lse, row, thread, largest_of, total_of, sum_of, sink, factor)


def write_merged(
    out: Pointer["OUT"],
    lse: Pointer[f32],
    row: i64,
    thread: i64,
    largest_of,  # [groups of lanes]
    total_of,
    sum_of,  # [groups of lanes * D]
    sink: f32,  # base 2, NEG for none
    factor: f32,
):
    """Merge the groups of lanes, and write one row: thread d writes dimensions d, d + 128, ..."""
    largest = sink
    for j in range(NUM_WARPS * 32 // LANES):
        largest = max(largest, largest_of[j])
    d = thread
    while d < D:
        total, found = ex2(sink - largest) if sink > NEG else f32(0), f32(0)
        for j in range(NUM_WARPS * 32 // LANES):
            rescale = ex2(largest_of[j] - largest)
            total += rescale * total_of[j]
            found += rescale * sum_of[j * D + d]
        store_out(out, row * D + d, f32(0) if total <= f32(0) else factor * found / total)
        if d == 0:
            if SPLIT:
                lse[row] = NEG if total <= f32(0) else largest + lg2(total)
            else:
                lse[row] = natural_lse(largest, total)
        d += 32 * NUM_WARPS
