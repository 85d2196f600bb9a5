"""Small launches that a kernel's faults are looked for in, with what each should have done.

Every case gives its kernel what a wrong one trips over: V in another memory order than K, a query
cut out of a wider projection, NaN wherever no query sees a slot, rows that belong to nobody.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minipaged.attention import paged_attention as reference
from minipaged_cuda import paged_attention
from support.attention_problems import Spec
from support.cuda_attention import worst
from support.cuda_cases_cache import CACHE_CASES, far_blocks
from support.cuda_kernels import arguments, check
from support.cuda_planted import Case, PlantedLauncher

FLOAT8 = torch.float8_e4m3fn


# --- attention ---------------------------------------------------------------------------------


def attention(
    name: str,
    kernel: str,
    how: dict[str, Any] | None = None,
    *,
    is_far: bool = False,
    tolerance: float | None = None,
    **sizes: Any,
) -> Case:
    """Attention by one kernel; ``how`` are options of the call, ``sizes`` those of a `Spec`.

    The result must be as close as the kernel's own tests ask for, or to a tolerance.
    """

    def run(launcher: PlantedLauncher) -> None:
        given = problem(kernel, is_far, **sizes)
        options = {"return_lse": True, "kernel": kernel, "num_splits": 1, **(how or {})}
        got: Any = paged_attention(**given, **options, launcher=launcher)
        if tolerance is not None:
            want = reference(**given, return_lse=True)
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
        elif kernel == "attention":
            assert worst(got, given) <= 1
        else:
            check(got, given)

    return Case(name, run, is_far)


def problem(
    kernel: str, is_far: bool, *, cache: torch.dtype | None = None, **sizes: Any
) -> dict[str, Any]:
    """The arguments of a call."""
    dim = sizes.pop("head_dim", 5)
    fixed = {"head_dim": dim, "value_head_dim": dim, "block_size": 3, "extra_rows": 1}
    given, other = (
        arguments(Spec(**{**fixed, "layout": layout, **sizes}).build(), cache)
        for layout in ("HND", "interleaved")
    )
    given["value_cache"] = other["value_cache"]
    given["query"] = cut_out(given["query"])
    return scattered(given) if is_far else given


def cut_out(query: Tensor) -> Tensor:
    """The same numbers as a part of a wider tensor."""
    num_tokens, num_heads, dim = query.shape
    wide = torch.full((num_tokens, num_heads + 2, dim + 8), torch.nan, dtype=query.dtype)
    wide[:, 1:-1, :dim] = query.nan_to_num(1.0)  # a NaN would hide that a row of nobody is computed
    return wide[:, 1:-1, :dim]


def scattered(given: dict[str, Any]) -> dict[str, Any]:
    """K and V with 2**31 bytes from one block to the next, of which few pages are ever touched."""
    blocks = given["block_tables"][0, :2].long()
    for name in ("key_cache", "value_cache"):
        near = given[name][blocks]
        given[name] = far_blocks(near.shape, near.dtype)
        given[name].copy_(near)
    given["block_tables"] = torch.tensor([[0, 1]], dtype=torch.int32)
    return given


RAGGED = ((2, 6), (0, 4), (3, 2), (1, 0))
OPTIONS = {"window": 3, "softcap": 1.0, "alibi": True, "sinks": True, "kv_scales": "tensor"}


V0 = (
    attention("ragged", "decode_v0", lengths=RAGGED, num_kv_heads=2, group=2),
    attention("steep", "decode_v0", lengths=((1, 4),), sharpness=400.0, tolerance=1e-3),
)
V1 = (
    attention("ragged", "decode_v1", lengths=RAGGED, num_kv_heads=2, group=2),
    attention(
        "far", "decode_v1", is_far=True, lengths=((1, 3),), block_size=2, cache=FLOAT8, extra_rows=0
    ),
)
V2 = (attention("ragged", "decode_v2", lengths=RAGGED, num_kv_heads=2, group=2),)
V3 = (
    attention("ragged", "decode_v3", lengths=((2, 1), (0, 4), (1, 5)), num_kv_heads=2, group=2),
    attention("options", "decode_v3", lengths=((2, 7), (1, 4)), group=2, **OPTIONS),
    attention(
        "splits", "decode_v3", {"num_splits": 3},
        lengths=((1, 0), (1, 1), (1, 50)), head_dim=4, sinks=True, kv_scales="tensor",
    ),
    attention("16 bytes", "decode_v3", lengths=((1, 9),), head_dim=16, dtype="float16", sinks=True),
    attention("not causal", "decode_v3", lengths=((2, 5),), causal=False, window=3, head_dim=4),
    attention(
        "one query", "decode_v3", {"max_query_len": 1}, lengths=((1, 3), (1, 5)), head_dim=4
    ),
)  # fmt: skip

WORDS = {"block_size": 16, "dtype": "bfloat16", "head_dim": 32}

V4 = (
    attention("ragged", "attention", lengths=((9, 20), (0, 4), (2, 1), (1, 3)), group=2, **WORDS),
    attention(
        "options", "attention", lengths=((3, 40), (1, 18)), num_kv_heads=2, group=3,
        **WORDS, **{**OPTIONS, "kv_scales": "none", "window": 9},
    ),
    attention(
        "splits", "attention", {"num_splits": 2, "max_query_len": 1},
        lengths=((1, 0), (1, 70)), group=2, sinks=True, **WORDS,
    ),
    attention(
        "float8", "attention", lengths=((2, 21),), num_kv_heads=2, group=2, kv_scales="tensor",
        **{**WORDS, "head_dim": 64}, cache=FLOAT8,
    ),
    attention(
        "steep", "attention", lengths=((1, 4),), sharpness=400.0, tolerance=0.03, **WORDS,
    ),
    attention("wide", "attention", lengths=((1, 80),), group=20, **{**WORDS, "head_dim": 96}),
    attention("long", "attention", lengths=((8, 100),), group=2, **{**WORDS, "block_size": 32}),
)  # fmt: skip


CASES: dict[str, tuple[Case, ...]] = {
    "decode_v0": V0,
    "decode_v1": V1,
    "decode_v2": V2,
    "decode_v3": V3,
    "common": V3,
    "parts": V3,
    "attention": V4,
    "tiles": V4,
    "fragments": V4,
    **CACHE_CASES,
}
