"""What a paged batch must look like, said in sizes; knows shapes and lengths, not attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minipaged.attention.semantics import first_visible_key
from minipaged.core.errors import InvalidBatch


def check_shapes(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    k_scale: Tensor | float | None,
    v_scale: Tensor | float | None,
) -> None:
    """All that can be said without reading a value from the device, so it is always checked."""
    tensors = {"query": query, "key_cache": key_cache, "value_cache": value_cache}
    metadata = {"block_tables": block_tables, "seq_lens": seq_lens}
    metadata["query_start_loc"] = query_start_loc
    for (name, tensor), ndim in zip((tensors | metadata).items(), (3, 4, 4, 2, 1, 1)):
        if tensor.ndim != ndim or tensor.device != query.device:
            found = f"{tuple(tensor.shape)} on {tensor.device}"
            raise InvalidBatch(f"{name} is {found}, not {ndim}-dimensional on {query.device}")
        if name in metadata and tensor.dtype != torch.int32:
            raise InvalidBatch(f"{name} is {tensor.dtype}, not torch.int32")
    (_, num_heads, head_dim), num_kv_heads = query.shape, key_cache.shape[2]
    if not query.is_floating_point():
        raise InvalidBatch(f"query is {query.dtype}, not a floating point type")
    if key_cache.shape[3] != head_dim:
        raise InvalidBatch(f"query has head_dim {head_dim}, key_cache {key_cache.shape[3]}")
    if key_cache.shape[:3] != value_cache.shape[:3]:
        shapes = f"{tuple(key_cache.shape[:3])} and {tuple(value_cache.shape[:3])}"
        raise InvalidBatch(f"key_cache and value_cache begin with different sizes: {shapes}")
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise InvalidBatch(f"{num_heads} query heads cannot share {num_kv_heads} kv heads evenly")
    if not len(seq_lens) == len(block_tables) == len(query_start_loc) - 1:
        lengths = {name: len(tensor) for name, tensor in metadata.items()}
        raise InvalidBatch(f"{lengths}: query_start_loc needs one entry more than the others")
    names, sizes = ("alibi_slopes", "sinks", "k_scale", "v_scale"), (num_heads, num_kv_heads)
    for i, x in enumerate((alibi_slopes, sinks, k_scale, v_scale)):
        right = (sizes[i // 2],), query.device
        if isinstance(x, Tensor) and (x.shape, x.device) != right:
            found = f"{tuple(x.shape)} on {x.device}"
            raise InvalidBatch(f"{names[i]} is {found}, not {right[0]} on {right[1]}")


def walk(
    num_tokens: int,
    cache_shape: tuple[int, ...],
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    window: int | None,
) -> Iterator[tuple[slice, list[int], range]]:
    """Each sequence's rows of the query, its block ids, and the positions that its queries see.

    Raises:
        InvalidBatch: On values that contradict each other, before they are used.
    """
    (num_blocks, block_size), starts = cache_shape[:2], query_start_loc.tolist()
    if starts[0] != 0 or starts[-1] > num_tokens or starts != sorted(starts):
        raise InvalidBatch(f"query_start_loc {starts} must rise from 0 to at most {num_tokens}")
    for s, (block_ids, seq_len) in enumerate(zip(block_tables.tolist(), seq_lens.tolist())):
        query_len, covered = starts[s + 1] - starts[s], len(block_ids) * block_size
        if query_len == 0:
            continue
        if not 0 <= seq_len <= covered:
            raise InvalidBatch(
                f"block_tables covers {covered} tokens of sequence {s}, "
                f"seq_lens asks for {seq_len} (block_size {block_size})"
            )
        seen = range(first_visible_key(query_len, seq_len, window), seq_len)
        needed = block_ids[seen.start // block_size : -(-seq_len // block_size)]
        if any(not 0 <= block_id < num_blocks for block_id in needed):
            raise InvalidBatch(
                f"sequence {s} sees positions {seen.start} to {seq_len - 1} in blocks {needed}, "
                f"but the cache has blocks 0 to {num_blocks - 1}"
            )
        yield slice(starts[s], starts[s + 1]), block_ids, seen
