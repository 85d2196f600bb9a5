"""The launch plans of what a cache does besides attention: write, copy, merge; sizes alone."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged_cuda.errors import Unsupported
from minipaged_cuda.plan.launches import OLDEST, TYPES, Card, Launch, ceil_div, threads_for

WIDE_BYTES = 16  # of the widest load and store


@dataclass(frozen=True)
class WriteSizes:
    """All that the plan of a write depends on.

    Attributes:
        num_tokens: Rows of key and value.
        num_kv_heads: Heads of each.
        head_dim: Of keys.
        value_head_dim: Of values.
        block_size: Tokens per block.
        new_type: Of key and value.
        cache_type: Of the caches.
        element_bytes: Of one number of the cache.
        is_scaled: Numbers are divided by a scale before they are stored.
        is_aligned: Every head of all four tensors begins at a multiple of 16 bytes.
    """

    num_tokens: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    block_size: int
    new_type: str
    cache_type: str
    element_bytes: int
    is_scaled: bool = False
    is_aligned: bool = True


def plan_write(sizes: WriteSizes, card: Card) -> Launch:
    """Rows of equal type are moved as they are, 16 bytes at a time if they can be.

    Raises:
        Unsupported: No kernel converts between these types on this card.
    """
    rows = {"ROW": sizes.head_dim, "VALUE_ROW": sizes.value_head_dim}
    row_bytes = [dim * sizes.element_bytes for dim in rows.values()]
    if sizes.new_type != sizes.cache_type or sizes.is_scaled:
        types = _conversion(sizes, card)
    elif sizes.is_aligned and all(n % WIDE_BYTES == 0 for n in row_bytes):
        rows = {name: n // WIDE_BYTES for name, n in zip(rows, row_bytes)}
        types = {"MODE": 0, "NEW": "uint32", "KV": "uint32"}
    else:
        word = f"uint{8 * sizes.element_bytes}"
        types = {"MODE": 1, "NEW": word, "KV": word}
    constants = {"BS": sizes.block_size, "SCALES": int(sizes.is_scaled), **rows, **types}
    num_threads = threads_for(sizes.num_kv_heads * max(rows.values()))
    return Launch.of("write_kv", constants, (sizes.num_tokens, 1, 1), num_threads)


def _conversion(sizes: WriteSizes, card: Card) -> dict[str, int | str]:
    for what, name in (("key", sizes.new_type), ("cache", sizes.cache_type)):
        if name not in TYPES:
            raise Unsupported(f"{what} is {name}; write_kv converts between {', '.join(TYPES)}")
        if card.capability < OLDEST.get(name, (0, 0)):
            major, minor = OLDEST[name]
            raise Unsupported(f"{what} is {name}, which takes a card of sm_{major}{minor} or newer")
    new, stored = TYPES[sizes.new_type], TYPES[sizes.cache_type]
    types: dict[str, int | str] = {"NEW": new.element, "KV": stored.element, "load_new": new.load}
    return types | ({"MODE": 2, "store_kv": stored.store} if stored.store else {"MODE": 3})


@dataclass(frozen=True)
class CopySizes:
    """All that the plan of a copy depends on: a block is tokens x heads rows of numbers.

    Attributes:
        num_pairs: Blocks to be copied.
        num_layers: Of the caches.
        tokens: Rows of a block along one axis; 1 if it has no gaps, and so is a row itself.
        heads: Along the other.
        row: Numbers in a row.
        element_bytes: Of one number.
        is_aligned: Every row of all caches begins at a multiple of 16 bytes.
        has_values: A value cache is copied in the same launch.
    """

    num_pairs: int
    num_layers: int
    tokens: int
    heads: int
    row: int
    element_bytes: int
    is_aligned: bool
    has_values: bool


def plan_copy(sizes: CopySizes) -> Launch:
    """A thread for every 16 bytes of a block, or for every number."""
    row_bytes = sizes.row * sizes.element_bytes
    wide = sizes.is_aligned and row_bytes % WIDE_BYTES == 0
    row = row_bytes // WIDE_BYTES if wide else sizes.row
    constants = {
        "TOKENS": sizes.tokens,
        "HEADS": sizes.heads,
        "ROW": row,
        "WIDE": int(wide),
        "VALUES": int(sizes.has_values),
        "WORD": "uint32" if wide else f"uint{8 * sizes.element_bytes}",
    }
    words = sizes.tokens * sizes.heads * row
    num_threads = threads_for(words)
    grid = (ceil_div(words, num_threads), sizes.num_pairs, sizes.num_layers)
    return Launch.of("copy_blocks", constants, grid, num_threads)


def plan_merge_states(num_rows: int, head_dim: int, out_type: str) -> Launch:
    """A CTA for every row of a head.

    Raises:
        Unsupported: Outputs of this type cannot be merged.
    """
    usable = [name for name, kind in TYPES.items() if kind.store]
    if out_type not in usable:
        raise Unsupported(f"out is {out_type}; merge_states takes {', '.join(usable)}")
    kind = TYPES[out_type]
    constants = {"D": head_dim, "OUT": kind.element, "load_state": kind.load}
    constants |= {"store_out": str(kind.store)}
    return Launch.of("merge_states", constants, (num_rows, 1, 1), threads_for(head_dim))
