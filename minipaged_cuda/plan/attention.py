"""The launch plan of an attention call: kernel, grid and splits, from sizes alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from minipaged.core import InvalidBatch
from minipaged_cuda.errors import Unsupported
from minipaged_cuda.kernels import decode_v3, fragments
from minipaged_cuda.plan.choice import FLAGS, TILE, AttentionSizes, choose_kernel, why_not
from minipaged_cuda.plan.launches import TYPES, Card, Launch, ceil_div

NUM_THREADS = 128
MIN_SPLIT_TOKENS = 64  # a tile for each of a CTA's four warps
CTAS_PER_SM = 2
# 65,536 registers of a multiprocessor, three CTAs of 128 threads, eight registers at a time. That
# is a few less than the compiler would take, and enough for what `_fits_three_times` says.
THREE_CTAS = 168
MAX_ACCUMULATORS = 32  # of a thread of decode_v3: as many registers again hold its query


@dataclass(frozen=True)
class AttentionPlan:
    """The launches of one attention call.

    Attributes:
        attend: Computes every row, or its share of every split.
        num_splits: Runs that the keys of a sequence are cut into, each with CTAs of its own.
        merge: Puts the splits together; None where there is one.
    """

    attend: Launch
    num_splits: int = 1
    merge: Launch | None = None


@lru_cache(maxsize=1024)  # every layer of every step asks for the same few
def plan_attention(
    sizes: AttentionSizes,
    card: Card,
    *,
    kernel: str | None = None,
    num_splits: int | None = None,
) -> AttentionPlan:
    """The kernel that suits these sizes best, and how it is launched.

    Args:
        sizes: Of the batch.
        card: What it runs on.
        kernel: One of `KERNELS`, to be used whatever else would suit; None to choose.
        num_splits: To be used whatever would fill the card; None to choose.

    Raises:
        InvalidBatch: `num_splits` is not a number of runs.
        Unsupported: No kernel computes this, or the named one does not; the message says why.
    """
    if num_splits is not None and num_splits < 1:
        raise InvalidBatch(f"num_splits is {num_splits}; 1 is one run, None chooses")
    name = kernel or choose_kernel(sizes, card)
    if reason := why_not(name, sizes, card):
        raise Unsupported(f"{name} does not compute this: {reason}")
    if name in ("attention", "decode_v3"):
        return _plan_split(name, sizes, card, num_splits)
    if num_splits is not None and num_splits > 1:
        raise Unsupported(
            f"{name} does not cut the keys of a sequence into num_splits={num_splits} runs; "
            "decode_v3 and attention do"
        )
    return AttentionPlan(_plan_rung(name, sizes))


# --- grids -------------------------------------------------------------------------------------


def _plan_rung(kernel: str, sizes: AttentionSizes) -> Launch:
    rows = sizes.num_tokens * sizes.num_heads
    grid, num_threads = {
        "decode_v0": ((ceil_div(rows, NUM_THREADS), 1, 1), NUM_THREADS),
        "decode_v1": ((sizes.num_tokens, sizes.num_heads, 1), sizes.head_dim),
        "decode_v2": ((ceil_div(rows, NUM_THREADS // 32), 1, 1), NUM_THREADS),
    }[kernel]
    return Launch.of(kernel, _constants(sizes), grid, num_threads)


def _plan_split(
    kernel: str, sizes: AttentionSizes, card: Card, num_splits: int | None
) -> AttentionPlan:
    """A kernel that shares the keys of a row among CTAs, and what puts their results together."""
    if kernel == "attention":
        constants = _constants(sizes) | fragments.layout(
            sizes.head_dim, sizes.query_type, sizes.cache_type
        )
        tiles, rows = num_tiles(sizes), sizes.num_kv_heads
        max_registers = THREE_CTAS if _fits_three_times(sizes) else None
    else:
        constants = _decode_v3_constants(sizes)
        tiles, rows = sizes.num_tokens, sizes.num_heads // int(constants["HEADS"])
        max_registers = None
    splits = num_splits or choose_num_splits(tiles * rows, sizes.max_seq_len, card)
    constants["SPLIT"] = int(splits > 1)
    if splits > 1:
        constants |= {"OUT": "float32", "store_out": "store_float32"}
    grid = (splits, rows, tiles) if kernel == "attention" else (tiles, rows, splits)
    attend = Launch.of(kernel, constants, grid, NUM_THREADS, max_registers)
    return AttentionPlan(attend, splits, _plan_merge(sizes) if splits > 1 else None)


def _fits_three_times(sizes: AttentionSizes) -> bool:
    """Decode waits for memory, so more warps help; larger tiles would put registers there too."""
    return sizes.one_query and sizes.head_dim <= 128 and sizes.group <= 8


def choose_num_splits(num_ctas: int, max_seq_len: int, card: Card) -> int:
    """As many as the card has room for at once, if there is work for each.

    Examples:
        >>> from minipaged_cuda.plan import H200
        >>> [choose_num_splits(n, 32768, H200) for n in (1, 8, 100, 264, 5000)]  # 264 at once
        [264, 33, 2, 1, 1]
        >>> choose_num_splits(1, 500, H200)  # a CTA has at least 64 tokens
        7
    """
    room = CTAS_PER_SM * card.num_sms // max(num_ctas, 1)
    return max(1, min(room, max_seq_len // MIN_SPLIT_TOKENS))


def num_tiles(sizes: AttentionSizes) -> int:
    """Tiles of the kernel ``attention``: enough for any lengths that the batch may have.

    A tile holds 16 rows (query token, head of the group) of one sequence. With a row for every
    sequence they are numbered straight. Else sequence s, which begins at token t, has its first
    at ``t * group // 16 + s``: room for the one that each may have half empty. The rows of no
    sequence count as one more.
    """
    if sizes.one_query:
        return sizes.num_tokens * ceil_div(sizes.group, TILE)
    return sizes.num_tokens * sizes.group // TILE + sizes.num_seqs + 1


def _plan_merge(sizes: AttentionSizes) -> Launch:
    out = TYPES[sizes.query_type]
    assert out.store
    constants = {"D": sizes.head_dim, "SINKS": int("SINKS" in sizes.flags)}
    types = {"OUT": out.element, "store_out": out.store}
    grid = (sizes.num_tokens, sizes.num_heads, 1)
    return Launch.of("merge", constants | types, grid, NUM_THREADS)


# --- constants ---------------------------------------------------------------------------------


def _constants(sizes: AttentionSizes) -> dict[str, int | str]:
    """What every attention kernel has: sizes, flags, and the types behind its pointers."""
    query, stored = TYPES[sizes.query_type], TYPES[sizes.cache_type]
    assert query.store
    return {
        "D": sizes.head_dim,
        "G": sizes.group,
        "BS": sizes.block_size,
        "ONE_QUERY": int(sizes.one_query),
        **{flag: int(flag in sizes.flags) for flag in FLAGS},
        "QUERY": query.element,
        "KV": stored.element,
        "OUT": query.element,
        "load_query": query.load,
        "load_kv": stored.load,
        "store_out": query.store,
    }


def _decode_v3_constants(sizes: AttentionSizes) -> dict[str, int | str]:
    """16 bytes a load where K and V allow it; as many heads share it as registers allow."""
    stored = TYPES[sizes.cache_type]
    row_bytes = sizes.head_dim * stored.num_bytes
    wide = sizes.is_aligned and row_bytes % 16 == 0
    constants = _constants(sizes) | decode_v3.layout(sizes.head_dim, stored.num_bytes, wide=wide)
    per_head = int(constants["CHUNKS"]) * int(constants["ELEMENTS"])
    divisors = [n for n in range(1, sizes.group + 1) if sizes.group % n == 0]
    constants["HEADS"] = max(n for n in divisors if n * per_head <= MAX_ACCUMULATORS or n == 1)
    words = {"KV": "uint32", "low": f"{stored.half}x2_low", "high": f"{stored.half}x2_high"}
    return constants | (words if wide else {})
