"""What the judged parts may legitimately do differently, one contract for each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from . import memory


@dataclass(frozen=True)
class WriterContract:
    """What writers may legitimately do differently.

    Attributes:
        cache_dtypes: Types of cache that it writes.
        key_dtypes: Types of key and value that it is given, beside the cache's own.
        slot_dtypes: Types of `slot_mapping`.
        layouts: Memory orders of caches that it takes, names of `memory.LAYOUTS`.
        input_layouts: Memory orders of keys and values, names of `memory.INPUT_LAYOUTS`.
        strided_slots: `slot_mapping` may be a column of a wider tensor.
        negative_slots: "skipped", or "not given" if a caller must never pass -1.
        value_dim: "any", or "same" if values must be as wide as keys.
        longer_keys: More keys than slots, as a padded batch has them: "refused", "ignored" (the
            rows beyond the slots), "either", or "not given".
        conversion: Keys of another type than the cache: "done" (rounded to nearest even), "refused"
            (raises and writes nothing), "either", or "not given".
        nan_bits: NaN keeps its payload where keys and cache have one type; else it stays a NaN.
        overflow: Numbers that a quantised cache cannot hold: "saturate", or "not given".
        address_space: Judge offsets beyond 2^31, in memory of which little is touched.
    """

    cache_dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)
    key_dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)
    slot_dtypes: tuple[torch.dtype, ...] = (torch.int64,)
    layouts: tuple[str, ...] = tuple(memory.LAYOUTS)
    input_layouts: tuple[str, ...] = memory.INPUT_LAYOUTS
    strided_slots: bool = True
    negative_slots: Literal["skipped", "not given"] = "skipped"
    value_dim: Literal["any", "same"] = "any"
    longer_keys: Literal["refused", "ignored", "either", "not given"] = "either"
    conversion: Literal["done", "refused", "either", "not given"] = "either"
    nan_bits: bool = True
    overflow: Literal["saturate", "not given"] = "saturate"
    address_space: bool = True


@dataclass(frozen=True)
class CopyContract:
    """What copiers may legitimately do differently.

    Attributes:
        dtypes: Types of cache.
        pair_dtypes: Types of the pairs.
        pairs_as: "tensor", or "list" of tuples.
        caches: 1 for `copy_blocks(cache, pairs)`, 2 for `copy_blocks(keys, values, pairs)`.
        layouts: Memory orders of caches that it takes, names of `memory.LAYOUTS`.
        strided_pairs: Pairs may be a view, such as `torch.stack([source, destination]).T`.
        any_rank: A cache may be `[num_blocks, n]` as well.
        chains: A destination that is a source of another pair: "read first", or "not given".
        negative_pairs: (-1, -1): "skipped", or "not given".
        address_space: Judge offsets beyond 2^31.
    """

    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16, torch.int8)
    pair_dtypes: tuple[torch.dtype, ...] = (torch.int64, torch.int32)
    pairs_as: Literal["tensor", "list"] = "tensor"
    caches: Literal[1, 2] = 1
    layouts: tuple[str, ...] = tuple(memory.LAYOUTS)
    strided_pairs: bool = True
    any_rank: bool = True
    chains: Literal["read first", "not given"] = "read first"
    negative_pairs: Literal["skipped", "not given"] = "not given"
    address_space: bool = True


@dataclass(frozen=True)
class MergeContract:
    """What mergers may legitimately do differently.

    Attributes:
        dtypes: Types of `out_a` and `out_b`; lse is float32.
        lse_base: "e", or "2" where lse is the logarithm to base 2.
        lse_layout: "token, head" for `[num_tokens, num_heads]`, or "head, token".
        in_place: None, or "a" where the result is written into `out_a` and `lse_a`.
        infinite_lse: What an lse of +inf means: "empty", as some libraries mark empty rows, or "not
            given".
        strided: Inputs may be views.
        far: The largest magnitude of an lse.
    """

    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)
    lse_base: Literal["e", "2"] = "e"
    lse_layout: Literal["token, head", "head, token"] = "token, head"
    in_place: Literal["a"] | None = None
    infinite_lse: Literal["empty", "not given"] = "not given"
    strided: bool = True
    far: float = 3e4


@dataclass(frozen=True)
class QuantizerContract:
    """What is quantised, and what quantisers may legitimately do differently.

    Attributes:
        format: Of the codes; asymmetric ones use all 256 or 16 integers.
        symmetric: There is a scale only; else a zero point as well.
        granularity: Which numbers of `[num_tokens, num_heads, head_dim]` share a scale: all of the
            "tensor", those of a "head", of a "token", of a "token, head", or of a "channel" (one
            dim of one head).
        dtypes: Types of numbers that are quantised.
        error_steps: Largest error in steps; 0.5 is rounding to nearest, 1.0 suits a zero point that
            is an integer.
        step_ratio: How much larger a step may be than the range asks for; 2.0 suits scales that are
            powers of two.
        includes_zero: The range of an asymmetric group is widened to include 0.
        exact_ends: The largest magnitude of a symmetric group comes back exactly.
        idempotent: Quantising what came back changes nothing.
        smallest: Largest magnitude of a group below which losing it all is no fault.
        largest: Largest magnitude that is given.
        strided: Inputs may be views.
        dim_multiple: head_dim is a multiple of it, as packers of two codes to a byte ask for.
    """

    format: Literal["int8", "int4", "float8_e4m3fn", "float8_e5m2"] = "int8"
    symmetric: bool = True
    granularity: Literal["tensor", "head", "token", "token, head", "channel"] = "token, head"
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)
    error_steps: float = 0.5
    step_ratio: float = 1.0
    includes_zero: bool = False
    exact_ends: bool = True
    idempotent: bool = True
    smallest: float = 1e-6
    largest: float = 1e30
    strided: bool = True
    dim_multiple: int = 1


@dataclass(frozen=True)
class ReplayContract:
    """Sizes that a session keeps, and what subjects may legitimately do differently.

    The softmax scale is always `head_dim ** -0.5`.

    Attributes:
        mode: "plan, run" or "capture".
        num_heads: Of queries.
        num_kv_heads: Of keys and values.
        head_dim: Of all.
        block_size: Tokens per block.
        num_blocks: Blocks of the caches.
        max_seqs: Sequences of the largest batch; of every batch in the mode "capture".
        max_blocks: Columns of the block table.
        dtype: Of queries and caches.
        queries: "decode" for one query per sequence, or "ragged".
        padding: "zero" if a sequence of length 0 gives 0, "anything" if its rows may hold anything,
            "not given" if no such sequence may come. Rows of -1 are a padded sequence's table.
        poison: What slots of no token hold: "nan", or "big" (1e3) for kernels that multiply with 0.
        lse: Base of the logarithm where `run` returns one; "not judged".
        same_bits: The same inputs give the same bits again.
    """

    mode: Literal["plan, run", "capture"] = "plan, run"
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    block_size: int = 4
    num_blocks: int = 40
    max_seqs: int = 4
    max_blocks: int = 8
    dtype: torch.dtype = torch.float32
    queries: Literal["decode", "ragged"] = "ragged"
    padding: Literal["zero", "anything", "not given"] = "zero"
    poison: Literal["nan", "big"] = "nan"
    lse: Literal["e", "2", "not judged"] = "e"
    same_bits: bool = True
