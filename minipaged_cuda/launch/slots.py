"""Which slots of a cache a batch may read at all; knows lengths and block tables, no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minipaged.attention.semantics import first_visible_key
from minipaged_cuda.kernel import Specialisation

Mask = NDArray[np.bool_]


def readable_slots(
    num_blocks: int,
    block_size: int,
    block_tables: Any,  # [num_seqs, max_blocks_per_seq] int
    seq_lens: Any,  # [num_seqs] int
    query_start_loc: Any,  # [num_seqs + 1] int
    *,
    window: int | None = None,
) -> Mask:  # [num_blocks, block_size]
    """True where some query may see the position that is stored there.

    The rows of a sequence see one run of positions together: to its end, from its beginning or
    from where the first row's window begins. A position without a block is stored nowhere.

    Examples:
        >>> table, starts = np.array([[2, 0]]), np.array([0, 1])
        >>> readable_slots(3, 4, table, np.array([6]), starts, window=4).astype(int)
        array([[1, 1, 0, 0],
               [0, 0, 0, 0],
               [0, 0, 1, 1]])
    """
    mask = np.zeros((num_blocks, block_size), dtype=bool)
    tables, lens, query_lens = map(np.asarray, (block_tables, seq_lens, np.diff(query_start_loc)))
    for table, seq_len, query_len in zip(tables, lens, query_lens):
        if query_len == 0:
            continue
        first = first_visible_key(query_len, seq_len, window)
        seen = np.arange(first, min(seq_len, len(table) * block_size))
        block_ids = table[seen // block_size]
        stored = (block_ids >= 0) & (block_ids < num_blocks)
        mask[block_ids[stored], seen[stored] % block_size] = True
    return mask


def readable_caches(
    specialisation: Specialisation, arguments: Mapping[str, Any]
) -> list[tuple[Any, Mask]]:
    """The K and V caches among a launch's arguments, each with what this launch may read of it."""
    if "block_tables" not in arguments:
        return []
    key_cache, starts = arguments["key_cache"], arguments["query_start_loc"]
    if specialisation.numbers.get("ONE_QUERY"):
        starts = np.arange(len(arguments["seq_lens"]) + 1)
    num_blocks, block_size = key_cache.shape[:2]
    mask = readable_slots(
        num_blocks,
        block_size,
        arguments["block_tables"],
        arguments["seq_lens"],
        starts,
        window=arguments["window"] if specialisation.numbers.get("WINDOW") else None,
    )
    caches = key_cache, arguments["value_cache"]
    return [(cache, mask.reshape(*mask.shape, *[1] * (cache.ndim - 2))) for cache in caches]
