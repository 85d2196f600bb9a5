"""What the operations refuse, and the sentence that says what would be right; launches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from types import NoneType

import numpy as np
import torch
from torch import Tensor

from minipaged.attention.validation import walk
from minipaged.core import InvalidBatch
from minipaged_cuda.errors import Unsupported

NUMBER, WHOLE = (float, int, np.floating, np.integer), (int, np.integer)
TYPES = (  # of the arguments of an attention call; None is an option that is off
    (("query", "key_cache", "value_cache"), (Tensor,), "a torch.Tensor"),
    (("block_tables", "seq_lens", "query_start_loc"), (Tensor,), "a torch.Tensor"),
    (("alibi_slopes", "sinks"), (NoneType, Tensor), "a torch.Tensor or None"),
    (("k_scale", "v_scale"), (NoneType, Tensor, *NUMBER), "a torch.Tensor, a number or None"),
    (("window", "max_query_len", "num_splits"), (NoneType, *WHOLE), "a whole number or None"),
    (("softcap",), (NoneType, *NUMBER), "a number or None"),
    (("scale",), NUMBER, "a number"),
)


def check_types(arguments: Mapping[str, object]) -> None:
    """Every argument of an attention call is a thing of its kind.

    Raises:
        InvalidBatch: One is not; the message names it.
    """
    for names, types, words in TYPES:
        for name in names:
            value = arguments[name]
            if not isinstance(value, types):
                found = f"{shorten(repr(value), 40)}, of type {type(value).__name__}"
                raise InvalidBatch(f"{name} is {found}; it must be {words}")


def check_values(
    query: Tensor,
    key_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start_loc: Tensor,
    window: int | None,
    max_query_len: int | None,
) -> None:
    """Lengths and tables, where they can be read without waiting; on a card they are trusted.

    Raises:
        InvalidBatch: They contradict each other, the cache, or the promise of one row each.
    """
    if query.device.type != "cpu":
        return
    batch, starts = (block_tables, seq_lens, query_start_loc), query_start_loc.tolist()
    for _ in walk(len(query), key_cache.shape, *batch, window):
        pass  # it raises
    if max_query_len == 1 and starts != list(range(len(starts))):
        raise InvalidBatch(
            "max_query_len=1 promises that every sequence has exactly one row of query, and "
            f"query_start_loc is {starts}, not 0 to {len(starts) - 1} one by one"
        )


def check_attention(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, num_seqs: int, max_query_len: int | None
) -> None:
    """What the kernels ask beyond `minipaged.attention.validation.check_shapes`.

    Raises:
        InvalidBatch: A tensor whose heads are scattered, caches of two types, too few rows.
        Unsupported: Keys and values of two sizes.
    """
    check_caches(key_cache, value_cache)
    check_rows(query=query, key_cache=key_cache, value_cache=value_cache)
    if key_cache.shape[-1] != value_cache.shape[-1]:
        dims = f"{key_cache.shape[-1]} and {value_cache.shape[-1]}"
        raise Unsupported(f"keys and values must have one head_dim, not {dims}")
    if max_query_len == 1 and len(query) < num_seqs:
        raise InvalidBatch(
            f"max_query_len=1 promises a row of query for each of {num_seqs} sequences, "
            f"there are {len(query)}"
        )


def check_caches(key_cache: Tensor, value_cache: Tensor) -> None:
    """K and V are of one type, in one place.

    Raises:
        InvalidBatch: They are not.
    """
    kinds = [f"{x.dtype} on {x.device}" for x in (key_cache, value_cache)]
    if kinds[0] != kinds[1]:
        raise InvalidBatch(f"key_cache is {kinds[0]}, value_cache {kinds[1]}: they must agree")


def check_rows(**tensors: Tensor) -> None:
    """The numbers of a head lie side by side.

    Raises:
        InvalidBatch: They do not.
    """
    for name, x in tensors.items():
        if x.numel() and x.shape[-1] > 1 and x.stride(-1) != 1:
            raise InvalidBatch(
                f"{name} has strides {x.stride()}: the numbers of a head must lie side by side, "
                f"with stride 1, as in {name}.contiguous()"
            )


def check_write(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    scales: tuple[Tensor | float | None, ...],
) -> None:
    """Rows fit the cache's heads, and there is a slot for each.

    Raises:
        InvalidBatch: They do not.
    """
    if key_cache.ndim != 4 or key_cache.shape[:3] != value_cache.shape[:3]:
        shapes = f"{tuple(key_cache.shape)} and {tuple(value_cache.shape)}"
        raise InvalidBatch(f"caches are {shapes}, not [num_blocks, block_size, num_kv_heads, dim]")
    num_tokens, num_kv_heads = slot_mapping.numel(), key_cache.shape[2]
    for name, x, right, dtype in (
        ("key", key, (num_tokens, *key_cache.shape[2:]), key.dtype),
        ("value", value, (num_tokens, *value_cache.shape[2:]), key.dtype),
        ("slot_mapping", slot_mapping, (num_tokens,), torch.int64),
        ("k_scale", scales[0], (num_kv_heads,), None),
        ("v_scale", scales[1], (num_kv_heads,), None),
    ):
        if not isinstance(x, Tensor):
            continue
        if (x.shape, x.dtype, x.device) != (right, dtype or x.dtype, key_cache.device):
            found = f"{x.dtype} {tuple(x.shape)} on {x.device}"
            wanted = f"{dtype or 'numbers'} {right} on {key_cache.device}"
            raise InvalidBatch(f"{name} is {found}, not {wanted}")


def check_copies(sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> None:
    """Blocks of a source fit into the destination.

    Raises:
        InvalidBatch: They do not, or these are no caches.
    """
    for x, y in zip(sources, destinations):
        for cache in (x, y):
            if cache.ndim not in (4, 5):
                raise InvalidBatch(
                    f"a cache is {tuple(cache.shape)}, not [num_blocks, block_size, num_kv_heads, "
                    "head_dim], or [num_layers, ...] of these"
                )
            check_rows(cache=cache)
        forms = [(z.shape[:-4], z.shape[-3:], z.dtype) for z in (x, y)]
        if forms[0] != forms[1]:
            found = " and ".join(f"{z.dtype} {tuple(z.shape)}" for z in (x, y))
            raise InvalidBatch(f"caches may differ in their number of blocks only: {found}")
    if sources[0].shape[:-1] != sources[-1].shape[:-1]:
        shapes = f"{tuple(sources[0].shape)} and {tuple(sources[-1].shape)}"
        raise InvalidBatch(f"key_cache and value_cache begin with different sizes: {shapes}")


def check_states(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> None:
    """Two states of the same rows.

    Raises:
        InvalidBatch: They are not.
    """
    for name, x, right, dtype in (
        ("lse_a", lse_a, out_a.shape[:-1], torch.float32),
        ("out_b", out_b, out_a.shape, out_a.dtype),
        ("lse_b", lse_b, out_a.shape[:-1], torch.float32),
    ):
        if (x.shape, x.dtype, x.device) != (right, dtype, out_a.device):
            found = f"{x.dtype} {tuple(x.shape)} on {x.device}"
            raise InvalidBatch(
                f"{name} is {found}, not {dtype} {tuple(right)} on {out_a.device} as out_a asks"
            )


def type_name(tensor: Tensor) -> str:
    """``"bfloat16"``: the tensor's dtype without its library."""
    return str(tensor.dtype).removeprefix("torch.")


def is_aligned(*tensors: Tensor) -> bool:
    """Every row of every tensor begins at a multiple of 16 bytes."""
    return all(x.data_ptr() % 16 == 0 and _has_aligned_strides(x) for x in tensors)


def _has_aligned_strides(x: Tensor) -> bool:
    """A dimension of size 1 is never stepped along, whatever its stride."""
    steps = zip(x.stride()[:-1], x.shape[:-1])
    return all(stride * x.element_size() % 16 == 0 for stride, size in steps if size > 1)
