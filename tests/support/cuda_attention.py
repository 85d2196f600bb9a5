"""Runs the tensor-core kernel on a paged attention problem, on a CPU, and says how right it was."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minipaged.attention import paged_attention
from minipaged_cuda.kernels.fragments import layout
from support.attention_problems import Spec
from support.cuda_kernels import arguments, constants_of, launch, sizes

NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float8_e4m3fn: "float8_e4m3fn"}


def problem(lengths: list[tuple[int, int]], **changes: Any) -> dict[str, Any]:
    """The arguments of a call; NaN wherever no query sees a slot. ``cache`` is the cache's type."""
    cache, dim = changes.pop("cache", None), changes.pop("head_dim", 64)
    fixed: dict[str, Any] = {"head_dim": dim, "value_head_dim": dim, "block_size": 16}
    fixed |= {"dtype": "bfloat16", "layout": "HND"} | changes
    spec = Spec(lengths=tuple(lengths), **fixed)
    return arguments(spec.build(), cache)


def attend(
    launcher: Any, given: dict[str, Any], *, num_splits: int = 1, one_query: bool = False
) -> tuple[Tensor, Tensor]:
    """The output and lse of the kernel, and of ``merge`` after it if there are splits."""
    query, key_cache = given["query"], given["key_cache"]
    (num_tokens, num_heads, dim), num_kv_heads = query.shape, key_cache.shape[2]
    out, lse = torch.full_like(query, torch.nan), torch.full(query.shape[:2], torch.nan)
    constants = constants_of(given, one_query=one_query)
    constants |= layout(dim, NAMES[query.dtype], NAMES[key_cache.dtype])
    constants |= {"SPLIT": int(num_splits > 1)}
    group, num_seqs = num_heads // num_kv_heads, len(given["seq_lens"])
    tiles = num_tokens * group // 16 + num_seqs + 1
    if one_query:
        tiles = num_tokens * -(-group // 16)
    words = sizes(given, 4 // key_cache.itemsize)
    words |= {name: words[name] // 2 for name in ("query_token_stride", "query_head_stride")}
    given = given | words | {"num_heads": num_heads, "num_splits": num_splits}
    grid = (num_splits, num_kv_heads, tiles)
    if num_splits == 1:
        launch(launcher, "attention", grid, 128, given | {"out": out, "lse": lse}, constants)
        return out, lse
    parts = torch.full((num_tokens, num_heads, num_splits, dim), torch.nan)
    part_lse = torch.full(parts.shape[:3], torch.nan)
    launch(launcher, "attention", grid, 128, given | {"out": parts, "lse": part_lse}, constants)
    given |= {"partial_out": parts, "partial_lse": part_lse, "out": out, "lse": lse}
    launch(launcher, "merge", (num_tokens, num_heads), dim, given, constants)
    return out, lse


def worst(got: tuple[Tensor, Tensor], given: dict[str, Any]) -> float:
    """The largest error of output and lse, as a share of what rounding may cause; NaN if any is.

    Weights are rounded to 16 bits before they meet the values, so the output may be off by their
    unit roundoff times the same attention over absolute values; then it is rounded itself. Scores,
    sums and lse are float32.
    """
    exact = {name: given[name].double() for name in ("query", "key_cache", "value_cache")}
    want, want_lse = paged_attention(**{**given, **exact}, return_lse=True)
    exact["value_cache"] = exact["value_cache"].abs()
    size = paged_attention(**{**given, **exact})
    assert isinstance(size, Tensor)
    is_float16 = given["query"].dtype == torch.float16 or given["key_cache"].itemsize == 1
    weights = 2.0**-11 if is_float16 else 2.0**-8
    rounding = torch.finfo(given["query"].dtype).eps / 2
    budget = weights * size + rounding * want.abs() + 1e-5
    out, lse = (x.double() for x in got)
    off = (out - want).abs() / budget
    off_lse = torch.where(lse == want_lse, 0.0, (lse - want_lse).abs() / 1e-5)
    return max(off.max().item(), off_lse.max().item()) if off.numel() else 0.0
